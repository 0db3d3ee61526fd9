"""`whistle checkpoints`: what a run could go on from, and what can be done with it."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whistlestop.cli.options import Json, Run, command, connect

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.client.checkpoints import Fetched
    from whistlestop.wire.api import CheckpointView
    from whistlestop.wire.checkpoints import CheckpointDetail, Verified

app = command()
ACTIONS = ("ls", "get", "verify", "pin", "unpin", "rm", "restore", "diff")
_ID = re.compile(r"c-[0-9a-z]{6,}")


@app.command()
def checkpoints(
    run: Run,
    action: Annotated[str, typer.Argument(metavar="[ACTION]", help=f"One of: {', '.join(ACTIONS)}.")] = "ls",
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]... [DIR]", help="Which one, by its id; for get: and where to; for diff: two."),
    ] = None,
    step: Annotated[int | None, typer.Option(help="Which one, by its step. [default: the newest]", min=0)] = None,
    phase: Annotated[str | None, typer.Option(help="Of this phase alone.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="rm: also the newest, the best and a pinned one; never one in use.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List, fetch, verify, pin, remove, bring back and compare the checkpoints of a run."""
    from whistlestop.cli.failures import Usage
    from whistlestop.wire.mistakes import nearest

    given = words or []
    if action not in ACTIONS:
        hint = nearest(action, ACTIONS) or f"one of: {', '.join(ACTIONS)}"
        raise Usage(f"{action!r} can't be done with checkpoints.", hint=hint)
    if force and action != "rm":
        raise Usage("--force is for rm alone.")
    most = {"ls": 0, "get": 2, "diff": 2}.get(action, 1)
    if len(given) > most:
        raise Usage(f"{given[most]!r} is too much for {action}.", hint=f"whistle checkpoints {run} {action}")
    with connect() as client:
        match action:
            case "ls":
                _ls(client, run, phase, step, as_json=as_json)
            case "get":
                _get(client, run, given, step, phase, as_json=as_json)
            case "diff":
                _diff(client, run, given, phase, as_json=as_json)
            case "verify":
                _verify(client, run, _chosen(client, run, given, step, phase), as_json=as_json)
            case _:
                if action == "rm" and not given and step is None:
                    raise Usage("Which one?", hint=f"whistle checkpoints {run} rm --step N")
                _change(client, run, action, given, step, phase, force=force, as_json=as_json)


def _chosen(
    client: "Client", run: str, given: list[str], step: int | None, phase: str | None, *, trashed: bool = False
) -> "CheckpointView":
    from whistlestop.cli.failures import Usage
    from whistlestop.client.checkpoints import choose

    if given and step is not None:
        raise Usage("Give either an id or --step.")
    found = client.checkpoints(run, trashed=True)
    if not given:  # an id is meant, whatever became of it
        found = [each for each in found if (each.trashed_until is not None) == trashed]
    return choose(found, name=given[0] if given else None, step=step, phase=phase)


def _ls(client: "Client", run: str, phase: str | None, step: int | None, *, as_json: bool) -> None:
    from whistlestop.cli.checkpoints_view import checkpoints_table, risk_lines, saving_lines
    from whistlestop.cli.output import print_json, say, show

    found = client.checkpoints(run, trashed=True)
    found = [each for each in found if phase in (None, each.phase) and step in (None, each.step)]
    if as_json:
        print_json(found)
        return
    if found:
        show(checkpoints_table(found))
    else:
        say("No committed checkpoint.")
    for line in (*risk_lines(client.run(run)), *saving_lines(client.saving(run))):
        say(line)


