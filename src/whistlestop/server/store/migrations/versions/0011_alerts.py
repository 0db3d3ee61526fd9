"""Alerts: who is told, what is on its way to them, and how far the events were looked at. Frozen."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "receivers",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("address", sa.LargeBinary(), nullable=False),
        sa.Column("masked", sa.Text(), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=True),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("only_named", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("kinds", sa.JSON(), nullable=False),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("failing_since", sa.Double(), nullable=True),
        sa.Column("next_at", sa.Double(), nullable=False, server_default=sa.text("0")),
        sa.Column("error", sa.Text(), nullable=False, server_default=""),
        sa.Column("sent_at", sa.Double(), nullable=True),
    )
    op.create_table(
        "alerts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("delivery", sa.Text(), nullable=False),
        sa.Column("receiver", sa.Text(), nullable=False),
        sa.Column("event", sa.BigInteger(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False, server_default="waiting"),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False, server_default=""),
        sa.ForeignKeyConstraint(["receiver"], ["receivers.name"], name="fk_alerts_receiver", ondelete="CASCADE"),
        sa.UniqueConstraint("delivery", name="uq_alerts_delivery"),
        sa.UniqueConstraint("receiver", "event", "kind", name="uq_alerts_receiver_event_kind"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_alerts_run_id", "alerts", ["run_id"])
    op.create_index("ix_alerts_ended_at", "alerts", ["ended_at"])
    op.create_index(
        "ix_alerts_waiting",
        "alerts",
        ["receiver", "id"],
        sqlite_where=sa.text("state = 'waiting'"),
        postgresql_where=sa.text("state = 'waiting'"),
    )
    op.create_table(
        "alert_episodes",
        sa.Column("kind", sa.Text(), primary_key=True),
        sa.Column("subject", sa.Text(), primary_key=True),
        sa.Column("at", sa.Double(), nullable=False),
    )
    op.create_table("alert_cursor", sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False))
    # Nobody is told of what happened before there were alerts.
    op.execute("INSERT INTO alert_cursor (seq) SELECT COALESCE(MAX(seq), 0) FROM events")
