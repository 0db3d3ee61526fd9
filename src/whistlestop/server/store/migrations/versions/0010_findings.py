"""What a diagnosis has found, what guards have done about it, and what they have decided about a phase. Frozen."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("phases", sa.Column("guarded", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("phases", sa.Column("unjudged", sa.Integer(), nullable=True))
    op.add_column("phases", sa.Column("verdict", sa.JSON(), nullable=True))
    for name in ("skips", "passed_over"):
        op.add_column("phases", sa.Column(name, sa.JSON(), nullable=False, server_default=sa.text("'[]'")))
    here = sa.text("unjudged IS NOT NULL")
    op.create_index("ix_phases_unjudged", "phases", ["run_id"], sqlite_where=here, postgresql_where=here)
    op.create_table(
        "findings",
        sa.Column("id", KEY, primary_key=True),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("phase_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("says", sa.Text(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("do", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("first_at", sa.Double(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.Column("over_at", sa.Double(), nullable=True),
        *_of_phase("findings"),
    )
    op.create_index("ix_findings_run_id", "findings", ["run_id"])
    holds, columns = sa.text("over_at IS NULL"), ["phase_id", "cause", "metric"]
    op.create_index("uq_findings_open", "findings", columns, unique=True, sqlite_where=holds, postgresql_where=holds)
    op.create_table(
        "guard_acts",
        sa.Column("id", KEY, primary_key=True),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("phase_id", sa.Text(), nullable=False),
        sa.Column("guard", sa.Integer(), nullable=False),
        sa.Column("finding", KEY, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("do", sa.Text(), nullable=False),
        sa.Column("dry", sa.Boolean(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.UniqueConstraint("phase_id", "guard", "finding", name="uq_guard_acts_phase_id_guard_finding"),
        *_of_phase("guard_acts"),
    )
    op.create_index("ix_guard_acts_run_id", "guard_acts", ["run_id"])


def _of_phase(table: str) -> tuple[sa.ForeignKeyConstraint, ...]:
    return (
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=f"fk_{table}_run_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["phase_id"], ["phases.id"], name=f"fk_{table}_phase_id", ondelete="CASCADE"),
    )
