"""Whether a spec can ever run on the pools that there are: judged at submit, so that nothing waits for ever."""

import difflib
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.errors import NeverFits, Problem, SpecInvalid
from whistlestop.server.services import demands, views
from whistlestop.server.store import pools
from whistlestop.wire.spec import PhaseSpec, Spec

Row = sa.Row[Any]


def check(connection: sa.Connection, spec: Spec) -> None:
    """A pool that is small or away now does not refuse what it could hold when it was larger, nor what names it."""
    rows = {row.name: row for row in pools.all_pools(connection)}
    _check_names(spec, list(rows))
    there = views.pool_facts(connection, [])
    for phase in spec.phases:
        wants = demands.asked(phase).wants
        usable = [rows[pool.name] for pool in there if wants.allow(pool)]
        if not usable:
            raise NeverFits(
                f"phase {phase.name} asks for {_asked(phase)}, and no pool is like that",
                hint="whistle pools shows them",
            )
        if phase.capacity.pools and any(row.slots == 0 for row in usable):
            continue
        if phase.all_slots <= max(_has(row) for row in usable):
            continue
        largest = max(_could_have(connection, row) for row in usable)
        if phase.all_slots > largest:
            which = "the largest pool" if len(usable) == len(rows) else "the largest pool that it may use"
            one = " on one host" if any(row.hosts for row in usable) else ""
            raise NeverFits(
                f"phase {phase.name} asks for {phase.all_slots} slots; {which} has {largest}{one}",
                hint="ask for fewer slots, or make a pool larger: whistle pools; whistle up --slots N",
            )


def _check_names(spec: Spec, known: list[str]) -> None:
    problems = []
    for phase in spec.phases:
        for name in phase.capacity.pools:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"pools: {', '.join(known) or 'none yet'}"
                problems.append(Problem("capacity.pools", f"phase {phase.name}: there is no pool {name}", hint=hint))
    if problems:
        raise SpecInvalid(
            f"the spec names a pool that this server does not have: {problems[0].text}",
            hint=problems[0].hint,
            problems=problems,
        )


def _has(row: Row) -> int:
    """Slots of its largest host, or of all of it; also where some of them are away."""
    return max(int(host["slots"]) for host in row.hosts) if row.hosts else int(row.slots)


def _could_have(connection: sa.Connection, row: Row) -> int:
    """The same, as it is or as it has been."""
    if row.hosts:
        return _has(row)
    return max(_has(row), *(int(size.slots) for size in pools.sizes(connection, row.name)), 0)


def _asked(phase: PhaseSpec) -> str:
    capacity = phase.capacity
    words = [f"class {capacity.kind}"] if capacity.kind else []
    words += [f"region {capacity.region}"] if capacity.region else []
    words += [f"market {capacity.market}"] if capacity.market != "any" else []
    words += [f"pool {' or '.join(capacity.pools)}"] if capacity.pools else []
    return ", ".join(words) or "a pool"
