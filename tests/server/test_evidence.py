"""What a diagnosis gets to see of a run: all that matters of it, and no more for a long run than for a short one."""

import math
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from whistlestop.diagnosis.evidence import LINES, POINTS, Evidence, Series
from whistlestop.domain.ids import new_id
from whistlestop.domain.states import AttemptState
from whistlestop.server.services import evidence
from whistlestop.server.store import events, logs, metrics, phases, runs
from whistlestop.server.store.metrics import Points
from whistlestop.server.store.schema import attempts
from whistlestop.testing.world import World
from whistlestop.wire.frames import LogLine, Progress, pack_record

START = 999_000.0
SPEC = """name: x
command: "true"
checkpoint: {every: 10 steps, keep: {last: 1, best: 1, by: val_acc, mode: max}}
stop_when:
  - plateau: {metric: val_loss, patience: 3}
  - any: ["reward > 10", "loss < 0.1"]
"""


@pytest.fixture
def run(here: World) -> str:
    made = here.submit(SPEC)
    here.settle()
    return made.id


def log(here: World, attempt: str, name: str, values: Any, *, step: int = 0, record: int = 1, kind: str = "") -> None:
    numbers = np.arange(len(values))
    new = Points(numbers + record, numbers + step, START + (numbers + step) * 0.5, np.asarray(values, np.float64))
    with here.context.database.write() as connection:
        metrics.append(connection, attempt, {name: new}, {name: kind} if kind else {})


def gather(here: World, run: str, asked: list[str] | None = None) -> Evidence:
    with here.context.database.read() as connection:
        if asked is not None:
            sa.event.listen(connection, "before_cursor_execute", lambda *given: asked.append(given[2]))
        row = runs.get(connection, run)
        return evidence.gather(here.context, connection, row, phases.of_runs(connection, [run])[run][0])


def another(here: World, run: str, *, resumed_from: int, host: str = "h-2") -> str:
    """The newest attempt fails, the next one goes on from this step."""
    attempt = here.attempt(run)
    with here.context.database.write() as connection:
        phases.end_attempt(
            connection,
            attempt.id,
            AttemptState.FAILED,
            reason="code_raised",
            text="exit code 1",
            ended_at=here.now,
            exit_code=1,
            last_step=29,
        )
        new = {"id": new_id("a"), "number": attempt.number + 1, "token_hash": new_id("h"), "state": "started"}
        more = {"up": True, "resumed_from": resumed_from, "host": host}
        connection.execute(attempts.insert(), {**attempt._mapping, **new, **more})
    return str(new["id"])


def only(seen: Evidence, name: str, rank: int = 0) -> Series:
    [found] = [each for each in seen.series if (each.name, each.rank) == (name, rank)]
    return found


def test_a_series_of_any_length_is_thinned_and_its_first_odd_point_is_exact(here: World, run: str) -> None:
    values = np.linspace(5.0, 1.0, 300_000)
    values[[1_000, 123_457, 123_460]] = [math.nan, math.inf, math.nan]
    log(here, here.attempt(run).id, "loss", values)
    found = only(gather(here, run), "loss")
    assert POINTS / 2 < len(found.steps) <= POINTS
    assert found.odd is not None
    assert (found.odd.step, found.odd.value, found.odd.at) == (123_457, "inf", START + 123_457 * 0.5), (
        "the newest spell"
    )
    assert 123_460 <= (found.odd_until or 0) < 124_000
    assert list(found.steps) == sorted(found.steps)
    assert found.steps[-1] == 299_999
    assert np.allclose(found.values, np.linspace(5.0, 1.0, 300_000)[list(found.steps)], atol=2e-4)
    assert found.times[-1] == START + 299_999 * 0.5
    assert np.ptp(np.diff(found.steps)) <= 256  # evenly


def test_few_points_come_as_they_are_and_of_a_step_that_was_made_twice_the_newer(here: World, run: str) -> None:
    first = here.attempt(run).id
    with here.context.database.write() as connection:
        phases.update_attempt(connection, first, up=True)
    log(here, first, "loss", [*np.arange(20.0), math.nan, *np.arange(9.0)])
    second = another(here, run, resumed_from=15)
    log(here, second, "loss", np.arange(100.0, 110.0), step=15)
    found = only(gather(here, run), "loss")
    assert found.steps == tuple(range(25))
    assert found.values == (*np.arange(15.0), *np.arange(100.0, 110.0))
    assert found.odd is None, "that step was made again, and went well"


