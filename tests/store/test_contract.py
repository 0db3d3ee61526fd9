"""What the store promises, on every database alike."""

import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from whistlestop.domain.errors import Ambiguous, NotFound, Refused
from whistlestop.domain.ids import new_id
from whistlestop.domain.states import AttemptState, PhaseState, RunState
from whistlestop.domain.stops import Stop
from whistlestop.server.store import (
    admin,
    checkpoints,
    durations,
    events,
    logs,
    metrics,
    phases,
    placing,
    pools,
    runs,
    streams,
)
from whistlestop.server.store.database import Database
from whistlestop.server.store.runs import Filter
from whistlestop.server.store.schema import metadata
from whistlestop.wire.frames import LogLine, pack_record, split_records


def new_run(database: Database, name: str = "run", **values: Any) -> str:
    run_id = new_id("r")
    with database.write() as connection:
        runs.insert(
            connection,
            **{
                "id": run_id,
                "name": name,
                "project": "default",
                "priority": 0,
                "state": RunState.QUEUED,
                "spec": "",
                "env": {},
                "created_by": "me",
                "created_at": 1.0,
                **values,
            },
        )
        row = {"id": f"{run_id}.0", "run_id": run_id, "ordinal": 0, "name": "train", "kind": "train"}
        more = {
            "state": PhaseState.PENDING, "needs": [], "slots": 1, "retries": 0, "stop_reasons": [], "ready_at": 0.0,
        }  # fmt: skip
        phases.insert(connection, [{**row, **more}])
    return run_id


def new_attempt(database: Database, run_id: str, slots: list[int] | None = None) -> str:
    attempt_id = new_id("a")
    with database.write() as connection:
        phases.add_attempt(
            connection,
            id=attempt_id,
            run_id=run_id,
            phase_id=f"{run_id}.0",
            number=runs.next_attempt(connection, run_id),
            stage="allocating",
            pool="local",
            slots=slots or [0],
            price=1.0,
            token_hash=new_id("h"),
            started_at=1.0,
        )
    return attempt_id


def lines(*texts: str) -> list[bytes]:
    data = b"".join(pack_record(LogLine(float(index), "out", 0, text)) for index, text in enumerate(texts))
    return split_records(data)[0]


def points(*values: float, first: int = 1) -> metrics.Points:
    numbers = np.arange(first, first + len(values), dtype=np.int64)
    return metrics.Points(numbers, numbers * 10, numbers.astype(float), np.array(values))


def test_the_migrations_make_the_tables_of_the_schema(database: Database) -> None:
    with database.read() as connection:
        inspector = sa.inspect(connection)
        for table in metadata.tables.values():
            found = {column["name"] for column in inspector.get_columns(table.name)}
            assert found == {column.name for column in table.columns}, table.name
        assert set(inspector.get_table_names()) - {"alembic_version"} == set(metadata.tables)
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == [], "schema.py changed: write the migration"


def test_migrating_twice_changes_nothing(database: Database) -> None:
    run_id = new_run(database)
    database.migrate()
    with database.read() as connection:
        assert runs.get(connection, run_id).number == 1


def test_a_run_is_found_by_id_number_and_unique_name(database: Database) -> None:
    first, second = new_run(database, "alpha"), new_run(database, "beta")
    with database.read() as connection:
        assert [runs.resolve(connection, word).id for word in (first, "#1", "1", "alpha")] == [first] * 4
        assert runs.resolve(connection, "beta").id == second
        with pytest.raises(NotFound):
            runs.resolve(connection, "gamma")


def test_a_name_that_several_runs_have_means_the_only_active_one(database: Database) -> None:
    old, new = new_run(database, "same"), new_run(database, "same")
    with database.read() as connection, pytest.raises(Ambiguous):
        runs.resolve(connection, "same")
    with database.write() as connection:
        runs.move(connection, old, RunState.KILLED)
    with database.read() as connection:
        assert runs.resolve(connection, "same").id == new


def test_a_state_change_that_is_not_in_the_table_writes_nothing(database: Database) -> None:
    run_id = new_run(database)
    with database.write() as connection:
        assert runs.move(connection, run_id, RunState.KILLED)
        assert not runs.move(connection, run_id, RunState.RUNNING)
        assert not runs.move(connection, run_id, RunState.KILLED, reason="again")
        assert runs.get(connection, run_id).state == RunState.KILLED


def test_a_request_is_only_ever_raised(database: Database) -> None:
    run_id = new_run(database)
    with database.write() as connection:
        assert runs.ask(connection, run_id, Stop.PAUSE)
        assert not runs.ask(connection, run_id, Stop.PAUSE)
        assert runs.ask(connection, run_id, Stop.KILL)
        assert not runs.ask(connection, run_id, Stop.PAUSE)
        assert runs.get(connection, run_id).request == Stop.KILL


