"""Kill and cancel: choose, ask, request, and wait for the proof."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import typer

from whistlestop.cli import following, words
from whistlestop.cli.choosing import ACTIVE, ask, choose, count
from whistlestop.cli.options import connect
from whistlestop.cli.output import print_json, say
from whistlestop.cli.verbs import sentence

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.api import BulkItem, RunView

CHUNK = 1000


def end_runs(
    verb: Literal["kill", "cancel"],
    names: list[str] | None,
    *,
    status: list[str] | None,
    project: str | None,
    search: str | None,
    everything: bool,
    yes: bool,
    note: str,
    wait: bool,
    as_json: bool,
) -> None:
    with connect() as client:
        chosen = choose(
            client, names, status=status, project=project, search=search, everything=everything, among=ACTIVE
        )
        if not chosen:
            _nothing(as_json)
            return
        goes = " Its checkpoints go, too." if verb == "cancel" else ""
        ask(chosen, f"This will permanently {verb} {count(chosen)}.{goes} Are you sure?", yes=yes, verb=verb,
            stakes=lambda: _stakes(client, chosen, verb))  # fmt: skip
        one = names is not None and len(chosen) == 1
        try:
            code = (
                _one(client, chosen[0], verb, note, wait, as_json)
                if one
                else _many(client, chosen, verb, note, wait, as_json)
            )
        except KeyboardInterrupt:
            from whistlestop.cli.output import aside

            aside(f"\nwhistle: left. The {verb} is recorded and goes on; see: whistle ls")
            raise typer.Exit(following.DETACHED) from None
    raise typer.Exit(code)


def _stakes(client: "Client", chosen: Sequence["RunView"], verb: Literal["kill", "cancel"]) -> list[str]:
    """What one run keeps and loses; of many, `whistle ls` is the better place."""
    if len(chosen) != 1:
        return []
    told = client.consequences(chosen[0].id, verb)
    return [f"  kept: {'; '.join(told.kept)}", f"  lost: {'; '.join(told.lost)}"] if told.refused is None else []


def _one(client: "Client", run: "RunView", verb: str, note: str, wait: bool, as_json: bool) -> int:
    done = client.kill(run.id, note=note) if verb == "kill" else client.cancel(run.id, note=note)
    if wait:
        after = following.wait_until_ended(client, done.run, says=f"Run {words.name(run)} is being killed …")
        done = done.model_copy(update={"run": after, "text": _ended_text(after, verb)})
    if as_json:
        print_json(done)
    else:
        say(sentence(done.text))
    return 0 if not wait or done.run.status == "killed" else 1


def _ended_text(run: "RunView", verb: str) -> str:
    if run.status != "killed":
        return f"run {words.name(run)} {run.status} before it could be killed"
    saved = f", {words.amount(run.credits.saved)} saved" if run.credits.saved is not None else ""
    goes = ", its checkpoints are discarded" if verb == "cancel" else ""
    return f"run {words.name(run)} is killed{goes}; {words.amount(run.credits.used)} credits used{saved}"


def _many(
    client: "Client", runs: Sequence["RunView"], verb: Literal["kill", "cancel"], note: str, wait: bool, as_json: bool
) -> int:
    from whistlestop.wire.api import BulkDone

    items: list[BulkItem] = []
    for at in range(0, len(runs), CHUNK):
        items += client.bulk(verb, runs=[run.id for run in runs[at : at + CHUNK]], note=note).items
    by_id = {run.id: run for run in runs}
    asked = [by_id[item.run] for item in items if item.ok and item.run in by_id]
    killed = following.wait_for_all(client, asked, says=f"{count(asked)} are being killed …") if wait and asked else 0
    if as_json:
        print_json(BulkDone(items=items))
    else:
        tell_many(items, "killed" if wait else "being killed")
    return 0 if all(item.ok for item in items) and (not wait or killed == len(asked)) else 1


def tell_many(items: Sequence["BulkItem"], word: str) -> None:
    fine = [item for item in items if item.ok]
    if fine:
        say(f"{len(fine)} run{'s are' if len(fine) > 1 else ' is'} {word}.")
    for item in items:
        if not item.ok:
            say(f"  #{item.number} ({item.name}): {item.text}")


def _nothing(as_json: bool) -> None:
    if as_json:
        print_json({"items": []})
    else:
        say("No run matches.")