def _get(client: "Client", run: str, given: list[str], step: int | None, phase: str | None, *, as_json: bool) -> None:
    from whistlestop.cli.failures import Usage
    from whistlestop.cli.output import print_json, say
    from whistlestop.cli.words import size

    ids = given[:-1] if len(given) == 2 else [word for word in given if _ID.fullmatch(word)]
    into = next((word for word in given if word not in ids), None)
    if into is None:
        raise Usage("Where to?", hint=f"whistle checkpoints {run} get DIR")
    chosen = client.checkpoint(run, _chosen(client, run, ids, step, phase).id)
    fetched = _download(client, run, chosen, Path(into), quiet=as_json)
    if as_json:
        print_json({"checkpoint": chosen.model_dump(), "directory": str(Path(into).absolute()), **asdict(fetched)})
        return
    there = f", {fetched.skipped} of them were there already" if fetched.skipped else ""
    say(
        f"Step {chosen.step:,} of phase {chosen.phase} is in {into}: {fetched.files} files, {size(chosen.bytes)}, "
        f"every hash compared{there}."
    )


def _download(client: "Client", run: str, chosen: "CheckpointDetail", into: Path, *, quiet: bool) -> "Fetched":
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from whistlestop.client.checkpoints import download

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(True), TransferSpeedColumn())
    screen = Console(stderr=True)
    with Progress(
        *columns, TimeRemainingColumn(), console=screen, transient=True, disable=quiet or not screen.is_terminal
    ) as bar:
        task = bar.add_task(f"step {chosen.step:,}", total=chosen.bytes)
        return download(client, run, chosen, into, progress=lambda count: bar.advance(task, count))


def _verify(client: "Client", run: str, chosen: "CheckpointView", *, as_json: bool) -> None:
    from whistlestop.cli.output import aside, print_json, say
    from whistlestop.cli.verbs import sentence
    from whistlestop.cli.words import length

    def told(said: "Verified") -> None:
        if not as_json:
            aside(f"whistle: still reading, {length(said.seconds)} so far")

    said = client.verify_checkpoint(run, chosen.id, told=told)
    if as_json:
        print_json(said)
    else:
        say(sentence(said.text))
    if said.intact is not True:
        raise typer.Exit(1)


def _change(
    client: "Client",
    run: str,
    action: str,
    given: list[str],
    step: int | None,
    phase: str | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    from whistlestop.cli.output import print_json, say
    from whistlestop.cli.verbs import sentence

    chosen = _chosen(client, run, given, step, phase, trashed=action == "restore")
    if action == "rm":
        done = client.remove_checkpoint(run, chosen.id, force=force)
    elif action == "restore":
        done = client.restore_checkpoint(run, chosen.id)
    else:
        done = client.pin_checkpoint(run, chosen.id, pinned=action == "pin")
    if as_json:
        print_json(done)
    else:
        say(sentence(done.text))


def _diff(client: "Client", run: str, given: list[str], phase: str | None, *, as_json: bool) -> None:
    from whistlestop.cli.checkpoints_view import difference
    from whistlestop.cli.failures import Usage
    from whistlestop.cli.output import print_json, show
    from whistlestop.client.checkpoints import choose, compare

    if len(given) == 1:
        raise Usage("Compare it with which?", hint=f"whistle checkpoints {run} diff STEP STEP")
    found = client.checkpoints(run)
    if given:
        numbers = [int(word) if word.isascii() and word.isdigit() and len(word) < 19 else None for word in given]
        pair = [
            choose(found, name=None if number is not None else word, step=number, phase=phase)
            for word, number in zip(given, numbers, strict=True)
        ]
    else:
        known = [each for each in found if phase in (None, each.phase)]
        if len(known) < 2:
            raise Usage("There are not two to compare.", hint=f"whistle checkpoints {run} ls")
        pair = [known[1], known[0]]
    first, second = (client.checkpoint(run, each.id) for each in pair)
    made = compare(first, second)
    if as_json:
        brief = [each.model_dump(exclude={"files"}) for each in (first, second)]
        print_json({"first": brief[0], "second": brief[1], "same": made.same, **asdict(made)})
    else:
        show(*difference(first, second, made))