def test_the_database_itself_refuses_a_second_live_attempt_of_a_phase(database: Database) -> None:
    run_id = new_run(database)
    first = new_attempt(database, run_id)
    with pytest.raises(sa.exc.IntegrityError):
        new_attempt(database, run_id)
    with database.write() as connection:
        phases.end_attempt(connection, first, AttemptState.LOST, ended_at=2.0)
    assert new_attempt(database, run_id) != first


def test_the_first_end_of_an_attempt_counts(database: Database) -> None:
    attempt_id = new_attempt(database, new_run(database))
    with database.write() as connection:
        assert phases.end_attempt(connection, attempt_id, AttemptState.ABORTED, ended_at=2.0)
        assert not phases.end_attempt(connection, attempt_id, AttemptState.COMPLETED, ended_at=3.0)
        row = phases.attempt(connection, attempt_id)
        assert row is not None
        assert (row.state, row.ended_at) == (AttemptState.ABORTED, 2.0)


def test_slots_are_taken_until_the_attempt_has_ended(database: Database) -> None:
    attempt_id = new_attempt(database, new_run(database), [0, 3])
    with database.write() as connection:
        assert pools.taken_slots(connection) == {"local": {0, 3}}
        phases.end_attempt(connection, attempt_id, AttemptState.COMPLETED, ended_at=2.0)
        assert pools.taken_slots(connection) == {}


def test_a_write_that_raises_leaves_nothing_behind(database: Database) -> None:
    run_id = new_run(database)
    with pytest.raises(RuntimeError), database.write() as connection:  # noqa: PT012
        events.add(connection, run_id, "test", "never", at=1.0)
        raise RuntimeError
    with database.read() as connection:
        assert events.of_run(connection, run_id) == []


def test_events_are_numbered_in_order_and_move_the_runs_clock(database: Database) -> None:
    run_id = new_run(database)
    with database.write() as connection:
        numbers = [events.add(connection, run_id, "test", str(index), at=1.0) for index in range(3)]
        assert numbers == sorted(set(numbers))
        assert runs.get(connection, run_id).changed == numbers[-1]
        assert [row.text for row in events.of_run(connection, run_id, after=numbers[0])] == ["1", "2"]
        assert [row.id for row in runs.changed_since(connection, numbers[0])] == [run_id]


def test_log_lines_come_back_in_order_whatever_their_packets(database: Database) -> None:
    attempt_id = new_attempt(database, new_run(database))
    texts = [f"line {index} " + "x" * (index % 50) for index in range(5000)]
    done = 0
    for size in (1, 1, 700, 2500, 3, 1795):
        with database.write() as connection:
            logs.append(connection, attempt_id, done + 1, lines(*texts[done : done + size]))
        done += size
    assert done == len(texts)
    with database.read() as connection:
        found = list(logs.read(connection, attempt_id))
        assert [line.text for _, line in found] == texts
        assert [number for number, _ in found] == list(range(1, 5001))
        assert [line.text for _, line in logs.read(connection, attempt_id, after=4998)] == texts[4998:]
        back = logs.read_back(connection, attempt_id)
        assert [next(back)[0] for _ in range(3)] == [5000, 4999, 4998]


def test_points_come_back_bit_for_bit_with_nan_and_infinities(database: Database) -> None:
    attempt_id = new_attempt(database, new_run(database))
    values = np.random.default_rng(0).normal(size=10_000)
    values[[5, 6, 7]] = [np.nan, np.inf, -np.inf]
    for start in range(0, 10_000, 1234):
        part = points(*values[start : start + 1234], first=start + 1)
        with database.write() as connection:
            metrics.append(connection, attempt_id, {"loss": part, "lr": part})
    with database.read() as connection:
        series, _ = metrics.page(connection, attempt_id, wanted=["loss"], limit=100_000)
        assert list(series) == ["loss"]
        np.testing.assert_array_equal(series["loss"].value, values)
        np.testing.assert_array_equal(series["loss"].step, np.arange(1, 10_001) * 10)
        later, _ = metrics.page(connection, attempt_id, after=9_990, limit=100_000)
        assert {name: len(part) for name, part in later.items()} == {"loss": 10, "lr": 10}


def test_stream_offsets_advance_with_what_is_stored(database: Database) -> None:
    attempt_id = new_attempt(database, new_run(database))
    with database.write() as connection:
        assert streams.position(connection, attempt_id, "logs") == (0, 0)
        streams.advance(connection, attempt_id, "logs", offset=10, records=2)
        streams.advance(connection, attempt_id, "logs", offset=25, records=4)
        assert streams.position(connection, attempt_id, "logs") == (25, 4)
        assert streams.offsets(connection, attempt_id) == {"logs": 25}


