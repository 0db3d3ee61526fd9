"""Several pools with their hosts, why an attempt is where it is and when it was asked to leave, the ledger, budgets of
projects. Frozen."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    for name in ("provider", "region", "kind"):
        op.add_column("pools", sa.Column(name, sa.Text(), nullable=False, server_default=""))
    op.add_column("pools", sa.Column("market", sa.Text(), nullable=False, server_default="on_demand"))
    op.add_column("pools", sa.Column("rank", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("pools", sa.Column("hosts", sa.JSON(), nullable=False, server_default=sa.text("'[]'")))
    op.add_column("pools", sa.Column("notices", sa.JSON(), nullable=False, server_default=sa.text("'{}'")))
    op.add_column("pools", sa.Column("devices", sa.JSON(), nullable=True))
    op.create_table(
        "pool_sizes",
        sa.Column("id", KEY, primary_key=True),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
    )
    op.create_index("ix_pool_sizes_pool_at", "pool_sizes", ["pool", "at"])
    op.create_table(
        "hosts",
        sa.Column("pool", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("excluded_at", sa.Double(), nullable=True),
        sa.Column("excluded_until", sa.Double(), nullable=True),
        sa.Column("excluded_by", sa.Text(), nullable=False, server_default=""),
        sa.Column("readmitted_at", sa.Double(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False, server_default=""),
    )
    op.add_column("phases", sa.Column("ready_at", sa.Double(), nullable=True))
    op.add_column("phases", sa.Column("failure", sa.Text(), nullable=True))
    op.add_column("phases", sa.Column("failure_step", sa.BigInteger(), nullable=True))
    op.add_column("attempts", sa.Column("market", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("why_here", sa.Text(), nullable=False, server_default=""))
    for name in ("queued_at", "loop_at", "committed_at", "stopping_at", "preempt_at", "preempt_asked_at"):
        op.add_column("attempts", sa.Column(name, sa.Double(), nullable=True))
    for name in ("preempt_by", "preempt_why"):
        op.add_column("attempts", sa.Column(name, sa.Text(), nullable=False, server_default=""))
    op.create_index("ix_attempts_host_ended_at", "attempts", ["host", "ended_at"])
    op.create_table(
        "ledger",
        sa.Column("id", KEY, primary_key=True),
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("number", KEY, nullable=False),
        sa.Column("run_name", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("workflow", sa.Text(), nullable=True),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("market", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("price", sa.Double(), nullable=False),
        sa.Column("credits", sa.Double(), nullable=False),
    )
    op.create_index("ix_ledger_attempt_id", "ledger", ["attempt_id"])
    op.create_index("ix_ledger_run_id", "ledger", ["run_id"])
    op.create_index("ix_ledger_until", "ledger", ["until"])
    op.create_index("ix_ledger_project_until", "ledger", ["project", "until"])
    op.create_table(
        "budgets",
        sa.Column("project", sa.Text(), primary_key=True),
        sa.Column("credits", sa.Double(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
    )
