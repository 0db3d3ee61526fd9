"""`whistle alerts`: who is told of what, and what became of it."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from whistlestop.cli.options import Json, connect

if TYPE_CHECKING:
    from whistlestop.wire.alerts import DeliveryView

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Say who is told of what, and see what was sent.",
    no_args_is_help=True,
)  # fmt: skip
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the receiver.")]


@app.callback()
def alerts() -> None:
    pass


@app.command("add")
def add(
    name: Name,
    address: Annotated[
        str, typer.Argument(metavar="URL", help="https://… is posted to, signed; all else is apprise's. - reads it.")
    ],
    project: Annotated[str | None, typer.Option("--project", help="Of runs of this project alone.")] = None,
    on: Annotated[list[str] | None, typer.Option("--on", help="failed, stuck, done, …; else all but killed.")] = None,
    only_named: Annotated[bool, typer.Option("--only-named", help="Of runs alone that name it in their spec.")] = False,
    as_json: Json = False,
) -> None:
    """Add a receiver. What its webhooks are signed with is shown once."""
    from whistlestop.cli.failures import Usage
    from whistlestop.cli.output import aside, print_json, say
    from whistlestop.domain.alerts import KINDS
    from whistlestop.wire.mistakes import nearest

    kinds = [word.strip() for each in on or () for word in each.split(",") if word.strip()] or None
    for word in kinds or ():
        if word not in KINDS:
            hint = nearest(word, KINDS) or ", ".join(KINDS)
            raise Usage(f"{word!r} is nothing that an alert tells of.", hint=hint)
    where = sys.stdin.readline().strip() if address == "-" else address
    with connect() as client:
        made = client.add_receiver(name, where, project=project, only_named=only_named, on=kinds)
    if as_json:
        print_json(made)
        return
    say(f"Receiver {made.name} is told of {', '.join(made.on)}. Try it out: whistle alerts test {made.name}")
    if made.secret:
        say(made.secret)
        aside("Its webhooks are signed with the secret above. It is not shown again.")


@app.command("ls")
def ls(as_json: Json = False) -> None:
    """List the receivers, and how they do."""
    from whistlestop.cli.failures import printable
    from whistlestop.cli.output import print_json, say, show, table

    with connect() as client:
        found = client.receivers()
    if as_json:
        print_json(found)
        return
    if not found:
        say("Nobody is told of anything. Add a receiver: whistle alerts add NAME URL")
        return
    made = table("name", "address", "of", "told of", "waiting", "standing", right=("waiting",))
    for each in found:
        runs = "runs that name it" if each.only_named else "all projects" if each.project is None else each.project
        row = (each.name, each.address, runs, _kinds(each.on), str(each.waiting), _standing(each))
        made.add_row(*(printable(word) for word in row))
    show(made)


@app.command("rm")
def rm(name: Name, as_json: Json = False) -> None:
    """Remove a receiver. What it has not taken yet is dropped."""
    from whistlestop.cli.output import print_json, say

    with connect() as client:
        client.remove_receiver(name)
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        say(f"Receiver {name} is removed.")


@app.command("test")
def try_out(
    name: Name,
    wait: Annotated[float, typer.Option("--wait", help="Seconds until it should have taken it.")] = 20.0,
    as_json: Json = False,
) -> None:
    """Send a receiver an alert that says that it is a test. Exit code 1: it has not taken it."""
    from whistlestop.cli.output import print_json, say

    with connect() as client:
        sent, deadline = client.test_receiver(name), time.monotonic() + wait
        while sent.state == "waiting" and time.monotonic() < deadline:
            time.sleep(0.1)
            sent = next(iter(client.deliveries(delivery=sent.id)), sent)
            if sent.tries or (sent.behind and _fails(client.deliveries(receiver=name, state="waiting"))):
                break
    if as_json:
        print_json(sent)
    else:
        say(f"Receiver {name} has taken it." if sent.state == "sent" else f"Not taken: {_why(sent)}")
    if sent.state != "sent":
        raise typer.Exit(1)


@app.command("log")
def log(
    receiver: Annotated[str | None, typer.Option("--to", metavar="NAME", help="Of this receiver alone.")] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Of this run alone.")] = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only those that nobody has taken yet.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000)] = 30,
    as_json: Json = False,
) -> None:
    """Show what was sent, what waits, and why. The newest is the last."""
    from whistlestop.cli import words
    from whistlestop.cli.failures import printable
    from whistlestop.cli.output import print_json, say, show, table

    with connect() as client:
        found = client.deliveries(receiver=receiver, run=run, state="waiting" if waiting else None, limit=limit)
    if as_json:
        print_json(found)
        return
    if not found:
        say("No alert was sent, and none waits.")
        return
    made = table("when", "to", "kind", "what", "tries", "standing", right=("tries",))
    for each in reversed(found):
        row = (each.receiver, each.kind, each.title, str(each.tries), _became(each))
        made.add_row(words.local_time(each.created_at), *(printable(word) for word in row))
    show(made)


def _kinds(on: list[str]) -> str:
    from whistlestop.domain.alerts import DEFAULT, KINDS

    if set(on) >= set(DEFAULT):
        return "everything" if set(on) == set(KINDS) else "all but killed"
    return ", ".join(on)


def _standing(receiver: object) -> str:
    from whistlestop.cli import words
    from whistlestop.wire.alerts import ReceiverView

    assert isinstance(receiver, ReceiverView)
    if receiver.failing_since:
        again = f", tried again at {words.local_time(receiver.next_at, date=False)}" if receiver.next_at else ""
        return f"failing since {words.local_time(receiver.failing_since)}: {receiver.error}{again}"
    return f"took one at {words.local_time(receiver.sent_at)}" if receiver.sent_at else "nothing was sent yet"


def _fails(waiting: "list[DeliveryView]") -> bool:
    return any(each.error for each in waiting)


def _became(delivery: "DeliveryView") -> str:
    from whistlestop.cli import words

    if delivery.state == "sent":
        return f"taken at {words.local_time(delivery.ended_at, date=False)}"
    return f"given up: {delivery.error}" if delivery.state == "given_up" else f"waits: {_why(delivery)}"


def _why(delivery: "DeliveryView") -> str:
    if delivery.behind:
        return f"{delivery.behind} before it {'were' if delivery.behind > 1 else 'was'} not taken yet"
    return f"{delivery.error}; it is tried again" if delivery.error else "it is being sent"