def test_ranks_and_the_runners_samples_are_told_apart(here: World, run: str) -> None:
    attempt = here.attempt(run).id
    log(here, attempt, "acc@5", [0.1, 0.2])
    log(here, attempt, "loss@3", [1.0, math.nan], kind="rank")
    log(here, attempt, "system/cpu_percent", [90.0, 95.0], kind="system")
    with here.context.database.write() as connection:  # the step stands still, the samples go on
        times = np.array([START, START + 5.0, START + 10.0])
        new = Points(np.arange(10, 13), np.zeros(3, np.int64), times, np.array([1.0, 2.0, 3.0]))
        metrics.append(connection, attempt, {"system/memory_bytes": new}, {"system/memory_bytes": "system"})
    seen = gather(here, run)
    assert only(seen, "acc@5").values == (0.1, 0.2)
    assert only(seen, "loss", rank=3).odd is not None
    assert only(seen, "loss", rank=3).values == (1.0,)
    assert only(seen, "system/cpu_percent").kind == "system"
    assert only(seen, "system/memory_bytes").times == tuple(times)


def test_of_many_series_those_that_tell_most_are_taken(here: World, run: str) -> None:
    attempt = here.attempt(run).id
    number = np.arange(1, 3)
    plain = Points(number, number, number + START, np.array([1.0, 2.0]))
    odd = Points(number, number, number + START, np.array([1.0, math.nan]))
    names = [f"weights/layer{each}" for each in range(300)]
    with here.context.database.write() as connection:
        metrics.append(connection, attempt, dict.fromkeys(names, plain) | {"weights/layer217": odd})
        metrics.append(connection, attempt, dict.fromkeys(("train/loss", "val_acc", "grad_norm", "lr"), plain))
    seen = gather(here, run)
    assert {"train/loss", "val_acc", "grad_norm", "lr", "weights/layer217"} <= {each.name for each in seen.series}
    assert len(seen.series) <= 64


def test_what_the_spec_aims_at_is_known(here: World, run: str) -> None:
    assert gather(here, run).aims == {"val_acc": "max", "val_loss": "min", "reward": "max", "loss": "min"}


def test_where_it_is_comes_from_memory_while_it_runs_and_from_the_store_afterwards(here: World, run: str) -> None:
    attempt = here.attempt(run)
    here.context.hub.progress[attempt.id] = Progress(
        at=here.now, stage="evaluating", step=40, total=100, epoch=2, progress_at=here.now - 3.0,
        loop_started_at=here.now - 50.0, resumed_step=10,
    )  # fmt: skip
    place = gather(here, run).place
    assert (place.stage, place.step, place.total, place.epoch) == ("evaluating", 40, 100, 2)
    assert (place.progress_at, place.loop_started_at) == (here.now - 3.0, here.now - 50.0)
    assert (place.resumed_step, place.ended_at) == (10, None)
    with here.context.database.write() as connection:
        kept = {"stage": "training", "step": 57, "total": 100, "progress_at": here.now - 1.0}
        state = {"reason": "signalled", "signal": "SIGKILL", "text": "ended by SIGKILL", "host": "h-1"}
        phases.end_attempt(
            connection, attempt.id, AttemptState.FAILED, ended_at=here.now, last_step=57, progress=kept, **state
        )
    here.context.hub.over(attempt.id)
    seen = gather(here, run)
    assert (seen.place.stage, seen.place.step, seen.place.ended_at) == ("training", 57, here.now)
    [end] = seen.ends
    assert (end.attempt, end.reason, end.signal, end.host, end.last_step) == (1, "signalled", "SIGKILL", "h-1", 57)


def test_lines_of_stderr_are_not_drowned_by_stdout(here: World, run: str) -> None:
    attempt = here.attempt(run).id
    told = [LogLine(START, "err", 0, "Traceback"), *(LogLine(START + 1, "out", 0, f"{n}") for n in range(3 * LINES))]
    with here.context.database.write() as connection:
        logs.append(connection, attempt, 1, [pack_record(line)[4:] for line in told])
    lines = gather(here, run).lines
    assert [line.text for line in lines] == ["Traceback", *(str(n) for n in range(2 * LINES, 3 * LINES))]
    assert lines[0].stream == "err"


def test_what_was_told_is_there_of_its_own_phase_and_marks_push_nothing_out(here: World, run: str) -> None:
    with here.context.database.write() as connection:
        phase = phases.of_runs(connection, [run])[run][0].name
        events.add(connection, run, "straggler", "rank 1 is slow", at=1.0, phase=phase, attempt=1, data={"rank": 1})
        for number in range(300):
            events.add(connection, run, "evaluation", "e", at=1.0, phase=phase, attempt=1, data={"step": number})
        events.add(connection, run, "stuck", "elsewhere", at=1.0, phase="another", attempt=1)
    told = gather(here, run).told
    assert [(each.kind, each.data["rank"]) for each in told[:1]] == [("straggler", 1)]
    assert [each.data["step"] for each in told[1:]] == list(range(300 - evidence.MOST_MARKS, 300))