def test_deleting_a_run_takes_everything_with_it_but_its_number(database: Database) -> None:
    run_id = new_run(database)
    attempt_id = new_attempt(database, run_id)
    with database.write() as connection:
        logs.append(connection, attempt_id, 1, lines("a"))
        metrics.append(connection, attempt_id, {"loss": points(1.0)})
        checkpoints.add(
            connection, id="c", run_id=run_id, phase="train", step=1, attempt=1, path="/x", bytes=1,
            committed_at=1.0, verified=True, metrics={},
        )  # fmt: skip
        runs.delete(connection, run_id)
    with database.read() as connection:
        for table in ("runs", "phases", "attempts", "log_chunks", "metric_chunks", "checkpoints"):
            assert connection.scalar(sa.text(f"SELECT count(*) FROM {table}")) == 0, table
    assert new_run(database) != run_id
    with database.read() as connection:
        assert runs.listing(connection, Filter())[0].number == 2


def test_deletions_and_how_long_stops_took_are_found_by_an_index(database: Database) -> None:
    run_id = new_run(database)
    with database.write() as connection:
        for number in range(200):
            events.add(
                connection, run_id if number % 50 else f"r{number}", "x" if number % 50 else "deleted", "", at=1.0
            )
    with database.read() as connection:
        assert [row.run_id for row in runs.deleted_since(connection, 1)] == ["r50", "r100", "r150"]
        if not database.is_sqlite:
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")  # a table this small is read as a whole
        for ask, index in (
            (lambda: runs.deleted_since(connection, 1), "ix_events_deleted"),
            (lambda: durations.stops(connection), "ix_attempts_reason_ended_at"),
            (lambda: durations.pauses(connection), "ix_attempts_reason_ended_at"),
            (lambda: durations.kills(connection), "ix_attempts_reason_ended_at"),
        ):
            plan = planned(connection, database, ask)
            assert index in plan, plan
            assert "TEMP B-TREE" not in plan, "the newest ones first, with nothing to sort"


def planned(connection: sa.Connection, database: Database, ask: Callable[[], object]) -> str:
    """How the database goes about the one statement of `ask`."""
    asked: list[Any] = []

    def note(*words: Any) -> None:
        asked.append(words[2:4])

    sa.event.listen(connection, "before_cursor_execute", note)
    ask()
    sa.event.remove(connection, "before_cursor_execute", note)
    [(statement, parameters)] = asked
    word = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
    return "\n".join(str(row[-1]) for row in connection.exec_driver_sql(f"{word} {statement}", parameters))


def test_search_looks_into_names_and_notes_and_takes_wildcards_as_they_are(database: Database) -> None:
    found = new_run(database, "resnet", note="lost 100% of it")
    new_run(database, "bert", note="fine")
    with database.read() as connection:
        for word in ("RESNET", "100%", "lost"):
            assert runs.ids(connection, Filter(search=word)) == [found], word
        assert runs.ids(connection, Filter(search="%")) == [found]


def test_the_queue_is_ordered_by_priority_and_then_by_number(database: Database) -> None:
    low, high, also = new_run(database), new_run(database, priority=5), new_run(database)
    with database.read() as connection:
        assert [row.run_id for page in placing.queue(connection, 1.0) for row in page] == [high, low, also]
        rows = [runs.get(connection, run_id) for run_id in (low, high, also)]
        assert runs.positions(connection, rows) == [2, 1, 3]


def test_the_same_workflow_text_is_the_same_version(database: Database) -> None:
    with database.write() as connection:
        for text, version in (("a", 1), ("a", 1), ("b", 2), ("a", 3)):
            row = admin.save_workflow(connection, "flow", text, note="", by="me", at=1.0)
            assert row.version == version
        assert [row.version for row in admin.workflow_versions(connection, "flow")] == [3, 2, 1]
        assert [(row.name, row.version) for row in admin.all_workflows(connection)] == [("flow", 3)]


def test_writers_race_and_every_write_is_kept(database: Database) -> None:
    run_id = new_run(database)
    numbers: list[int] = []

    def write(count: int) -> None:
        for _ in range(count):
            with database.write() as connection:
                numbers.append(runs.next_attempt(connection, run_id))
                events.add(connection, run_id, "race", "", at=1.0)

    threads = [threading.Thread(target=write, args=(25,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 101))
    with database.read() as connection:
        assert len(events.of_run(connection, run_id, limit=1000)) == 100


def test_a_second_server_on_one_postgresql_is_refused(database: Database) -> None:
    if database.is_sqlite:
        database.claim()  # the data directory's lock does it there
        return
    database.claim()
    other = Database(database.url)
    with pytest.raises(Refused, match="another Whistlestop server"):
        other.claim()
    other.close()


def test_a_connection_that_is_read_by_while_the_database_is_closed_is_closed_after_it(database: Database) -> None:
    with database.read() as connection:
        used = connection.connection.dbapi_connection
        assert used is not None
        database.close()
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    if database.is_sqlite:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            used.cursor()
    else:
        assert used.closed  # type: ignore[attr-defined]
