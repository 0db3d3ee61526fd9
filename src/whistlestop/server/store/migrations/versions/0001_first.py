"""The first schema. Frozen: a change to schema.py is a new file beside this one."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "deleted_attempts",
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("token_hash", name=("pk_deleted_attempts")),
    )
    op.create_table(
        "deleted_runs",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name=("pk_deleted_runs")),
    )
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_run_id_seq", "events", ["run_id", "seq"], unique=False)
    op.create_table(
        "owner", sa.Column("data_id", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("data_id", name=("pk_owner"))
    )
    op.create_table(
        "pools",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("price", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=("pk_pools")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("recovering", sa.Boolean(), nullable=False),
        sa.Column("attention", sa.Text(), nullable=True),
        sa.Column("request", sa.Integer(), nullable=False),
        sa.Column("request_seq", sa.Integer(), nullable=False),
        sa.Column("request_latest", sa.Boolean(), nullable=False),
        sa.Column("request_by", sa.Text(), nullable=False),
        sa.Column("request_at", sa.Double(), nullable=True),
        sa.Column("kill_grace", sa.Double(), nullable=True),
        sa.Column("discard", sa.Boolean(), nullable=False),
        sa.Column("estimate", sa.Double(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("bundle", sa.Text(), nullable=True),
        sa.Column("in_place", sa.Text(), nullable=True),
        sa.Column("env", sa.JSON(), nullable=False),
        sa.Column("commit", sa.Text(), nullable=True),
        sa.Column("dirty", sa.Boolean(), nullable=True),
        sa.Column("workflow", sa.Text(), nullable=True),
        sa.Column("parent_run", sa.Text(), nullable=True),
        sa.Column("parent_step", sa.BigInteger(), nullable=True),
        sa.Column("relation", sa.Text(), nullable=True),
        sa.Column("budget", sa.Double(), nullable=True),
        sa.Column("deadline_at", sa.Double(), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=("pk_runs")),
        sa.UniqueConstraint("key", name=("uq_runs_key")),
        sa.UniqueConstraint("number", name=("uq_runs_number")),
    )
    op.create_index("ix_runs_changed", "runs", ["changed"], unique=False)
    op.create_index("ix_runs_name", "runs", ["name"], unique=False)
    op.create_index("ix_runs_project_number", "runs", ["project", "number"], unique=False)
    op.create_index("ix_runs_state_priority_number", "runs", ["state", "priority", "number"], unique=False)
    op.create_table(
        "secrets",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=("pk_secrets")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=("pk_tokens")),
        sa.UniqueConstraint("hash", name=("uq_tokens_hash")),
    )
    op.create_table(
        "trash",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("path", name=("pk_trash")),
    )
    op.create_table(
        "workflows",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", "version", name=("pk_workflows")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("committed_at", sa.Double(), nullable=False),
        sa.Column("verified", sa.Boolean(), nullable=False),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=("fk_checkpoints_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=("pk_checkpoints")),
    )
    op.create_index("ix_checkpoints_run_id_phase_step", "checkpoints", ["run_id", "phase", "step"], unique=False)
    op.create_table(
        "phases",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("needs", sa.JSON(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("errors_used", sa.Integer(), nullable=False),
        sa.Column("faults", sa.Integer(), nullable=False),
        sa.Column("fault_step", sa.BigInteger(), nullable=False),
        sa.Column("not_before", sa.Double(), nullable=False),
        sa.Column("stop_seq", sa.Integer(), nullable=False),
        sa.Column("stop_by", sa.Text(), nullable=False),
        sa.Column("stop_at", sa.Double(), nullable=True),
        sa.Column("stop_reasons", sa.JSON(), nullable=False),
        sa.Column("from_start", sa.Boolean(), nullable=False),
        sa.Column("restore_from", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=("fk_phases_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=("pk_phases")),
        sa.UniqueConstraint("run_id", "ordinal", name=("uq_phases_run_id_ordinal")),
    )
    op.create_index("ix_phases_state", "phases", ["state"], unique=False)
    op.create_table(
        "attempts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("phase_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("up", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("slots", sa.JSON(), nullable=False),
        sa.Column("price", sa.Double(), nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("seen_at", sa.Double(), nullable=True),
        sa.Column("resumed_from", sa.BigInteger(), nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Text(), nullable=True),
        sa.Column("progress", sa.JSON(), nullable=True),
        sa.Column("ladder", sa.JSON(), nullable=True),
        sa.Column("dropped", sa.BigInteger(), nullable=False),
        sa.Column("fresh", sa.Boolean(), nullable=False),
        sa.Column("forgotten", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["phase_id"], ["phases.id"], name=("fk_attempts_phase_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=("fk_attempts_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=("pk_attempts")),
        sa.UniqueConstraint("run_id", "number", name=("uq_attempts_run_id_number")),
    )
    op.create_index("ix_attempts_forgotten", "attempts", ["forgotten"], unique=False)
    op.create_index("ix_attempts_phase_id", "attempts", ["phase_id"], unique=False)
    op.create_index("ix_attempts_token_hash", "attempts", ["token_hash"], unique=False)
    op.create_index(
        "uq_attempts_live",
        "attempts",
        ["phase_id"],
        unique=True,
        sqlite_where=sa.text("state = 'started'"),
        postgresql_where=sa.text("state = 'started'"),
    )
    op.create_table(
        "log_chunks",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("first_line", sa.BigInteger(), nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("raw_bytes", sa.Integer(), nullable=False),
        sa.Column("first_at", sa.Double(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=("fk_log_chunks_attempt_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attempt_id", "first_line", name=("pk_log_chunks")),
    )
    op.create_table(
        "metric_chunks",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("first_record", sa.BigInteger(), nullable=False),
        sa.Column("last_record", sa.BigInteger(), nullable=False),
        sa.Column("points", sa.Integer(), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("nonfinite", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=("fk_metric_chunks_attempt_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", "name", "first_record", name=("pk_metric_chunks")),
    )
    op.create_index("ix_metric_chunks_last_record", "metric_chunks", ["attempt_id", "last_record"], unique=False)
    op.create_index("ix_metric_chunks_open", "metric_chunks", ["attempt_id", "open"], unique=False)
    op.create_table(
        "metric_shapes",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("shape", sa.Integer(), nullable=False),
        sa.Column("names", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=("fk_metric_shapes_attempt_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", "stream", "shape", name=("pk_metric_shapes")),
    )
    op.create_table(
        "streams",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=("fk_streams_attempt_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attempt_id", "stream", name=("pk_streams")),
    )
