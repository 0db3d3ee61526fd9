"""Sessions and one-time links in the store: once is once, and both end with their token."""

from whistlestop.server.store import admin, sessions
from whistlestop.server.store.database import Database


def test_a_link_is_taken_once_and_not_after_its_time(database: Database) -> None:
    with database.write() as connection:
        admin.add_token(connection, id="t-1", name="anna", role="member", hash="h", created_at=0.0)
        sessions.add_link(connection, hash="good", token_id="t-1", expires_at=100.0)
        sessions.add_link(connection, hash="late", token_id="t-1", expires_at=50.0)
    with database.write() as connection:
        assert sessions.take_link(connection, "late", 50.0) is None
        assert sessions.take_link(connection, "unknown", 50.0) is None
        assert sessions.take_link(connection, "good", 50.0) == "t-1"
        assert sessions.take_link(connection, "good", 50.0) is None


def test_sessions_and_links_end_with_their_token_and_with_their_time(database: Database) -> None:
    with database.write() as connection:
        for name in ("anna", "ben"):
            admin.add_token(connection, id=name, name=name, role="member", hash=name, created_at=0.0)
            sessions.add_session(connection, hash=f"{name}-short", token_id=name, created_at=0.0, expires_at=10.0)
            sessions.add_session(connection, hash=f"{name}-long", token_id=name, created_at=0.0, expires_at=99.0)
            sessions.add_link(connection, hash=name, token_id=name, expires_at=99.0)
    with database.write() as connection:
        sessions.remove_expired(connection, 10.0)
        assert {row.hash for row in sessions.all_sessions(connection)} == {"anna-long", "ben-long"}
        admin.remove_token(connection, "anna")
        assert {row.hash for row in sessions.all_sessions(connection)} == {"ben-long"}
        assert sessions.take_link(connection, "anna", 10.0) is None
        assert sessions.remove_session(connection, "ben-long")
        assert not sessions.remove_session(connection, "ben-long")
