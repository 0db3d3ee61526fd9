"""What a checkpoint took, why it was made, when it was read back, and until when a removed one can be had back; and
where a run keeps its checkpoints, if not in the data directory; and a pool's newest attempts by themselves. Frozen."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("checkpoints", sa.Column("block_seconds", sa.Double(), nullable=True))
    op.add_column("checkpoints", sa.Column("upload_seconds", sa.Double(), nullable=True))
    op.add_column("checkpoints", sa.Column("written", sa.BigInteger(), nullable=True))
    op.add_column("checkpoints", sa.Column("why", sa.Text(), nullable=False, server_default=""))
    op.add_column("checkpoints", sa.Column("trashed_until", sa.Double(), nullable=True))
    op.add_column("checkpoints", sa.Column("verified_at", sa.Double(), nullable=True))
    op.create_index(
        "ix_checkpoints_trashed_until",
        "checkpoints",
        ["trashed_until"],
        sqlite_where=sa.text("trashed_until IS NOT NULL"),
        postgresql_where=sa.text("trashed_until IS NOT NULL"),
    )
    op.create_index("ix_attempts_pool_ended_at", "attempts", ["pool", "ended_at"])
    op.add_column("runs", sa.Column("storage", sa.Text(), nullable=True))
    op.add_column("runs", sa.Column("storage_options", sa.JSON(), nullable=True))
    op.add_column("trash", sa.Column("options", sa.JSON(), nullable=True))
