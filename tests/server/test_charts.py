"""A chart of any length in one small answer, in which no spike is lost, and whose past stands still."""

import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
import sqlalchemy as sa

from whistlestop.client import Client
from whistlestop.domain.errors import WhistleError
from whistlestop.domain.ids import new_id
from whistlestop.domain.states import AttemptState, PhaseState, RunState
from whistlestop.server.services import charts, history, timeline
from whistlestop.server.services.charts import View
from whistlestop.server.store import events, metrics, phases, runs, series
from whistlestop.server.store.metrics import Points
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.world import World, world
from whistlestop.wire.charts import ChartLine

START = 1_700_000_000.0


@pytest.fixture(params=["sqlite", "postgres"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with world(tmp_path, url) as made:
        yield made


def new_run(here: World) -> str:
    run_id = new_id("r")
    with here.context.database.write() as connection:
        runs.insert(
            connection, id=run_id, name="run", project="p", priority=0, state=RunState.RUNNING, spec="", env={},
            created_by="me", created_at=1.0,
        )  # fmt: skip
        row = {"id": f"{run_id}.0", "run_id": run_id, "ordinal": 0, "name": "train", "kind": "train"}
        more = {"state": PhaseState.RUNNING, "needs": [], "slots": 1, "retries": 0, "stop_reasons": []}
        phases.insert(connection, [{**row, **more}])
    return run_id


def new_attempt(here: World, run_id: str, resumed_from: int | None = None) -> str:
    attempt_id = new_id("a")
    with here.context.database.write() as connection:
        for row in phases.live_of_run(connection, run_id):
            phases.end_attempt(connection, row.id, AttemptState.LOST, ended_at=2.0)
        phases.add_attempt(
            connection, id=attempt_id, run_id=run_id, phase_id=f"{run_id}.0", stage="running", pool="local",
            number=runs.next_attempt(connection, run_id), slots=[0], price=1.0, token_hash=new_id("h"), up=True,
            started_at=1.0, resumed_from=resumed_from,
        )  # fmt: skip
    return attempt_id


def log(
    here: World, attempt_id: str, values: np.ndarray, *, step: int = 0, record: int = 1, name: str = "loss"
) -> None:
    numbers = np.arange(len(values))
    new = Points(numbers + record, numbers + step, START + (numbers + record) * 0.25, np.asarray(values, np.float64))
    with here.context.database.write() as connection:
        metrics.append(connection, attempt_id, {name: new})


def read(here: World, run_id: str, view: View = View(), name: str = "loss") -> list[ChartLine]:
    with here.context.database.read() as connection:
        [chart] = charts.charts(connection, run_id, [name], view)
    return chart.lines


def test_of_ten_spikes_in_a_million_points_ten_are_visible_in_one_small_answer(here: World) -> None:
    run_id = new_run(here)
    attempt_id = new_attempt(here, run_id)
    values = np.random.default_rng(0).normal(size=1_000_000) * 0.01
    spikes = np.random.default_rng(1).choice(1_000_000, 10, replace=False)
    values[spikes] = 5.0 + np.arange(10)
    for start in range(0, 1_000_000, 250_000):
        log(here, attempt_id, values[start : start + 250_000], step=start, record=start + 1)
    [line] = read(here, run_id)
    assert line.high is not None
    assert set(line.high) >= set((5.0 + np.arange(10)).tolist())
    assert 300 <= len(line.x) <= 600
    assert len(msgspec.json.encode(line, enc_hook=vars)) < 40_000
    for spike, width in itertools.product(spikes[:3].tolist(), (100, 600, 2000)):
        [line] = read(here, run_id, View(start=spike - 50_000, end=spike + 50_000, width=width))
        assert line.high is not None
        place = next(index for index, x in enumerate(line.x) if x >= spike)
        assert line.high[place] == values[spike]
        assert line.x == sorted(set(line.x))
        assert len(line.x) <= width
    for names, most in ((1, 4_000), (100, 1_000)):  # who asks for many gets narrow ones
        with here.context.database.read() as connection:
            [chart] = charts.charts(connection, run_id, ["loss", *map(str, range(1, names))], View(width=4_000))
        assert most // 2 <= len(chart.lines[0].x) <= most


def test_few_points_are_shown_as_they_are(here: World) -> None:
    run_id = new_run(here)
    attempt_id = new_attempt(here, run_id)
    log(here, attempt_id, np.arange(10_000) / 8)
    [line] = read(here, run_id, View(start=5_000, end=5_499))
    assert (line.x, line.last) == (list(range(5_000, 5_500)), [step / 8 for step in range(5_000, 5_500)])
    assert (line.low, line.high) == (None, None)
    [line] = read(here, run_id, View("time", START + 100.0, START + 200.0))
    assert (line.x[0], line.x[-1], len(line.x)) == (START + 100.0, START + 200.0, 401)
    assert read(here, run_id, View(start=20_000)) == []


def test_the_past_of_a_growing_chart_stands_still_but_for_its_last_two_buckets(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        run_id = new_run(here)
        attempt_id = new_attempt(here, run_id)
        values = np.random.default_rng(2).normal(size=40_000)
        before: list[ChartLine] = []
        done, changed = 0, 0
        for size in itertools.cycle((1_000, 37, 2_500, 4_096)):
            log(here, attempt_id, values[done : done + size], step=done + 13, record=done + 1)
            done += size
            if done > 39_000:
                break
            after = read(here, run_id, View(width=500))
            if before and after[0].x[1] - after[0].x[0] == before[0].x[1] - before[0].x[0]:  # else they became wider
                old, new = before[0], after[0]
                assert new.high is not None
                kept = len(old.x) - 2
                assert (old.x[:kept], old.last[:kept]) == (new.x[:kept], new.last[:kept])
                assert (old.low or [])[:kept] == (new.low or [])[:kept]
                changed += 1
            before = after if done > 1_000 else []
        assert changed > 5


def test_what_a_later_attempt_has_replaced_is_cut_at_the_very_step(here: World) -> None:
    run_id = new_run(here)
    log(here, new_attempt(here, run_id), np.full(20_000, 1.0))
    log(here, new_attempt(here, run_id, 12_345), np.full(9_000, 2.0), step=12_345)
    log(here, new_attempt(here, run_id, 15_001), np.full(5_000, 3.0), step=15_001)
    first, tail, second, other_tail, third = read(here, run_id, View(width=200))
    assert [line.attempt for line in (first, tail, second, other_tail, third)] == [1, 1, 2, 2, 3]
    assert [line.superseded for line in (first, tail, second, other_tail, third)] == [False, True, False, True, False]
    assert (first.x[-1], second.x[-1], third.x[-1]) == (12_344, 15_000, 20_000)
    assert (tail.x[-1], other_tail.x[-1]) == (19_999, 21_344)
    assert {*first.last, *tail.last} == {1.0}
    [zoomed, cut] = read(here, run_id, View(start=12_340, end=12_349))[:2]
    assert (zoomed.x, cut.x) == ([12_340, 12_341, 12_342, 12_343, 12_344], [12_345, 12_346, 12_347, 12_348, 12_349])
    in_time = read(here, run_id, View("time", width=200))
    assert [(line.attempt, line.superseded) for line in in_time] == [
        (1, False),
        (1, True),
        (2, False),
        (2, True),
        (3, False),
    ]
    with here.context.database.read() as connection:
        [whole] = history.metrics_view(connection, run_id).series
    assert len(whole.points) == 20_001


def test_an_attempt_that_begins_anew_replaces_all_before_it(here: World) -> None:
    run_id = new_run(here)
    log(here, new_attempt(here, run_id), np.full(100, 1.0))
    new_attempt(here, run_id)
    [line] = read(here, run_id)
    assert (line.superseded, len(line.x)) == (True, 100)


def test_several_values_for_one_step_and_steps_that_go_back_make_a_line_that_goes_on(here: World) -> None:
    run_id = new_run(here)
    attempt_id = new_attempt(here, run_id)
    log(here, attempt_id, np.array([1.0, 2.0, 3.0]), step=5)
    log(here, attempt_id, np.array([10.0]), step=6, record=4)
    log(here, attempt_id, np.array([0.5]), step=1, record=5)
    [line] = read(here, run_id)
    assert (line.x, line.last) == ([1, 5, 6, 7], [0.5, 1.0, 10.0, 3.0])
    assert (line.low, line.high) == ([0.5, 1.0, 2.0, 3.0], [0.5, 1.0, 10.0, 3.0])


def test_values_that_are_not_finite_are_told_with_their_step_and_never_break_the_answer(here: World) -> None:
    run_id = new_run(here)
    attempt_id = new_attempt(here, run_id)
    values = np.ones(50_000)
    values[[7, 777, 40_001]] = [np.nan, np.inf, -np.inf]
    values[45_000:] = np.nan
    log(here, attempt_id, values)
    [line] = read(here, run_id)
    assert line.nonfinite[:4] == [(7, "nan"), (777, "inf"), (40_001, "-inf"), (45_000, "nan")]
    assert line.last[-1] is None
    assert all(math.isfinite(value) for value in line.last if value is not None)
    assert line.high is not None
    assert max(value for value in line.high if value is not None) == 1.0
    assert len(line.nonfinite) <= 100


def test_numbers_of_any_size_are_shown_with_seven_digits(here: World) -> None:
    run_id = new_run(here)
    values = np.array([0.0, -0.0, 1 / 3, 1e300, -1e-300, 5e-324, 1.7976931348623157e308, 123456789.123, -2.5])
    log(here, new_attempt(here, run_id), values)
    [line] = read(here, run_id)
    assert np.array(line.last) == pytest.approx(values, rel=1e-6)
    assert line.last[2] == 0.3333333


def test_a_counter_of_many_digits_is_not_flat_at_any_zoom(here: World) -> None:
    run_id = new_run(here)
    values = 1_234_567_890 + np.arange(10_000)
    log(here, new_attempt(here, run_id), values)
    [line] = read(here, run_id)
    assert len(set(line.last)) == len(line.last)
    [line] = read(here, run_id, View(start=500, end=502))
    assert line.last == [1_234_568_390, 1_234_568_391, 1_234_568_392]
    flat = new_run(here)
    log(here, new_attempt(here, flat), np.full(5, 1_234_567_890.123))
    assert read(here, flat)[0].last == pytest.approx([1_234_567_890.123] * 5, rel=1e-6)


def test_one_absurd_time_that_is_stored_already_does_not_cost_the_chart(here: World) -> None:
    run_id = new_run(here)
    attempt_id = new_attempt(here, run_id)
    log(here, attempt_id, np.arange(5_000))
    for record, time in enumerate((1e300, -1e308, 1.7e308), 5_001):
        mad = Points(np.array([record]), np.array([record]), np.array([time]), np.array([1.0]))
        with here.context.database.write() as connection:
            metrics.append(connection, attempt_id, {"loss": mad})
    [line] = read(here, run_id, View("time"))
    assert all(0 <= x <= 1e11 for x in line.x)
    [line] = read(here, run_id, View("time", START, START + 100.0))
    assert len(line.x) == 400
    [line] = read(here, run_id)
    assert len(line.x) <= 600


def test_the_list_of_series_and_the_newest_values_come_without_reading_a_point(here: World) -> None:
    run_id = new_run(here)
    log(here, new_attempt(here, run_id), np.array([3.0, 1.0, 2.0]))
    second = new_attempt(here, run_id, 2)
    log(here, second, np.array([4.0, np.nan]), step=2)
    log(here, second, np.array([9.0]), name="cpu")
    with here.context.database.read() as connection:
        first, other = charts.series_list(connection, run_id).series
        newest = charts.newest(connection, run_id)
    assert (first.name, other.name, other.phase, other.kind) == ("cpu", "loss", "train", "program")
    assert (other.points, other.first_step, other.last_step, other.low, other.high) == (5, 0, 3, 1.0, 4.0)
    assert (other.last, other.nonfinite) == (None, 1)
    assert (newest["train", "cpu"].value, newest["train", "cpu"].records) == (9.0, 1)
    assert (newest["train", "loss"].step, newest["train", "loss"].records) == (3, 5)
    assert math.isnan(newest["train", "loss"].value)


def preempted(here: World, attempts: int, names: int, points: int = 15) -> str:
    """A run whose every attempt went a little further than the next one began."""
    run_id = new_run(here)
    numbers = np.arange(points)
    for number in range(attempts):
        step = number * (points - 3)
        attempt_id = new_attempt(here, run_id, step or None)
        new = Points(numbers + 1, numbers + step, START + number * 100 + numbers, numbers + 100.0 * number)
        with here.context.database.write(durable=False) as connection:
            metrics.append(connection, attempt_id, {f"m{name}": new for name in range(names)})
    return run_id


@pytest.mark.parametrize("view", [View(width=4000), View(width=100), View("time", width=100), View(start=50, end=60)])
def test_a_chart_of_many_attempts_takes_a_handful_of_queries(tmp_path: Path, view: View) -> None:
    with world(tmp_path) as here:
        run_id = preempted(here, 60, 3)
        with here.context.database.read() as connection:
            asked: list[str] = []
            sa.event.listen(connection, "before_cursor_execute", lambda *words: asked.append(words[2]))
            found = charts.charts(connection, run_id, ["m0", "m1", "m2"], view)
    assert len(asked) <= 4
    for chart in found:
        current = [x for line in chart.lines if not line.superseded for x in line.x]
        assert current == sorted(current)
        if view.width == 4000:
            assert current == list(range(59 * 12 + 15))
            assert [len(line.x) for line in chart.lines if line.superseded] == [3] * 59
        if view.start == 50:
            assert current == list(range(50, 61))


def test_what_many_attempts_have_logged_is_a_row_for_each_name(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        run_id = preempted(here, 60, 3)
        log(here, new_attempt(here, run_id, 700), np.array([5.0]), step=700, name="m1")
        with here.context.database.read() as connection:
            for ask in (series.newest_of_run, series.summaries_of_run):
                assert len(ask(connection, run_id)) == 3
            assert len(series.names_of_runs(connection, [run_id])) == 3
            newest = charts.newest(connection, run_id)
            listed = charts.series_list(connection, run_id).series
            assert charts.names(connection, run_id, None) == ["m0", "m1", "m2"]
            assert charts.sparklines(connection, [run_id], 40).sparklines[run_id].name == "m0"
    assert [(each.name, each.points, each.first_step, each.last_step) for each in listed] == [
        ("m0", 900, 0, 722),
        ("m1", 901, 0, 722),
        ("m2", 900, 0, 722),
    ]
    assert (listed[1].low, listed[1].high, listed[1].last) == (0.0, 5914.0, 5.0)
    assert list(newest) == [("train", "m0"), ("train", "m1"), ("train", "m2")]
    assert (newest["train", "m0"].step, newest["train", "m0"].records) == (59 * 12 + 14, 900)
    assert (newest["train", "m1"].step, newest["train", "m1"].value, newest["train", "m1"].records) == (700, 5.0, 901)


def test_the_timeline_of_many_attempts_takes_a_handful_of_queries(here: World) -> None:
    run_id = preempted(here, 120, 1)
    with here.context.database.write() as connection:
        for number in range(1, 121):
            for step in range((number - 1) * 12, (number - 1) * 12 + (30 if number == 120 else 3)):
                events.add(connection, run_id, "evaluation", "", at=1.0, attempt=number, data={"step": step})
    with here.context.database.read() as connection:
        asked: list[str] = []
        sa.event.listen(connection, "before_cursor_execute", lambda *words: asked.append(words[2]))
        [phase] = timeline.timeline(here.context, connection, runs.get(connection, run_id)).phases
    assert len(asked) <= 15
    assert phase.evaluations[0] == 20 * 12  # of the newest hundred attempts
    assert phase.evaluations[1:4] == [241, 242, 252]
    assert phase.evaluations[-1] == 119 * 12 + 29


def test_a_short_series_is_drawn_as_it_is_when_its_chunk_has_become_full(tmp_path: Path) -> None:
    """Else the line would change all along the chunk."""
    with world(tmp_path) as here:
        values = np.random.default_rng(3).normal(size=6_000)
        drawn = []
        for count in (4_094, 4_100):
            run_id = new_run(here)
            attempt_id = new_attempt(here, run_id)
            log(here, attempt_id, values[:count])
            log(here, attempt_id, np.array([0.0]), step=9_000, record=count + 1)
            drawn.append(read(here, run_id, View(width=300))[0])
        short, full = drawn
    kept = len(short.x) - 3
    assert kept > 100
    assert (short.x[:kept], short.last[:kept]) == (full.x[:kept], full.last[:kept])
    assert (short.high or [])[:kept] == (full.high or [])[:kept]


def test_a_hundred_sparklines_take_a_handful_of_queries(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        ids = [new_run(here) for _ in range(100)]
        for place, run_id in enumerate(ids[:-1]):
            attempt_id = new_attempt(here, run_id)
            log(
                here,
                attempt_id,
                np.linspace(1, 0, 10 + 100 * place),
                name=("accuracy", "train/loss", "my_Loss")[place % 3],
            )
            log(here, attempt_id, np.ones(3), name="zebra")
        with here.context.database.read() as connection:
            asked: list[str] = []
            sa.event.listen(connection, "before_cursor_execute", lambda *words: asked.append(words[2]))
            lines = charts.sparklines(connection, ids, 40).sparklines
        assert len(asked) <= 10
        assert {*lines} == {*ids[:-1]}  # the last one has logged nothing
        assert {line.name for line in lines.values()} == {"accuracy", "train/loss", "my_Loss"}
        assert all(len(line.x) <= 40 for line in lines.values())
        assert all(line.y[-1] == 0.0 for line in lines.values())


@pytest.mark.parametrize("limit", [1, 7, 4_096, 9_999])
def test_pages_of_metrics_hold_every_point_once(here: World, limit: int) -> None:
    run_id = new_run(here)
    count = 12_000 if limit > 1_000 else 40
    first = new_attempt(here, run_id)
    log(here, first, np.arange(count))
    log(here, first, np.arange(count) * 2, name="lr")
    log(here, new_attempt(here, run_id, count // 2), np.full(count, -1.0), step=count // 2)
    with here.context.database.read() as connection:
        whole = history.metrics_view(connection, run_id, limit=10**6)
        assert not whole.more
        found: dict[str, list[int]] = {"loss": [], "lr": []}
        after, more = None, True
        while more:
            page = history.metrics_view(connection, run_id, after=after, limit=limit)
            after, more = page.cursor, page.more
            assert sum(len(series.points) for series in page.series) <= max(limit, 2)
            for series in page.series:
                found[series.name] += [point[0] for point in series.points]
    assert {series.name: [point[0] for point in series.points] for series in whole.series} == found
    assert len(found["loss"]) == count // 2 + count
    assert len(found["lr"]) == count // 2  # replaced from there on, though the new attempt did not log it


def test_a_real_run_is_charted_while_it_goes_on_and_afterwards(server: ServerProcess, tmp_path: Path) -> None:
    program = """
import math
import whistlestop

with whistlestop.run() as run:
    for step in run.steps(5000):
        run.log(loss=1.0 / (step + 1), lr=0.1)
        if step % 10 == 0:
            run.log(accuracy=math.nan if step == 20 else step / 5000)
"""
    (tmp_path / "program.py").write_text(program)
    phase = {"name": "train", "command": [sys.executable, "program.py"]}
    run = server.submit(phase, directory=tmp_path)
    with server.client() as client:
        until(lambda: client.run(run.id).status == "completed", within=60, what="the run to complete")
        listed = {series.name: series for series in client.series(run.id).series}
        assert (listed["loss"].points, listed["loss"].last_step, listed["loss"].high) == (5000, 4999, 1.0)
        assert (listed["accuracy"].points, listed["accuracy"].nonfinite) == (500, 1)
        whole = client.metrics(run.id, ["accuracy"]).series[0]
        check_answers(client, run.id)
        assert len(whole.points) == 500


def check_answers(client: Client, run_id: str) -> None:
    answer = client.charts(run_id, ["loss", "accuracy"], width=300)
    assert [chart.name for chart in answer.charts] == ["loss", "accuracy"]
    for chart in answer.charts:
        [line] = chart.lines
        assert len(line.x) <= 300
    assert answer.charts[1].lines[0].nonfinite == [(20, "nan")]
    assert {chart.name for chart in client.charts(run_id).charts} >= {"loss", "lr", "accuracy"}
    with pytest.raises(WhistleError):
        client.charts(run_id, ["loss"], width=0)
