"""The outbox on SQLite and on PostgreSQL: one alert per event and receiver, in their order, and nothing left behind."""

from typing import Any

import pytest
import sqlalchemy as sa

from whistlestop.server.store import alerts, events, operations
from whistlestop.server.store.database import Database


def receiver(connection: sa.Connection, name: str, **more: Any) -> bool:
    return alerts.add_receiver(
        connection, name=name, kind="webhook", address=b"x", masked="https://…", kinds=["failed"], after=0,
        created_at=1.0, created_by="me", **more,
    )  # fmt: skip


def row(name: str, number: int, event: int | None = None) -> dict[str, Any]:
    return {"delivery": f"w-{name}-{number}", "receiver": name, "event": event, "kind": "failed", "run_id": "r",
            "title": f"number {number}", "body": "{}", "created_at": float(number)}  # fmt: skip


def test_the_cursor_is_there_from_the_first_moment_and_moves(database: Database) -> None:
    with database.write() as connection:
        assert alerts.cursor(connection) == 0
        for kind in ("checkpoint", "run_failed", "epoch"):
            events.add(connection, "r", kind, kind, at=1.0)
        upto, found = alerts.news(connection, 0, {"run_failed"}, 10)
        assert [event.kind for event in found] == ["run_failed"]
        assert upto == events.newest(connection)
        alerts.move_cursor(connection, upto)
    with database.read() as connection:
        assert alerts.news(connection, alerts.cursor(connection), {"run_failed"}, 10) == (upto, [])


def test_a_full_page_of_events_ends_where_it_ends(database: Database) -> None:
    with database.write() as connection:
        seqs = [events.add(connection, "r", "run_failed", "x", at=1.0) for _ in range(5)]
        upto, found = alerts.news(connection, 0, {"run_failed"}, 3)
        assert [event.seq for event in found] == seqs[:3]
        assert upto == seqs[2]


def test_the_database_refuses_a_second_alert_from_one_event_to_one_receiver(database: Database) -> None:
    with database.write() as connection:
        assert receiver(connection, "a")
        assert not receiver(connection, "a")
        alerts.queue(connection, [row("a", 1, event=7), row("a", 2), row("a", 3)])  # tests have no event
    with pytest.raises(sa.exc.IntegrityError), database.write() as connection:
        alerts.queue(connection, [row("a", 4, event=7)])
    with database.read() as connection:
        assert alerts.waiting(connection) == {"a": 3}


def test_each_receiver_has_its_own_order_and_goes_with_what_it_had(database: Database) -> None:
    with database.write() as connection:
        for name in ("a", "b"):
            receiver(connection, name)
        alerts.queue(connection, [row("a", 1, 1), row("b", 1, 1), row("a", 2, 2)])
        head = alerts.head(connection, "a")
        assert head is not None
        assert head.title == "number 1"
        alerts.update(connection, head.id, state=alerts.SENT, ended_at=5.0, tries=alerts.MORE_TRIES)
        second = alerts.head(connection, "a")
        assert second is not None
        assert second.title == "number 2"
        assert [each.tries for each in alerts.log(connection, receiver="a", limit=10)] == [0, 1]
        assert alerts.waiting(connection) == {"a": 1, "b": 1}
        assert alerts.forget(connection, 6.0, kind="preempted_often") == 1
        assert alerts.remove_receiver(connection, "a")
        assert alerts.waiting(connection) == {"b": 1}
        assert [each.receiver for each in alerts.log(connection, limit=10)] == ["b"]


def test_how_many_go_out_before_is_counted_by_receiver_in_one_question(database: Database) -> None:
    with database.write() as connection:
        for name in ("a", "b", "idle"):
            receiver(connection, name)
        alerts.queue(connection, [row(name, number) for number in range(4) for name in ("a", "b")])
        first = alerts.head(connection, "a")
        assert first is not None
        alerts.update(connection, first.id, state=alerts.SENT, ended_at=5.0)
        found = alerts.log(connection, limit=5)
        ahead = alerts.before_them(connection, found)
        assert [(each.delivery, ahead[each.id]) for each in found] == [
            ("w-b-3", 3), ("w-a-3", 2), ("w-b-2", 2), ("w-a-2", 1), ("w-b-1", 1)
        ]  # fmt: skip
        assert alerts.before_them(connection, alerts.log(connection, state=alerts.SENT, limit=5)) == {}
        assert [each.name for each in alerts.expecting(connection)] == ["a", "b"]


def test_all_that_is_too_old_is_given_up_at_once_and_nothing_else(database: Database) -> None:
    with database.write() as connection:
        receiver(connection, "a")
        alerts.queue(connection, [row("a", number) for number in range(5)])
        first = alerts.head(connection, "a")
        assert first is not None
        alerts.update(connection, first.id, state=alerts.SENT, ended_at=5.0)
        assert alerts.give_up(connection, 3.0, at=9.0) == 2
        found = [(each.state, each.ended_at) for each in alerts.log(connection, limit=9)]
        assert found == [("waiting", None)] * 2 + [("given_up", 9.0)] * 2 + [("sent", 5.0)]


def test_what_lasts_begins_once_until_it_is_over(database: Database) -> None:
    with database.write() as connection:
        assert alerts.begin(connection, "budget_80", "project lab", 1.0)
        assert not alerts.begin(connection, "budget_80", "project lab", 2.0)
        assert alerts.begin(connection, "checkpoint_too_old", "project lab", 2.0)
        assert alerts.lasting(connection, "budget_80") == {"project lab"}
        alerts.over(connection, "budget_80", {"project lab"})
        assert alerts.begin(connection, "budget_80", "project lab", 3.0)


def test_what_operators_ask_is_answered_by_an_empty_database(database: Database) -> None:
    with database.read() as connection:
        assert operations.active(connection) == []
        assert operations.queue(connection) == (0, None)
        assert operations.oldest_checkpoint(connection) is None
        assert operations.spent(connection, 0) == (0, [])
        assert operations.spent(connection, 7) == (7, [])  # a snapshot from before that line
        assert operations.ends(connection, {("r", 1)}) == {}
        assert operations.size(connection) > 0
        assert alerts.training(connection) == alerts.with_budget(connection) == []
