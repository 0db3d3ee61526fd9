"""Scheduling decisions per second: 10,000 queued runs, 1,000 slots on 125 hosts of three pools.

    python bench/scheduling.py [--quick] [--runs 10000] [--out FILE]

First the plan alone (pure, no store). Then the whole pass over a real store (SQLite, durable writes): the queue is
read, planned, 1,000 attempts are written down and handed to an engine that does nothing. Then what a pass costs when
nothing is free, when one slot becomes free, and when slots are free but kept for a wide run at the head.
"""

import time
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
from measuring import Result, alone, scratch

from whistlestop.capacity.choose import Wants
from whistlestop.capacity.pools import Host, Pool
from whistlestop.capacity.queue import Waiting, plan
from whistlestop.domain.ids import new_id
from whistlestop.domain.states import PhaseState, RunState
from whistlestop.server.scheduler.placing import Placer
from whistlestop.server.services import runner_events
from whistlestop.server.store import phases, pools, runs, schema
from whistlestop.testing.world import World, world

SLOTS, ON_A_HOST = 1000, 8
REPEATS = 15
SHARES = {"spot-a": 400, "spot-b": 400, "local": 200}  # slots of each pool


def measure(count: int) -> Result:
    result = Result()
    pure(result, count)
    with scratch() as directory, world(Path(directory)) as here:
        fill(here, count)
        launched: list[str] = []
        placer = Placer(here.context, lambda attempt_id, token: launched.append(attempt_id))
        seconds = timed(placer.place)
        result.add("placed in the store: decisions", len(launched) / seconds, "1/s")
        result.notes["placed"] = len(launched)
        result.add_times(f"pass with nothing free, {count} queued", [timed(placer.place) for _ in range(REPEATS)])
        freed = []
        for attempt_id in launched[:REPEATS]:
            end(here, attempt_id)
            freed.append(timed(placer.place))
        result.add_times(f"pass that places one, {count} queued", freed)
        wide(here)
        for attempt_id in launched[REPEATS : REPEATS + 4]:
            end(here, attempt_id)
        blocked = [timed(placer.place) for _ in range(REPEATS)]
        result.add_times(f"pass with slots kept for a wide run, {count} queued", blocked)
    return result


def pure(result: Result, count: int) -> None:
    queue = [Waiting(f"r{index}", f"p{index}", Wants(changeover=60.0 + index % 3)) for index in range(count)]
    free = [pool(name, slots, frozenset()) for name, slots in SHARES.items()]
    full = [pool(name, slots, frozenset(range(slots))) for name, slots in SHARES.items()]
    seconds = [timed(lambda: plan(queue, free)) for _ in range(REPEATS)]
    result.add("plan alone: decisions", SLOTS / sorted(seconds)[len(seconds) // 2], "1/s")
    result.add_times(f"plan alone, {SLOTS} of {count} placed", seconds)
    result.add_times(f"plan alone, nothing free, {count} queued", [timed(lambda: plan(queue, full)) for _ in range(99)])


def pool(name: str, slots: int, taken: frozenset[int]) -> Pool:
    hosts = [Host(f"{name}-{first}", tuple(range(first, first + ON_A_HOST))) for first in range(0, slots, ON_A_HOST)]
    return Pool(name, slots, 1.0, taken, hosts=tuple(hosts))


def fill(here: World, count: int) -> None:
    """As submits leave them, without the ten minutes that they would take."""
    text = "name: queued\ncommand: 'true'\nretries: {}\n"  # not all alike: a spec is read once for each text
    with here.context.database.write() as connection:
        for name, slots in SHARES.items():
            named = [{"name": f"{name}-{first}", "slots": ON_A_HOST} for first in range(0, slots, ON_A_HOST)]
            pools.put(connection, name, at=here.now, engine="local", slots=slots, price=1.0, hosts=named)
        rows = [
            {
                "id": new_id("r"), "number": index + 1, "name": "queued", "project": "default", "priority": 0,
                "state": RunState.QUEUED, "spec": text.format(index % 7), "env": {}, "created_by": "bench",
                "created_at": here.now,
            }
            for index in range(count)
        ]  # fmt: skip
        connection.execute(sa.insert(schema.runs), rows)
        phases.insert(
            connection,
            [
                {
                    "id": f"{row['id']}.0", "run_id": row["id"], "ordinal": 0, "name": "main", "kind": "train",
                    "state": PhaseState.PENDING, "needs": [], "slots": 1, "retries": 0, "stop_reasons": [],
                    "ready_at": here.now,
                }
                for row in rows
            ],
        )  # fmt: skip


def wide(here: World) -> None:
    """At the head of the queue, and it needs a whole host."""
    run = here.submit("name: wide\ncommand: 'true'\nslots: 8\npriority: 9\n")
    with here.context.database.write() as connection:
        assert runs.get(connection, run.id).state == RunState.QUEUED


def end(here: World, attempt_id: str) -> None:
    with here.context.database.write() as connection:
        attempt = phases.attempt(connection, attempt_id)
        assert attempt is not None
        runner_events.end(connection, attempt, runner_events.EndReason.FINISHED, "done", at=here.now)
    here.context.hub.over(attempt_id)


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


if __name__ == "__main__":
    alone(measure, full=10_000, quick=1_500, doc=__doc__, what="runs")
