"""`whistle doctor`: is this machine fit; and with --resume, does a script come to the same result after a pause."""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from whistlestop.cli.options import Json, command

if TYPE_CHECKING:
    from whistlestop.runner.rehearsal import Report

app = command()


@app.command()
def doctor(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SCRIPT]...", help="A .py file, or a command after --; its options after --, too."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Rehearse a pause and a resume of SCRIPT.")] = False,
    steps: Annotated[int, typer.Option(min=2, help="Steps to rehearse.")] = 20,
    at: Annotated[
        list[int] | None, typer.Option(help="Interrupt here. May be repeated. [default: somewhere in the middle]")
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="A leaf that does not count, as trainer/*_time. May be repeated."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for each of the three or four processes.")] = 1800,
    as_json: Json = False,
) -> None:
    """Look at this machine; with --resume, rehearse whether SCRIPT resumes exactly. Needs no server."""
    from whistlestop.cli.failures import Usage

    if resume:
        raise typer.Exit(_rehearse(words or [], steps, at or [], ignore or [], timeout, as_json=as_json))
    if words:
        raise Usage("A script is only looked at with --resume.", hint=f"whistle doctor --resume {words[0]}")
    raise typer.Exit(_look(as_json=as_json))


def _rehearse(
    words: Sequence[str], steps: int, at: Sequence[int], ignore: Sequence[str], timeout: float, *, as_json: bool
) -> int:
    from whistlestop.cli.output import aside, print_json, say
    from whistlestop.runner.rehearsal import rehearse

    def tell(text: str) -> None:
        if not as_json:
            aside(f"whistle: {text}")

    chosen = command_of(words)
    # As Ctrl-C does: what was started is ended on the way out.
    before = [(number, signal.signal(number, _leave)) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        report = rehearse(chosen, steps=steps, at=at, ignore=ignore, timeout=timeout, say=tell)
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    if as_json:
        print_json(as_values(report))
    else:
        say(report.text)
    return 0 if report.same else 1


def _leave(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def command_of(words: Sequence[str]) -> list[str]:
    """A .py file is run by this Python; anything else is a command."""
    from whistlestop.cli.failures import Usage

    if not words:
        raise Usage("Which script?", hint="whistle doctor --resume train.py")
    if not words[0].endswith(".py"):
        return list(words)
    if not Path(words[0]).is_file():
        raise Usage(f"There is no file {words[0]}.", hint="name the script, or a command after --")
    return [sys.executable, *words]


def as_values(report: "Report") -> dict[str, Any]:
    return {
        "same": report.same,
        "steps": report.steps,
        "at": list(report.at),
        "problem": report.problem or None,
        "parts": report.parts,
        "metrics": report.metrics,
        "varying": report.varying,
        "differences": [
            {
                "part": each.part,
                "leaf": each.leaf,
                "kind": each.kind.value,
                "step": each.step,
                "at": each.at,
                "note": each.note,
            }
            for each in report.differences
        ],
        "advice": report.advice,
        "text": report.text,
    }


def _look(*, as_json: bool) -> int:
    from whistlestop.cli.health import look
    from whistlestop.cli.output import print_json, say

    found = look()
    if as_json:
        print_json({"fit": all(each.fit is not False for each in found), "checks": [each._asdict() for each in found]})
    else:
        marks = {True: "✓", False: "✗", None: "–"}
        width = max(12, *(len(each.name) for each in found))
        for each in found:
            say(f"{marks[each.fit]} {each.name:<{width}}  {each.text}")
    return 0 if all(each.fit is not False for each in found) else 1
