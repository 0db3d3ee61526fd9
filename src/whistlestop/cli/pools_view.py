"""Pools and hosts as tables and sentences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from whistlestop.cli import words
from whistlestop.cli.failures import printable
from whistlestop.cli.output import say, show, table
from whistlestop.domain.credits import priced

if TYPE_CHECKING:
    from whistlestop.wire.pools import Applied, HostView, PoolView

MARKS = {"added": "+", "changed": "~", "removed": "-", "same": " "}


def show_pools(found: Sequence["PoolView"]) -> None:
    made = table(
        "pool", "on", "market", "class", "region", "hosts", "slots", "free", "price", "reclaims",
        right=("hosts", "slots", "free", "price", "reclaims"),
    )  # fmt: skip
    for pool in found:
        made.add_row(
            printable(pool.name),
            printable(pool.on),
            pool.market,
            printable(pool.kind) or "–",
            printable(pool.region) or "–",
            str(len(pool.hosts)),
            str(pool.slots) if pool.slots else "away",
            str(pool.free),
            f"{pool.price:g}",
            reclaims(pool),
        )
    show(made)


def show_pool(pool: "PoolView") -> None:
    say(line(pool))
    facts = [
        ("on", pool.on),
        ("python", pool.settings.get("python", "")),
        ("directory on its nodes", pool.settings.get("directory", "")),
        ("class", pool.kind),
        ("region", pool.region),
        ("provider", pool.provider),
        ("rank", str(pool.rank)),
        ("notices", ", ".join(f"{source} at {where}" for source, where in pool.notices.items())),
        ("devices", ", ".join(map(str, pool.devices or []))),
        (
            "taken back in the last day",
            f"{reclaims(pool)} of use" if reclaims(pool) != "–" else "nothing has ended here",
        ),
    ]
    for name, value in facts:
        if value:
            say(f"  {name}: {value}")
    hosts = table("host", "slots", "free", "", right=("slots", "free"))
    for host in pool.hosts:
        name = printable(host.name) or "(not named)"
        hosts.add_row(name, str(host.slots), str(host.free), "excluded" if host.excluded else "")
    show(hosts)
    if not pool.holders:
        return
    holders = table("slots", "#", "run", "phase", "attempt", "host", "since", right=("#", "attempt"))
    for holder in pool.holders:
        holders.add_row(
            ",".join(map(str, holder.slots)),
            str(holder.number),
            printable(holder.name),
            holder.phase,
            str(holder.attempt),
            printable(holder.host or "–"),
            words.local_time(holder.since) + (", leaving" if holder.leaves_at else ""),
        )
    show(holders)


def line(pool: "PoolView") -> str:
    """Pool spot: 4 slots (3 free), spot, at 0.3 credits per slot-hour."""
    size = f"{pool.slots} slot{'s' if pool.slots != 1 else ''} ({pool.free} free)" if pool.slots else "away"
    return f"Pool {pool.name}: {size}, {pool.market}, at {priced(pool.price)} per slot-hour."


def reclaims(pool: "PoolView") -> str:
    """3 in 12.5h: so often, in so much use"""
    return f"{pool.reclaims} in {words.hours(pool.held_hours)}" if pool.held_hours or pool.reclaims else "–"


def show_applied(done: "Applied") -> None:
    for each in done.changes:
        say(f"{MARKS[each.change]} {each.pool}: {each.text}")
    if not done.changes:
        say("The file names no pool.")
    elif not done.done:
        say("Nothing was changed: this was a dry run.")


def show_hosts(found: Sequence["HostView"]) -> None:
    numbers = ("slots", "free", "runs", "ended", "bad")
    made = table("pool", "host", *numbers, "standing", right=numbers)
    for host in found:
        made.add_row(
            printable(host.pool),
            printable(host.name),
            "–" if host.slots is None else str(host.slots),
            "–" if host.free is None or host.excluded else str(host.free),
            str(host.running),
            str(host.attempts),
            str(len(host.bad)),
            printable(standing(host)),
        )
    show(made)


def standing(host: "HostView") -> str:
    """excluded until 12:00 by anna: fan is loud"""
    if not host.excluded:
        return f"in use: {words.with_times(host.why)}" if host.why else "in use"
    until = f"until {words.local_time(host.excluded_until)}" if host.excluded_until else "until it is readmitted"
    by = f" by {host.excluded_by}" if host.excluded_by else ""
    said = host.note or ("" if host.excluded_by else words.with_times(host.why))
    return f"excluded {until}{by}" + (f": {said}" if said else "")
