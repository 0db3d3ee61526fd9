"""Where the credits went, by whom, where, when and on what kind of time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whistlestop.domain.clock import iso
from whistlestop.domain.errors import BadRequest
from whistlestop.domain.ledger import DAY
from whistlestop.server.services import ingest, usage
from whistlestop.server.store import pools, runs
from whistlestop.testing.world import World, world
from whistlestop.wire.api import RunView
from whistlestop.wire.frames import Data, Progress, RunnerEvent, pack_record
from whistlestop.wire.usage import UsageView

MIDNIGHT = 20 * DAY


@pytest.fixture(params=["sqlite", "postgres"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A minute before midnight; a slot costs a credit a second here, and a tenth of it on spot."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with world(tmp_path, url) as made:
        made.now = MIDNIGHT - 60
        with made.context.database.write() as connection:
            pools.put(connection, "local", at=0, kind="gpu")
            pools.put(connection, "spot", at=0, engine="local", slots=2, price=360.0, market="spot", kind="gpu")
        yield made


def look(here: World, by: Any = "project", **more: Any) -> UsageView:
    asked: dict[str, Any] = {"project": None, "since": 0.0, "until": None, "limit": 100, **more}
    return usage.usage_view(here.context, by=by, **asked)


def start(here: World, name: str, *, project: str = "lab", pool: str = "local", workflow: str | None = None) -> RunView:
    run = here.submit(f"name: {name}\nproject: {project}\ncommand: 'true'\ncapacity: {{pools: [{pool}]}}\n")
    with here.context.database.write() as connection:
        runs.update(connection, run.id, workflow=workflow)
    here.settle()
    for kind in ("program_started", "attached", "training"):
        say(here, run, kind)
    return run


def say(here: World, run: RunView, kind: str, **data: Any) -> None:
    row = here.attempt(run.id)
    offset = ingest.offsets(here.context, row.id).get("runner", 0)
    body = pack_record(RunnerEvent(here.now, kind, kind, data))
    ingest.store(here.context, row, [Data("runner", offset, body)])


def step(here: World, run: RunView, step: int) -> None:
    said = Progress(here.now, "training", step, 1000, progress_at=here.now, loop_started_at=here.now)
    here.context.hub.progress[here.attempt(run.id).id] = said


def end(here: World, run: RunView, reason: str, last_step: int) -> None:
    say(here, run, "ended", reason=reason, last_step=last_step)
    here.settle()


def history(here: World) -> RunView:
    """Two that have ended, the second one over midnight and with work done again, and one that runs."""
    first = start(here, "first", workflow="w@1")
    here.now += 30
    end(here, first, "finished", 30)
    second = start(here, "second", pool="spot")
    here.now += 50  # 20 seconds into the next day
    end(here, second, "preempted", 50)
    for kind in ("program_started", "attached", "training"):
        say(here, second, kind)
    here.now += 100
    end(here, second, "finished", 100)
    third = start(here, "third", project="other")
    step(here, third, 0)
    here.now += 10
    step(here, third, 10)
    return third


def test_groups_add_up_to_the_total_and_what_runs_is_in_them(here: World) -> None:
    third = history(here)
    by = {kind: look(here, kind) for kind in ("project", "workflow", "run", "pool", "day", "market", "kind")}
    for kind, seen in by.items():
        assert seen.total.credits == pytest.approx(30 + 15 + 10), kind
        assert sum(group.credits for group in seen.groups) == pytest.approx(55), kind
        assert seen.total.attempts == 4
        assert seen.total.slot_hours == pytest.approx(190 / 3600)

    def credits(kind: str) -> dict[str, float]:
        return {group.key: round(group.credits, 6) for group in by[kind].groups}

    assert credits("project") == {"lab": 45.0, "other": 10.0}
    assert credits("workflow") == {"w@1": 30.0, "": 25.0}
    assert credits("pool") == {"local": 40.0, "spot": 15.0}
    assert credits("market") == {"on_demand": 40.0, "spot": 15.0}
    assert credits("day") == {"1970-01-20": 33.0, "1970-01-21": 22.0}
    assert credits("kind") == {"productive": 50.0, "redone": 5.0}
    assert [(group.number, group.name, group.credits) for group in by["run"].groups][-1] == (
        third.number,
        "third",
        pytest.approx(10.0),
    )
    second = by["run"].groups[1]
    assert (second.kinds, second.attempts) == ({"redone": pytest.approx(5.0), "productive": pytest.approx(10.0)}, 2)
    assert (second.redone, second.wasted) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert by["pool"].groups[1].market == "spot"
    assert [(day.day, round(day.credits, 6)) for day in by["kind"].days] == [("1970-01-20", 33), ("1970-01-21", 22)]


def test_only_what_lies_in_the_time_counts_and_only_the_project_that_was_asked_for(here: World) -> None:
    history(here)
    today = look(here, since=MIDNIGHT + 10.0)
    assert today.total.credits == pytest.approx(1 + 10 + 10), "of a line that had begun before only the rest"
    assert look(here, since=MIDNIGHT + 10.0, until=MIDNIGHT + 15.0).total.credits == pytest.approx(0.5)
    lab = look(here, "run", project="lab")
    assert (lab.total.credits, len(lab.groups)) == (pytest.approx(45), 2)
    cut = look(here, "run", limit=1)
    assert ([group.name for group in cut.groups], cut.left_off) == (["first"], 2)
    nobody = look(here, project="nobody")
    assert (nobody.groups, nobody.total.credits, nobody.total.attempts) == ([], 0.0, 0)
    with pytest.raises(BadRequest, match="ends before it begins"):
        look(here, since=here.now)


def test_the_mix_is_compared_with_one_market_alone(here: World) -> None:
    history(here)
    seen = look(here).comparison
    productive = (30 + 50 + 50 + 10) / 3600
    assert seen.hours == pytest.approx(productive)
    assert seen.cost == pytest.approx(55)
    assert seen.on_demand == pytest.approx(productive * 3600)
    assert seen.spot == pytest.approx(productive * 360)
    assert seen.spot_share == pytest.approx(100 / 140)
    with here.context.database.write() as connection:
        pools.remove(connection, "spot", at=here.now)
    gone = look(here).comparison
    assert (gone.spot, gone.unpriced_hours) == (None, pytest.approx(100 / 3600))
    assert (gone.cost, gone.on_demand) == (pytest.approx(40), pytest.approx(40))


def test_times_are_written_as_people_write_them() -> None:
    now = 100 * DAY
    assert usage.moment("7d", now) == 93 * DAY
    assert usage.moment("1970-01-31", now) == 30 * DAY
    assert usage.moment(iso(12.5), now) == 12.5
    assert usage.moment("all", now) == 0.0
    assert usage.moment("0001-01-01T00:00:00+02:00", now) == 0.0
    with pytest.raises(BadRequest, match="'soon' is not a time"):
        usage.moment("soon", now)
