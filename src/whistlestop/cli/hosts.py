"""`whistle hosts`: the machines that pools are made of, how they did, and which are not used."""

from typing import TYPE_CHECKING, Annotated

import typer

from whistlestop.cli.options import Json, connect

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.pools import HostDone, HostView

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="List the hosts, take one out of use, or back.",
    invoke_without_command=True,
)

Host = Annotated[
    str, typer.Argument(metavar="HOST", help="Its name, or POOL/HOST where two pools have one of that name.")
]
Note = Annotated[str, typer.Option("--note", help="Why. Shown with the host.")]


@app.callback()
def hosts(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        _list(as_json)


@app.command("ls")
def ls(as_json: Json = False) -> None:
    """List the hosts with their standing."""
    _list(as_json)


@app.command("exclude")
def exclude(
    host: Host,
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="90s, 2h, 1d; else until readmitted.")
    ] = None,
    note: Note = "",
    as_json: Json = False,
) -> None:
    """Place nothing on a host from now on. What runs there runs on."""
    from whistlestop.cli.failures import Usage
    from whistlestop.wire.durations import parse_duration

    seconds = None
    if lasting is not None:
        try:
            seconds = parse_duration(lasting).total_seconds()
        except ValueError as error:
            raise Usage(f"--for {lasting}: {error}.") from error
        if not seconds:
            raise Usage("--for must be longer than zero.")
    with connect() as client:
        found = _find(client, host)
        _said(client.exclude_host(found.pool, found.name, for_s=seconds, note=note), as_json)


@app.command("readmit")
def readmit(host: Host, note: Note = "", as_json: Json = False) -> None:
    """Use a host again. What it did before counts no more."""
    with connect() as client:
        found = _find(client, host)
        _said(client.readmit_host(found.pool, found.name, note=note), as_json)


def _find(client: "Client", reference: str) -> "HostView":
    from whistlestop.domain.errors import Ambiguous, NotFound
    from whistlestop.wire.mistakes import nearest

    known = client.hosts()
    found = [each for each in known if reference in (each.name, f"{each.pool}/{each.name}")]
    if not found:
        hint = nearest(reference, [each.name for each in known]) or "whistle hosts shows them"
        raise NotFound(f"there is no host {reference}", hint=hint)
    if len(found) > 1:
        places = " or ".join(f"{each.pool}/{each.name}" for each in found)
        raise Ambiguous(f"{len(found)} pools have a host {reference}", hint=f"say {places}")
    return found[0]


def _list(as_json: bool) -> None:
    from whistlestop.cli.output import print_json, say
    from whistlestop.cli.pools_view import show_hosts

    with connect() as client:
        found = client.hosts()
    if as_json:
        print_json(found)
    elif not found:
        say("No host is known yet: no pool names any, and nothing has run.")
    else:
        show_hosts(found)


def _said(done: "HostDone", as_json: bool) -> None:
    from whistlestop.cli.verbs import tell

    tell(done, as_json=as_json)
