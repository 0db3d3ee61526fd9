"""Steering a live run, and checkpoints that nobody should resume from. Frozen."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # Each has a default in the database itself: rows of before get it, and SQLite adds such a column in place.
    op.add_column("phases", sa.Column("save_seq", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("phases", sa.Column("save_at", sa.Double(), nullable=True))
    op.add_column("phases", sa.Column("saves_done", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("phases", sa.Column("saved_step", sa.BigInteger(), nullable=True))
    op.add_column("phases", sa.Column("steering", sa.JSON(), nullable=False, server_default=sa.text("'[]'")))
    op.add_column("phases", sa.Column("params", sa.JSON(), nullable=False, server_default=sa.text("'{}'")))
    op.add_column("checkpoints", sa.Column("healthy", sa.Boolean(), nullable=False, server_default=sa.true()))
