"""Deletions by number, and ended attempts by reason: found without reading every event and every attempt. Frozen."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_index(
        "ix_events_deleted",
        "events",
        ["seq", "run_id"],
        sqlite_where=sa.text("kind = 'deleted'"),
        postgresql_where=sa.text("kind = 'deleted'"),
    )
    op.create_index("ix_attempts_reason_ended_at", "attempts", ["reason", "ended_at"])
