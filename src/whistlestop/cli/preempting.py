"""What `whistle preempt` is about: which run or host, what it will cost, and what it has cost."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from whistlestop.cli import words
from whistlestop.cli.choosing import ask, count
from whistlestop.cli.failures import Usage
from whistlestop.cli.output import aside, print_json, say
from whistlestop.cli.verbs import sentence
from whistlestop.domain.errors import NotFound

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.client.recovery import Recovery
    from whistlestop.wire.api import AttemptView, PhaseView, RunView

Live = tuple["RunView", "PhaseView", "AttemptView"]


def preempt_target(
    client: "Client", target: str, notice: str, *, wait: bool, yes: bool, note: str, as_json: bool
) -> int:
    seconds = seconds_of(notice, "--notice")
    run, place = _find(client, target)
    chosen = [run] if run is not None else _on(client, *place)
    lives = [live for each in chosen for live in living(each) if run is not None or _is_at(live[2], place)]
    what = count([run]) if run is not None else f"everything on host {'/'.join(place)}"
    ask(chosen, f"This takes the capacity of {what} back. Are you sure?", yes=yes, verb="preempt", ends=False,
        stakes=lambda: [line for live in lives for line in stakes(*live, seconds)])  # fmt: skip
    if run is not None:
        done = client.preempt(run.id, notice_s=seconds, attempts=[live[2].number for live in lives], note=note)
        told: dict[str, Any] = done.model_dump(mode="json")
        lines = [done.text]
    else:
        bulk = client.preempt_host(*place, notice_s=seconds, note=note)
        told = bulk.model_dump(mode="json")
        lines = [item.text for item in bulk.items] or [f"nothing runs on host {'/'.join(place)}"]
    if not as_json:
        for line in lines:
            say(sentence(line))
    found = _wait(client, lives, as_json) if wait else []
    if as_json:
        print_json({**told, "recoveries": [asdict(each) for each in found]} if wait else told)
    return 0 if all(each.recovered for each in found) else 1


def living(run: "RunView") -> list[Live]:
    return [
        (run, phase, phase.attempts[-1])
        for phase in run.phases
        if phase.attempts and phase.attempts[-1].status == "started"
    ]


def stakes(run: "RunView", phase: "PhaseView", attempt: "AttemptView", notice: float) -> list[str]:
    """What this costs, as far as it can be told."""
    where = f"  {words.name(run)}, phase {phase.name} on {attempt.pool}: "
    if phase.kind == "task":
        return [f"{where}a task can't save; it starts again from its beginning"]
    if phase.at_risk is None:
        return [f"{where}it has not trained yet"]
    risk = phase.at_risk
    since = f"since the checkpoint at step {risk.step:,}" if risk.step is not None else "all of it: nothing is saved"
    work = f"{risk.steps:,} step{'s' if risk.steps != 1 else ''}, {words.length(risk.seconds)} ({since})"
    if not notice:
        return [f"{where}done again: {work}"]
    return [f"{where}it has {words.length(notice)} to save; done again if that does not suffice: {work}"]


def recovery_line(run: "RunView", found: "Recovery") -> str:
    """Run #3 (x) trains again after 2.1 s, on pool b: from step 40, 1 step (0.1 s) done again."""
    if found.recovered and found.next_attempt is None:
        return f"Run {words.name(run)}: phase {found.phase} was done before it had to leave."
    if not found.recovered:
        return f"Run {words.name(run)} does not train again: it is {found.status} ({found.reason})."
    if any(phase.name == found.phase and phase.kind == "task" for phase in run.phases):
        return (
            f"Run {words.name(run)}: task {found.phase} runs again after {found.seconds:.1f} s, "
            f"in pool {found.next_pool}, from its beginning."
        )
    begun = f"from step {found.resumed_from:,}" if found.resumed_from is not None else "from the start"
    redone = f"{found.redone:,} step{'s' if found.redone != 1 else ''} done again"
    took = f" ({found.redone_s:.1f} s)" if found.redone else ""
    return (
        f"Run {words.name(run)} trains again after {found.seconds:.1f} s, "
        f"in pool {found.next_pool}, {begun}: {redone}{took}."
    )


def seconds_of(text: str, option: str) -> float:
    from whistlestop.wire.durations import parse_duration
    from whistlestop.wire.rehearsal import LONGEST_NOTICE

    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as error:
        raise Usage(f"{option} {text}: {error}.") from None
    if seconds > LONGEST_NOTICE:
        raise Usage(f"{option} is an hour at most.")
    return seconds


def _find(client: "Client", target: str) -> tuple["RunView | None", tuple[str, str]]:
    """A run, or pool and name of a host."""
    pool, slash, host = target.partition("/")
    if slash:
        return None, (pool, host)
    try:
        return client.run(target), ("", "")
    except NotFound:
        named = {(live[2].pool, target) for run in _active(client) for live in living(run) if live[2].host == target}
        if not named:
            raise NotFound(
                f"there is no run {target}, and nothing runs on a host of that name",
                hint="whistle ls shows runs, whistle hosts hosts; a host of a pool is POOL/HOST",
            ) from None
    if len(named) > 1:
        pools = " and ".join(sorted(pool for pool, _ in named))
        raise Usage(f"Host {target} is in pools {pools}.", hint=f"say which one: POOL/{target}")
    return None, named.pop()


def _active(client: "Client") -> list["RunView"]:
    return list(client.all_runs(status=["starting", "running"]))


def _on(client: "Client", pool: str, host: str) -> list["RunView"]:
    return [run for run in _active(client) if any(_is_at(live[2], (pool, host)) for live in living(run))]


def _is_at(attempt: "AttemptView", place: tuple[str, str]) -> bool:
    return (attempt.pool, attempt.host) == place


def _wait(client: "Client", lives: Sequence[Live], as_json: bool) -> list["Recovery"]:
    import time

    from whistlestop.client.recovery import wait_for_recovery

    began, found = time.monotonic(), []
    for run, phase, attempt in lives:
        try:
            found.append(wait_for_recovery(client, run.id, phase.name, attempt.number, since=began))
        except KeyboardInterrupt:
            aside("\nwhistle: left. It goes on by itself; see: whistle ls")
            raise
        if not as_json:
            say(recovery_line(run, found[-1]))
    return found
