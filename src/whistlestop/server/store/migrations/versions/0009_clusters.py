"""Pools on clusters, with their settings; attempts on several nodes, what each of them came to, and what a cluster says
of one that has not begun. Frozen."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("pools", sa.Column("settings", sa.JSON(), nullable=False, server_default=sa.text("'{}'")))
    op.add_column("attempts", sa.Column("nodes", sa.Integer(), nullable=False, server_default=sa.text("1")))
    op.add_column("attempts", sa.Column("pending", sa.Text(), nullable=False, server_default=""))
    op.create_table(
        "attempt_nodes",
        sa.Column("attempt_id", sa.Text(), primary_key=True),
        sa.Column("node", sa.Integer(), primary_key=True),
        sa.Column("host", sa.Text(), nullable=False, server_default=""),
        sa.Column("seen_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False, server_default=""),
        sa.Column("told", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("data", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name="fk_attempt_nodes_attempt_id", ondelete="CASCADE"
        ),
    )
