"""Staying with a run until it has ended. Leaving never harms it."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from whistlestop.cli import words
from whistlestop.cli.output import aside

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.api import RunView

DETACHED = 130


def follow_output(client: "Client", run: "RunView", *, quiet: bool = False) -> "RunView":
    """Print the program's output as it comes, until the run has ended."""
    from whistlestop.cli.log_lines import print_as_program
    from whistlestop.wire.api import LogLineView, RunView

    before = words.status(run)
    for message in client.stream(run.id, ["run"] if quiet else ["run", "logs"]):
        if message.kind == "log":
            print_as_program(LogLineView.model_validate(message.data, extra="ignore"))
        elif message.kind == "run" and not quiet:
            now = RunView.model_validate(message.data, extra="ignore")
            status = words.status(now)
            if status != before and now.status not in words.ENDED:
                aside(f"whistle: {words.name(now)} is {status}{_why(now)}")
            before = status
    return client.run(run.id)


def detached(run: "RunView") -> int:
    """What Ctrl-C does: it leaves the run alone and says how to come back."""
    aside(
        f"\nwhistle: left run {words.name(run)}; it goes on.\n"
        f"  come back:  whistle watch {run.number}   or  whistle logs -f {run.number}\n"
        f"  stop it:    whistle stop {run.number}  (keeps the result)  ·  whistle kill {run.number}  (now, for good)"
    )
    return DETACHED


def ended(run: "RunView") -> int:
    """Say how it ended. Zero only if it completed."""
    cost = f", {words.amount(run.credits.used)} credits"
    aside(f"whistle: run {words.name(run)} {_ended_word(run)} after {words.length(run.elapsed_s)}{cost}{_why(run)}")
    return exit_code(run)


def exit_code(run: "RunView") -> int:
    return 0 if run.status == "completed" else 1


def wait_until_ended(client: "Client", run: "RunView", *, says: str) -> "RunView":
    """With a spinner where somebody looks."""
    with _spinner(says):
        for _ in client.stream(run.id, ["run"]):
            pass
    return client.run(run.id)


def wait_for_all(client: "Client", runs: Sequence["RunView"], *, says: str) -> int:
    """One stream for any number of them. How many were killed."""
    left, killed = {run.id for run in runs}, 0
    with _spinner(says):
        messages = client.stream_all() if left else iter(())
        for message in messages:
            if message.data["id"] in left and message.data["status"] in words.ENDED:
                left.remove(message.data["id"])
                killed += message.data["status"] == "killed"
            if not left:
                break
    return killed


def _spinner(says: str) -> AbstractContextManager[object]:
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True, markup=False).status(says)


def _ended_word(run: "RunView") -> str:
    return {"killed": "was killed", "failed": "failed"}.get(run.status, run.status)


def _why(run: "RunView") -> str:
    if run.queue and run.status == "queued":
        return f": waits for {words.with_times(run.queue.waits_for)}"
    return f": {run.reason}" if run.reason else ""
