"""What a chart needs beside the points: one row per series, and a pyramid of buckets over its full chunks. Frozen.

Points of before get theirs when the server starts: see store/rollups.py."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "metric_series",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("points", sa.BigInteger(), nullable=False),
        sa.Column("chunks", sa.Integer(), nullable=False),
        sa.Column("open_record", sa.BigInteger(), nullable=True),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("first_time", sa.Double(), nullable=False),
        sa.Column("last_time", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("nonfinite", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("odd", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_metric_series"),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name="fk_metric_series_attempt_id", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("attempt_id", "name", name="uq_metric_series_attempt_id_name"),
    )
    op.create_table(
        "metric_rollups",
        sa.Column("series_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("first_record", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("series_id", "level", "number", name="pk_metric_rollups"),
        sa.ForeignKeyConstraint(
            ["series_id"], ["metric_series.id"], name="fk_metric_rollups_series_id", ondelete="CASCADE"
        ),
    )
