"""Events by kind: the marks of a timeline are found without reading a run's whole history. Frozen."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_index("ix_events_run_id_kind_attempt_seq", "events", ["run_id", "kind", "attempt", "seq"])
