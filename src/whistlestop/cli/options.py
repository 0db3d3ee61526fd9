"""Options that several commands share, and how they reach the server."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from whistlestop.client import Client

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="Id, #number or unique name.")]
Runs = Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="Ids, #numbers or unique names.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change the spec: phases.0.env.LR=0.1. May be repeated."),
]
Note = Annotated[str, typer.Option("--note", help="Why. Kept with the run and searchable.")]
Force = Annotated[bool, typer.Option("--force", help="Also if the project's budget can't pay for it.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Status = Annotated[list[str] | None, typer.Option("--status", help="Only runs with this status. May be repeated.")]
Project = Annotated[str | None, typer.Option("--project", help="Only runs of this project.")]
Search = Annotated[str | None, typer.Option("--search", help="Only runs with this text in name or note.")]

STATUSES = ("queued", "starting", "running", "waiting", "completed", "failed", "killed")


def command(**settings: object) -> typer.Typer:
    """The app of a module that is one command."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, **settings)  # type: ignore[arg-type]


def connect() -> "Client":
    from whistlestop.client.client import Client

    return Client()


def at_terminal() -> bool:
    """Somebody is there who can answer a question."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def checked_statuses(status: list[str] | None) -> list[str]:
    from whistlestop.cli.failures import Usage
    from whistlestop.wire.mistakes import nearest

    words = [word for item in status or [] for word in item.split(",") if word]
    for word in words:
        if word not in STATUSES:
            hint = nearest(word, STATUSES) or f"one of: {', '.join(STATUSES)}"
            raise Usage(f"{word!r} is not a status.", hint=hint)
    return words
