"""`whistle open`: a link that signs a browser in to the dashboard, once."""

from whistlestop.cli.options import Json, command, connect

app = command()


@app.command()
def open_page(as_json: Json = False) -> None:
    """Print a link to the dashboard. It signs you in once, within 10 minutes."""
    from whistlestop.cli.output import aside, print_json, say

    with connect() as client:
        link = client.sign_in_link()
    if as_json:
        print_json({"dashboard": link})
        return
    say(link)
    aside("It signs in the browser that opens it first, within 10 minutes, as the token you use here.")
