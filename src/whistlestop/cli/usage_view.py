"""Where the credits went, as tables and sentences."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from whistlestop.cli import words
from whistlestop.cli.failures import printable
from whistlestop.cli.output import say, show, table

if TYPE_CHECKING:
    from whistlestop.wire.usage import BudgetView, ComparisonView, SpentView, UsageView

# A letter as well as a place: a pipe carries no colours.
LETTERS = {"starting": "░", "productive": "█", "redone": "R", "saving": "▒", "stalled": "!", "stopping": "·"}
WIDTH = 24
LEAST = 0.005  # credits; less is not worth a word


def show_usage(found: "UsageView") -> None:
    total = found.total
    whose = f" of project {found.project}" if found.project else ""
    since = words.local_time(found.since)[:16]
    hours = f"{words.hours(total.slot_hours)} of slot time"
    say(f"{words.amount(total.credits)} credits{whose} since {since}, {hours}{_lost(total)}")
    if found.groups:
        say("")
        _groups(found)
        if found.by != "kind":
            say("")
            say("  ".join(f"{letter} {kind}" for kind, letter in LETTERS.items()))
    if found.left_off:
        say(f"{found.left_off} more are in the sum; see them with --limit")
    if found.comparison.hours:
        say("")
        say(comparison_line(found.comparison))
    if found.budgets:
        say("")
        for budget in found.budgets:
            say(budget_line(budget))


def bar(kinds: Mapping[Any, float], width: int = WIDTH) -> str:
    """░████████R▒: each kind by its share; one that is there has a letter, if it can be had."""
    whole = sum(kinds.values())
    if whole <= 0:
        return ""
    shares = {kind: kinds.get(kind, 0.0) / whole * width for kind in LETTERS if kinds.get(kind, 0.0) > 0}
    counts = {kind: max(1, int(share)) for kind, share in shares.items()}
    while sum(counts.values()) != width:  # rounding is settled with the one that it hurts least
        step = 1 if sum(counts.values()) < width else -1
        kind = max(shares, key=lambda kind: step * (shares[kind] - counts[kind]))
        counts[kind] += step
    return "".join(LETTERS[kind] * count for kind, count in counts.items())


def kinds_line(kinds: Mapping[str, float]) -> str:
    """1.20 productive, 0.10 starting, 0.05 redone: the dearest first; nothing that would read <0.01."""
    known = sorted(((credits, kind) for kind, credits in kinds.items() if credits >= LEAST), reverse=True)
    return ", ".join(f"{words.amount(credits)} {kind}" for credits, kind in known)


def budget_line(budget: "BudgetView") -> str:
    lasts = f"; at the pace of now it lasts {words.length(budget.lasts_s)}" if budget.lasts_s is not None else ""
    used = f"{words.amount(budget.spent + budget.running)} used since {words.local_time(budget.since)[:16]}"
    left = f"{words.amount(max(0.0, budget.balance))} of {words.amount(budget.credits)} credits left"
    return f"Project {budget.project}: {left}, {used}{lasts}"


def comparison_line(told: "ComparisonView") -> str:
    parts = [f"{words.amount(told.on_demand)} on demand alone"] if told.on_demand is not None else []
    parts += [f"{words.amount(told.spot)} on spot if nothing were ever lost"] if told.spot is not None else []
    would = f". At the prices of today it would be {', '.join(parts)}" if parts else ""
    spot = f", {told.spot_share:.0%} of it on spot," if told.spot_share else ""
    gone = (
        f". {words.hours(told.unpriced_hours)} on pools that are gone are left out" if told.unpriced_hours > 0 else ""
    )
    cost = f"{words.amount(told.cost)}, starts, saves and losses included"
    return f"{words.hours(told.hours)} of productive slot time{spot} cost {cost}{would}{gone}."


def _groups(found: "UsageView") -> None:
    if found.by == "kind":
        _kinds(found)
        return
    runs = ("#",) if found.by == "run" else ()
    numbers = (*runs, "credits", "slot time", "queued", "redone", "wasted")
    made = table(*runs, found.by, "credits", "slot time", "kinds of time", "redone", "wasted", "queued", right=numbers)
    for group in found.groups:
        made.add_row(
            *([str(group.number)] if found.by == "run" else []),
            printable(group.name) or "–",
            words.amount(group.credits),
            words.hours(group.slot_hours),
            bar(group.kinds),
            _share(group.redone),
            _share(group.wasted),
            words.hours(group.hours.get("queued", 0.0)),
        )
    show(made)


def _kinds(found: "UsageView") -> None:
    made = table("kind", "credits", "slot time", "share", "", right=("credits", "slot time", "share"))
    for group in found.groups:
        share = group.credits / (found.total.credits or 1.0)
        hours = sum(group.hours.values())
        made.add_row(
            group.name, words.amount(group.credits), words.hours(hours), _share(share), words.bar(share, WIDTH)
        )
    show(made)


def _lost(total: "SpentView") -> str:
    return f"; {total.redone:.1%} for work done again, {total.wasted:.1%} wasted in all" if total.credits else ""


def _share(share: float) -> str:
    return f"{share:.1%}" if share else "–"
