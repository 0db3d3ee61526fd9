"""`whistle version`: of this command, and of the server if there is one."""

from whistlestop.cli.options import Json, command, connect

app = command()


@app.command()
def version(as_json: Json = False) -> None:
    """Print the versions of the command and of the server."""
    from whistlestop import __version__
    from whistlestop.cli.output import print_json, say
    from whistlestop.domain.errors import WhistleError

    with connect() as client:
        url = client.url
        try:
            who = client.whoami()
        except WhistleError as error:
            if as_json:
                print_json({"version": __version__, "server": None})
                return
            say(f"whistle {__version__}")
            say(f"server  – ({error.text})")
            return
    if as_json:
        print_json({"version": __version__, "server": {"url": url, **who.model_dump(mode="json", exclude={"csrf"})}})
        return
    say(f"whistle {__version__}")
    say(f"server  {who.version} at {url}, as {who.name} ({who.role})")