def test_what_was_told_is_found_without_reading_all_the_rest(here: World, run: str) -> None:
    """By the index of kinds, from its end: a healthy run has told much that is of no interest, and goes on to do so."""
    with here.context.database.write() as connection:
        for number, kind in enumerate(("program", "stuck", "metric_seen", "program", "rung", "program")):
            events.add(connection, run, kind, f"{number}", at=1.0, attempt=1 + number // 3)
    with here.context.database.read() as connection:
        asked: list[tuple[str, Any]] = []
        sa.event.listen(connection, "before_cursor_execute", lambda *given: asked.append(given[2:4]))
        found = events.last_of_kinds(connection, run, evidence.KINDS, 3)
        assert [(row.text, row.data) for row in found] == [("3", {}), ("4", {}), ("5", {})]
        found = events.last_of_kinds(connection, run, evidence.KINDS, 200)
        assert [row.text for row in found] == ["0", "1", "3", "4", "5"]
        statement, given = asked[-1]
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given).all()
    ways = [row for row in plan if row.detail.startswith(("SEARCH events", "SCAN events"))]
    assert len(ways) == len(evidence.KINDS)
    assert all("ix_events_run_id_kind_attempt_seq (run_id=? AND kind=?)" in way.detail for way in ways), plan
    beside = [row.detail for row in plan if row.parent in {way.parent for way in ways}]
    assert not any("TEMP B-TREE" in line for line in beside), "only what was found is sorted"


def test_hosts_where_it_failed_come_with_what_others_saw_there(here: World, run: str) -> None:
    """It fails on h-1 and gets on on h-2; of two other runs one ended well on h-1, and one failed there only."""
    with here.context.database.write() as connection:
        phases.update_attempt(connection, here.attempt(run).id, host="h-1", last_step=29)
    others = [here.submit(), here.submit()]
    here.settle()
    with here.context.database.write() as connection:
        base = phases.attempts_of_runs(connection, [run])[run][0]._mapping
        for other, reason, host in ((others[0], "finished", "h-1"), (others[1], "code_raised", "h-1")):
            phase = phases.of_runs(connection, [other.id])[other.id][0].id
            values = {"id": new_id("a"), "token_hash": new_id("h"), "run_id": other.id, "phase_id": phase, "number": 7}
            ended = {"state": "failed", "reason": reason, "host": host, "ended_at": here.now - 5.0}
            connection.execute(attempts.insert(), {**base, **values, **ended})
    second = another(here, run, resumed_from=20)
    with here.context.database.write() as connection:
        phases.update_attempt(connection, second, last_step=80)
    [record] = gather(here, run).hosts
    assert (record.host, record.good, record.failed, record.elsewhere) == ("h-1", 1, 1, 1)


def test_price_and_what_was_spent_are_known(here: World, run: str) -> None:
    here.now += 10.0
    seen = gather(here, run)
    assert seen.price == pytest.approx(1.0)
    assert seen.spent == pytest.approx(10.0)


def test_a_long_run_costs_no_more_questions_than_a_short_one(here: World, run: str) -> None:
    attempt = here.attempt(run).id
    log(here, attempt, "loss", np.ones(10))
    short: list[str] = []
    gather(here, run, short)
    for name in (f"loss{each}" for each in range(6)):
        log(here, attempt, name, np.random.default_rng(0).normal(size=70_000))
    with here.context.database.write() as connection:
        bodies = [pack_record(LogLine(START, "out", 0, "x" * 100))[4:] for _ in range(20_000)]
        logs.append(connection, attempt, 1, bodies)
        base = here.attempt(run)._mapping
        made = [
            {**base, "id": f"a-{n}", "number": n, "token_hash": f"t-{n}", "state": "failed", "reason": "code_raised",
             "host": f"h-{n}", "ended_at": here.now}
            for n in range(2, 200)
        ]  # fmt: skip
        connection.execute(attempts.insert(), made)
    for each in made[::20]:
        log(here, str(each["id"]), "loss", np.ones(50))
    long: list[str] = []
    seen = gather(here, run, long)
    assert seen.attempts == 199
    assert len(seen.ends) == evidence.MOST_ENDS
    assert len(short) <= 14, "\n".join(short)
    assert len(long) <= 32, "\n".join(long)
