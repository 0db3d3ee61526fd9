"""A drill at the terminal: the question before it, a line for every loss, and the table at its end."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from whistlestop.cli import following, words
from whistlestop.cli.choosing import ask
from whistlestop.cli.existing import check_phase
from whistlestop.cli.failures import Usage
from whistlestop.cli.output import aside, print_json, say, show, table
from whistlestop.cli.preempting import living, seconds_of, stakes
from whistlestop.client.drilling import FAULTS, Drill, Name, Outcome, chosen

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.api import RunView

ENDS: tuple[Name, ...] = ("program", "host", "preempt")


def run_drill(
    client: "Client",
    run: str,
    only: list[str],
    phase: str | None,
    lasts: str,
    notice: str,
    timeout: str,
    *,
    yes: bool,
    as_json: bool,
) -> int:
    faults = _faults(only)
    seconds, warning, within = (
        seconds_of(lasts, "--lasts"), seconds_of(notice, "--notice"), seconds_of(timeout, "--timeout"),
    )  # fmt: skip
    view = client.run(run)
    check_phase(client, view.id, phase)
    drill = Drill(client, view.id, phase=phase, seconds=seconds, notice=warning, within=within)
    ends = sum(fault in ENDS for fault in faults)
    many = "1 loss is" if len(faults) == 1 else f"{len(faults)} losses, one after another, are"
    ask([view], f"{many} inflicted on run {words.name(view)}. Are you sure?", yes=yes, verb="drill", ends=False,
        stakes=lambda: _stakes(view, drill.phase, faults, ends))  # fmt: skip
    done: list[Outcome] = []
    try:
        if drill.prepare():
            _tell("nothing was saved yet: it saved first", as_json)
        for fault in faults:
            _tell(f"{FAULTS[fault]} …", as_json)
            done.append(drill.inflict(fault))
    except KeyboardInterrupt:
        aside("\nwhistle: left. The run goes on and recovers by itself.")
        return following.DETACHED
    finally:
        report(view, done, as_json=as_json)
    return 1 if any(each.wrong for each in done) else 0


def report(view: "RunView", done: Sequence[Outcome], *, as_json: bool) -> None:
    if as_json:
        print_json({"run": view.id, "number": view.number, "losses": [asdict(each) for each in done]})
        return
    if not done:
        return
    made = table("loss", "over after", "done again", "verdict", right=("over after", "done again"))
    for each in done:
        again = f"{each.redone:,} step{'s' if each.redone != 1 else ''}, {each.redone_s:.1f} s" if each.redone else "–"
        made.add_row(FAULTS[each.fault], f"{each.seconds:.1f} s", again, "WRONG" if each.wrong else "fine")
    show(made)
    say("")
    for each in done:
        say(f"{FAULTS[each.fault]}: {each.text}")
        for text in (*each.warnings, *each.wrong):
            say(f"  ! {text}")
    lost, longest = sum(each.redone for each in done), max(each.seconds for each in done)
    say(f"In all {lost:,} step{'s' if lost != 1 else ''} done again; the longest took {longest:.1f} s.")


def _faults(only: list[str]) -> list[Name]:
    named = [name for words in only for name in words.split(",") if name]
    try:
        return chosen(named)
    except ValueError as error:
        from whistlestop.wire.mistakes import nearest

        name = str(error)
        raise Usage(
            f"{name!r} can't be rehearsed.", hint=nearest(name, list(FAULTS)) or f"one of: {', '.join(FAULTS)}"
        ) from None


def _stakes(view: "RunView", phase: str, faults: Sequence[Name], ends: int) -> list[str]:
    """Every one that ends an attempt costs so much again."""
    lines = [f"  losses: {'; '.join(FAULTS[fault] for fault in faults)}"]
    if not ends:
        return [*lines, "  its attempt survives all of them"]
    for live in living(view):
        if live[1].name == phase:
            risk = live[1].at_risk
            lines += ["  nothing is saved yet: it saves first"] if risk and risk.step is None else stakes(*live, 0.0)
    ending = "ends its attempt: that costs" if ends == 1 else "end its attempt: each costs"
    return [*lines, f"  {ends} of them {ending} a restart, and the work since the newest checkpoint"]


def _tell(text: str, as_json: bool) -> None:
    if not as_json:
        aside(f"whistle: {text}")
