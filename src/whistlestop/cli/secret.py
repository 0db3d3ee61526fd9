"""`whistle secret`: values that runs may use and nobody may read. Never given as an argument: other users see those."""

import sys
from typing import Annotated

import typer

from whistlestop.cli.options import Json, connect

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Set, list and remove secrets.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(help="As in `env: {TOKEN: {secret: NAME}}`.")]


@app.callback()
def secret() -> None:
    pass


@app.command("set")
def change(name: Name, as_json: Json = False) -> None:
    """Store a secret. Its value comes from a prompt, or from standard input."""
    from whistlestop.cli.failures import Usage
    from whistlestop.cli.output import print_json, say

    if sys.stdin.isatty():
        value = str(typer.prompt(f"Value of {name}", hide_input=True, err=True))
    else:
        value = sys.stdin.read().removesuffix("\n")
    if not value:
        raise Usage("The value is empty.", hint=f"whistle secret set {name} < FILE")
    with connect() as client:
        client.set_secret(name, value)
    if as_json:
        print_json({"name": name, "set": True})
    else:
        say(f"Secret {name} is set.")


@app.command("ls")
def ls(as_json: Json = False) -> None:
    """List the names of the secrets."""
    from whistlestop.cli import words
    from whistlestop.cli.failures import printable
    from whistlestop.cli.output import print_json, say, show, table

    with connect() as client:
        found = client.secrets()
    if as_json:
        print_json(found)
        return
    if not found:
        say("No secrets.")
        return
    made = table("name", "changed")
    for item in found:
        made.add_row(printable(item.name), words.local_time(item.updated_at))
    show(made)


@app.command("rm")
def rm(name: Name, as_json: Json = False) -> None:
    """Remove a secret."""
    from whistlestop.cli.output import print_json, say

    with connect() as client:
        client.delete_secret(name)
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        say(f"Secret {name} is removed.")
