"""`whistle token`: who may do what."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, connect

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Make, list and revoke tokens.", no_args_is_help=True
)


@app.callback()
def token() -> None:
    pass


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Whose it is, or what it is for.")],
    role: Annotated[str, typer.Option(help="admin, member or viewer.")] = "member",
    as_json: Json = False,
) -> None:
    """Make a token. It is shown once."""
    from whistlestop.cli.failures import Usage
    from whistlestop.cli.output import aside, print_json, say
    from whistlestop.wire.api import Role

    roles: dict[str, Role] = {"admin": "admin", "member": "member", "viewer": "viewer"}
    if role not in roles:
        raise Usage(f"{role!r} is not a role.", hint="admin, member or viewer")
    with connect() as client:
        made = client.create_token(name, roles[role])
    if as_json:
        print_json(made)
        return
    say(made.token or "")
    aside(f"Token {made.id} for {made.name} ({made.role}). It is not shown again; use it as WHISTLE_TOKEN.")


@app.command("ls")
def ls(as_json: Json = False) -> None:
    """List the tokens, without their secrets."""
    from whistlestop.cli import words
    from whistlestop.cli.failures import printable
    from whistlestop.cli.output import print_json, show, table

    with connect() as client:
        found = client.tokens()
    if as_json:
        print_json(found)
        return
    made = table("id", "name", "role", "created")
    for item in found:
        made.add_row(item.id, printable(item.name), item.role, words.local_time(item.created_at))
    show(made)


@app.command("revoke")
def revoke(token_id: Annotated[str, typer.Argument(metavar="ID")], as_json: Json = False) -> None:
    """Revoke a token: it is refused from now on."""
    from whistlestop.cli.output import print_json, say

    with connect() as client:
        client.revoke_token(token_id)
    if as_json:
        print_json({"id": token_id, "revoked": True})
    else:
        say(f"Token {token_id} is revoked.")
