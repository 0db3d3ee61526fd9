"""The tables. Migrations are in migrations/; a test asserts that both agree."""

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite counts up only INTEGER keys
Seconds = sa.Double
Offset = sa.BigInteger

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    sa.Column("created_at", Seconds, nullable=False),
)

sessions = sa.Table(
    "sessions",  # of browsers; a session ends with its token
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),  # of what the cookie holds
    sa.Column("token_id", sa.ForeignKey("tokens.id", ondelete="CASCADE"), nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("expires_at", Seconds, nullable=False),
    sa.Index("ix_sessions_token_id", "token_id"),
)

links = sa.Table(
    "links",  # that sign somebody in, once
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),  # of the code in the address
    sa.Column("token_id", sa.ForeignKey("tokens.id", ondelete="CASCADE"), nullable=False),
    sa.Column("expires_at", Seconds, nullable=False),
    sa.Index("ix_links_token_id", "token_id"),
)

secrets = sa.Table(
    "secrets",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("updated_at", Seconds, nullable=False),
)

pools = sa.Table(
    "pools",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("engine", sa.Text, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("price", sa.Double, nullable=False),
    sa.Column("provider", sa.Text, nullable=False, server_default=""),
    sa.Column("region", sa.Text, nullable=False, server_default=""),
    sa.Column("kind", sa.Text, nullable=False, server_default=""),  # the class of its machines
    sa.Column("market", sa.Text, nullable=False, server_default="on_demand"),
    sa.Column("rank", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("hosts", sa.JSON, nullable=False, server_default=sa.text("'[]'")),  # name and slots of each, in order
    sa.Column("notices", sa.JSON, nullable=False, server_default=sa.text("'{}'")),  # source -> where it is asked
    sa.Column("devices", sa.JSON),  # by slot; null: a slot's number is its device's
    sa.Column("settings", sa.JSON, nullable=False, server_default=sa.text("'{}'")),  # of its engine
)

pool_sizes = sa.Table(
    "pool_sizes",  # every change of a size: when there was capacity, and for how long
    metadata,
    sa.Column("id", Key, primary_key=True),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Index("ix_pool_sizes_pool_at", "pool", "at"),
)

hosts = sa.Table(
    "hosts",  # what people have said of one; how it did is in the attempts
    metadata,
    sa.Column("pool", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("excluded_at", Seconds),
    sa.Column("excluded_until", Seconds),  # null while excluded: until somebody readmits it
    sa.Column("excluded_by", sa.Text, nullable=False, server_default=""),
    sa.Column("readmitted_at", Seconds),  # what it did before counts no more
    sa.Column("note", sa.Text, nullable=False, server_default=""),
)

workflows = sa.Table(
    "workflows",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("note", sa.Text, nullable=False, default=""),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("number", Key, nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("project", sa.Text, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("recovering", sa.Boolean, nullable=False, default=False),
    sa.Column("attention", sa.Text),
    # The request beside the state: NONE, PAUSE or KILL, only ever raised (resume clears a pause).
    sa.Column("request", sa.Integer, nullable=False, default=0),
    sa.Column("request_seq", sa.Integer, nullable=False, default=0),
    sa.Column("request_latest", sa.Boolean, nullable=False, default=False),
    sa.Column("request_by", sa.Text, nullable=False, default=""),
    sa.Column("request_at", Seconds),
    sa.Column("kill_grace", sa.Double),
    sa.Column("discard", sa.Boolean, nullable=False, default=False),
    sa.Column("estimate", sa.Double),  # credits: what it will cost, as said at submit; would have, when it was killed
    sa.Column("note", sa.Text, nullable=False, default=""),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("bundle", sa.Text),
    sa.Column("in_place", sa.Text),
    sa.Column("env", sa.JSON, nullable=False),
    sa.Column("commit", sa.Text),
    sa.Column("dirty", sa.Boolean),
    sa.Column("workflow", sa.Text),
    sa.Column("parent_run", sa.Text),
    sa.Column("parent_step", Offset),
    sa.Column("relation", sa.Text),
    sa.Column("budget", sa.Double),
    sa.Column("deadline_at", Seconds),
    sa.Column("created_by", sa.Text, nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("started_at", Seconds),
    sa.Column("ended_at", Seconds),
    sa.Column("key", sa.Text, unique=True),
    sa.Column("attempts", sa.Integer, nullable=False, default=0),  # the last attempt's number: the fence
    # Where it keeps its checkpoints, for good: a directory or s3://bucket/prefix/RUN; null: in the data directory.
    sa.Column("storage", sa.Text),
    sa.Column("storage_options", sa.JSON),
    sa.Column("changed", Offset, nullable=False, default=0),  # seq of the last event: the clock of the run list
    sa.Index("ix_runs_state_priority_number", "state", "priority", "number"),
    sa.Index("ix_runs_changed", "changed"),
    sa.Index("ix_runs_name", "name"),
    sa.Index("ix_runs_project_number", "project", "number"),
)

phases = sa.Table(
    "phases",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("run_id", sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("ordinal", sa.Integer, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("needs", sa.JSON, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("retries", sa.Integer, nullable=False),
    sa.Column("errors_used", sa.Integer, nullable=False, default=0),
    sa.Column("faults", sa.Integer, nullable=False, default=0),
    sa.Column("fault_step", Offset, nullable=False, default=0),
    sa.Column("not_before", Seconds, nullable=False, default=0),
    sa.Column("stop_seq", sa.Integer, nullable=False, default=0),  # 0 = no stop asked for
    sa.Column("stop_by", sa.Text, nullable=False, default=""),
    sa.Column("stop_at", Seconds),
    sa.Column("stop_reasons", sa.JSON, nullable=False),
    sa.Column("from_start", sa.Boolean, nullable=False, default=False),  # a person allowed a start at step 0
    sa.Column("restore_from", sa.Text),  # continue: the checkpoint it starts from
    # Steering. Like every request: beside the state, durable before the answer.
    sa.Column("save_seq", sa.Integer, nullable=False, server_default=sa.text("0")),  # saves asked for
    sa.Column("save_at", Seconds),  # when the last one was asked for
    sa.Column("saves_done", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("saved_step", Offset),  # of the checkpoint that answered the last one
    sa.Column("steering", sa.JSON, nullable=False, server_default=sa.text("'[]'")),  # see services/changes.py
    sa.Column("params", sa.JSON, nullable=False, server_default=sa.text("'{}'")),  # as the program declared them
    sa.Column("ready_at", Seconds),  # since when it waits for capacity
    sa.Column("failure", sa.Text),  # what its last error looked like
    sa.Column("failure_step", Offset),  # of the newest checkpoint then
    # Guards. What they have decided is beside the state, like every request.
    sa.Column("guarded", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("unjudged", sa.Integer),  # an attempt that ended badly, and has not been looked at yet
    sa.Column("verdict", sa.JSON),  # attempt, fails, text: what follows from its end
    sa.Column("skips", sa.JSON, nullable=False, server_default=sa.text("'[]'")),  # domain.skipping: batches
    sa.Column("passed_over", sa.JSON, nullable=False, server_default=sa.text("'[]'")),  # see store/checkpoints.py
    sa.UniqueConstraint("run_id", "ordinal"),
    sa.Index("ix_phases_state", "state"),
)
sa.Index(
    "ix_phases_unjudged",
    phases.c.run_id,
    sqlite_where=phases.c.unjudged.is_not(None),
    postgresql_where=phases.c.unjudged.is_not(None),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("run_id", sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("phase_id", sa.ForeignKey("phases.id", ondelete="CASCADE"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("stage", sa.Text, nullable=False),
    sa.Column("up", sa.Boolean, nullable=False, default=False),
    sa.Column("reason", sa.Text),
    sa.Column("text", sa.Text, nullable=False, default=""),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("slots", sa.JSON, nullable=False),
    sa.Column("price", sa.Double, nullable=False),
    sa.Column("market", sa.Text),  # of its pool when it began; null: from before there were markets
    sa.Column("host", sa.Text),
    sa.Column("token_hash", sa.Text, nullable=False),
    sa.Column("started_at", Seconds, nullable=False),
    sa.Column("ended_at", Seconds),
    sa.Column("seen_at", Seconds),
    sa.Column("resumed_from", Offset),
    sa.Column("last_step", Offset),
    sa.Column("exit_code", sa.Integer),
    sa.Column("signal", sa.Text),
    sa.Column("progress", sa.JSON),
    sa.Column("ladder", sa.JSON),
    sa.Column("dropped", Offset, nullable=False, default=0),
    sa.Column("fresh", sa.Boolean, nullable=False, default=False),  # starts at step 0, as a person allowed
    sa.Column("forgotten", sa.Boolean, nullable=False, default=False),  # the engine keeps nothing of it any more
    sa.Column("why_here", sa.Text, nullable=False, server_default=""),
    sa.Column("queued_at", Seconds),  # since when its phase had waited
    sa.Column("loop_at", Seconds),  # when its loop was reached
    sa.Column("committed_at", Seconds),  # its first checkpoint
    sa.Column("stopping_at", Seconds),  # when it heard that it has to end
    # We take its capacity away: by when it has to be gone.
    sa.Column("preempt_at", Seconds),
    sa.Column("preempt_asked_at", Seconds),
    sa.Column("preempt_by", sa.Text, nullable=False, server_default=""),
    sa.Column("preempt_why", sa.Text, nullable=False, server_default=""),
    sa.Column("nodes", sa.Integer, nullable=False, server_default=sa.text("1")),
    sa.Column("pending", sa.Text, nullable=False, server_default=""),  # why its cluster has not begun it yet
    sa.UniqueConstraint("run_id", "number"),
    sa.Index("ix_attempts_phase_id", "phase_id"),
    sa.Index("ix_attempts_token_hash", "token_hash"),
    sa.Index("ix_attempts_forgotten", "forgotten"),
    sa.Index("ix_attempts_reason_ended_at", "reason", "ended_at"),  # how long stops took, the newest ones
    sa.Index("ix_attempts_pool_ended_at", "pool", "ended_at"),  # how a pool has treated its last ones
    sa.Index("ix_attempts_host_ended_at", "host", "ended_at"),
)
# Two live attempts of one phase never coexist: the database itself refuses the second.
sa.Index(
    "uq_attempts_live",
    attempts.c.phase_id,
    unique=True,
    sqlite_where=attempts.c.state == "started",
    postgresql_where=attempts.c.state == "started",
)

attempt_nodes = sa.Table(
    "attempt_nodes",  # of attempts on several nodes: where each is, and how it ended
    metadata,
    sa.Column("attempt_id", sa.ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("node", sa.Integer, primary_key=True),
    sa.Column("host", sa.Text, nullable=False, server_default=""),
    sa.Column("seen_at", Seconds),
    sa.Column("ended_at", Seconds),
    sa.Column("reason", sa.Text),
    sa.Column("text", sa.Text, nullable=False, server_default=""),
    sa.Column("told", sa.Boolean, nullable=False, server_default=sa.false()),  # to leave, because of another node
    sa.Column("data", sa.JSON),  # of its `ended`
)

streams = sa.Table(
    "streams",
    metadata,
    sa.Column("attempt_id", sa.ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("stream", sa.Text, primary_key=True),
    sa.Column("offset", Offset, nullable=False),
    sa.Column("records", Offset, nullable=False),  # log lines or metric records so far
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("seq", Key, primary_key=True),
    sa.Column("run_id", sa.Text, nullable=False),  # no foreign key: a deletion is an event too
    sa.Column("at", Seconds, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("phase", sa.Text),
    sa.Column("attempt", sa.Integer),
    sa.Column("data", sa.JSON, nullable=False),
    sa.Index("ix_events_run_id_seq", "run_id", "seq"),
    sa.Index("ix_events_run_id_kind_attempt_seq", "run_id", "kind", "attempt", "seq"),  # marks of a timeline
    sqlite_autoincrement=True,  # a number is never given twice, also after a delete
)
# Of these few alone, so that no other event costs anything.
sa.Index(
    "ix_events_deleted",
    events.c.seq,
    events.c.run_id,
    sqlite_where=events.c.kind == "deleted",
    postgresql_where=events.c.kind == "deleted",
)

log_chunks = sa.Table(
    "log_chunks",
    metadata,
    sa.Column("attempt_id", sa.ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("first_line", Offset, primary_key=True),  # from 1
    sa.Column("lines", sa.Integer, nullable=False),
    sa.Column("raw_bytes", sa.Integer, nullable=False),
    sa.Column("first_at", Seconds, nullable=False),
    sa.Column("last_at", Seconds, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),  # zstd of the LogLine records
)

metric_shapes = sa.Table(
    "metric_shapes",
    metadata,
    sa.Column("attempt_id", sa.ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("stream", sa.Text, primary_key=True),
    sa.Column("shape", sa.Integer, primary_key=True),
    sa.Column("names", sa.JSON, nullable=False),
)

metric_chunks = sa.Table(
    "metric_chunks",
    metadata,
    sa.Column("attempt_id", sa.ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("first_record", Offset, primary_key=True),  # number of the journal record, over all its shapes
    sa.Column("last_record", Offset, nullable=False),
    sa.Column("points", sa.Integer, nullable=False),
    sa.Column("open", sa.Boolean, nullable=False),  # not full yet: at most one per series, the one that grows
    sa.Column("first_step", Offset, nullable=False),
    sa.Column("last_step", Offset, nullable=False),
    sa.Column("low", sa.Double),  # of the finite values: a chart can skip what it does not show
    sa.Column("high", sa.Double),
    sa.Column("nonfinite", sa.Integer, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),  # packed: record, step, time, value
    sa.Index("ix_metric_chunks_open", "attempt_id", "open"),
    sa.Index("ix_metric_chunks_last_record", "attempt_id", "last_record"),
)

metric_series = sa.Table(
    "metric_series",  # what is known of a series without reading its points
    metadata,
    sa.Column("id", Key, primary_key=True),
    sa.Column("attempt_id", sa.ForeignKey("attempts.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),  # program, system or rank
    sa.Column("points", Offset, nullable=False),
    sa.Column("chunks", sa.Integer, nullable=False),  # full ones: all of them are in the rollups
    sa.Column("open_record", Offset),  # first_record of the chunk that grows
    sa.Column("first_step", Offset, nullable=False),  # the lowest and the highest, in whatever order they came
    sa.Column("last_step", Offset, nullable=False),
    sa.Column("first_time", Seconds, nullable=False),
    sa.Column("last_time", Seconds, nullable=False),
    sa.Column("low", sa.Double),  # of the finite values
    sa.Column("high", sa.Double),
    sa.Column("nonfinite", Offset, nullable=False),
    sa.Column("step", Offset, nullable=False),  # of the newest point
    sa.Column("at", Seconds, nullable=False),
    sa.Column("value", sa.Double),
    sa.Column("odd", sa.Text),  # nan, inf or -inf, where `value` is null: SQLite stores no NaN
    sa.UniqueConstraint("attempt_id", "name"),
)

metric_rollups = sa.Table(
    "metric_rollups",
    metadata,
    sa.Column("series_id", sa.ForeignKey("metric_series.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("level", sa.Integer, primary_key=True),  # a bucket of level k sums up 16 ** k points
    sa.Column("number", sa.Integer, primary_key=True),  # of the row, which holds 256 buckets
    sa.Column("first_record", Offset, nullable=False),  # at level 1: of the chunk that the row sums up; above: 0
    sa.Column("data", sa.LargeBinary, nullable=False),  # packed: the columns in store/buckets.py
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("run_id", sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("step", Offset, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("bytes", Offset, nullable=False),
    sa.Column("committed_at", Seconds, nullable=False),
    sa.Column("verified", sa.Boolean, nullable=False),
    sa.Column("pinned", sa.Boolean, nullable=False, default=False),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("healthy", sa.Boolean, nullable=False, server_default=sa.true()),  # False: never resumed from
    sa.Column("block_seconds", Seconds),  # how long the loop waited for it
    sa.Column("upload_seconds", Seconds),  # from there until it was durable
    sa.Column("written", Offset),  # bytes; those that an earlier one had are not written again
    sa.Column("why", sa.Text, nullable=False, server_default=""),
    sa.Column("trashed_until", Seconds),  # removed: it counts no more, but can be had back until then
    sa.Column("verified_at", Seconds),  # when every byte was read back last
    sa.Index("ix_checkpoints_run_id_phase_step", "run_id", "phase", "step"),
)
sa.Index(
    "ix_checkpoints_trashed_until",
    checkpoints.c.trashed_until,
    sqlite_where=checkpoints.c.trashed_until.is_not(None),
    postgresql_where=checkpoints.c.trashed_until.is_not(None),
)

trash = sa.Table(
    "trash",  # directories of deleted things: written with the delete, removed afterwards, so that none is leaked
    metadata,
    sa.Column("path", sa.Text, primary_key=True),  # or the address of a run's checkpoints: s3://bucket/prefix/RUN
    sa.Column("at", Seconds, nullable=False),
    sa.Column("options", sa.JSON),  # how such an address is reached
)

deleted_attempts = sa.Table(
    "deleted_attempts",  # so that a runner of a deleted run is told so, and no other is
    metadata,
    sa.Column("token_hash", sa.Text, primary_key=True),
)

owner = sa.Table(
    "owner",  # one row: the data directory that this database belongs to
    metadata,
    sa.Column("data_id", sa.Text, primary_key=True),
)

deleted_runs = sa.Table(
    "deleted_runs",  # so that a number never means two runs
    metadata,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("number", Key, nullable=False),
)

ledger = sa.Table(
    "ledger",  # append-only; no foreign keys: what was spent outlives a deleted run
    metadata,
    sa.Column("id", Key, primary_key=True),
    sa.Column("attempt_id", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("number", Key, nullable=False),
    sa.Column("run_name", sa.Text, nullable=False),
    sa.Column("project", sa.Text, nullable=False),
    sa.Column("workflow", sa.Text),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("market", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),  # domain.ledger.Kind: how this time was spent
    sa.Column("since", Seconds, nullable=False),
    sa.Column("until", Seconds, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("price", sa.Double, nullable=False),  # credits per slot-hour, as it was then
    sa.Column("credits", sa.Double, nullable=False),
    sa.Index("ix_ledger_attempt_id", "attempt_id"),
    sa.Index("ix_ledger_run_id", "run_id"),
    sa.Index("ix_ledger_until", "until"),
    sa.Index("ix_ledger_project_until", "project", "until"),
)

budgets = sa.Table(
    "budgets",  # of projects
    metadata,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("credits", sa.Double, nullable=False),
    sa.Column("since", Seconds, nullable=False),  # what was spent before is not counted
    sa.Column("by", sa.Text, nullable=False),
)

findings = sa.Table(
    "findings",  # what a diagnosis has found: a row for as long as it holds, in one attempt
    metadata,
    sa.Column("id", Key, primary_key=True),
    sa.Column("run_id", sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("phase_id", sa.ForeignKey("phases.id", ondelete="CASCADE"), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),  # its number
    sa.Column("cause", sa.Text, nullable=False),  # diagnosis.findings.Cause
    sa.Column("confidence", sa.Double, nullable=False),
    sa.Column("says", sa.Text, nullable=False),
    sa.Column("evidence", sa.JSON, nullable=False),
    sa.Column("do", sa.Text, nullable=False),
    sa.Column("metric", sa.Text, nullable=False),
    sa.Column("step", Offset),
    sa.Column("rank", sa.Integer),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("first_at", Seconds, nullable=False),
    sa.Column("last_at", Seconds, nullable=False),
    sa.Column("over_at", Seconds),
    sa.Index("ix_findings_run_id", "run_id"),
)
sa.Index(
    "uq_findings_open",
    findings.c.phase_id,
    findings.c.cause,
    findings.c.metric,
    unique=True,
    sqlite_where=findings.c.over_at.is_(None),
    postgresql_where=findings.c.over_at.is_(None),
)

guard_acts = sa.Table(
    "guard_acts",  # what guards have done, written in the transaction in which it is asked for
    metadata,
    sa.Column("id", Key, primary_key=True),
    sa.Column("run_id", sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("phase_id", sa.ForeignKey("phases.id", ondelete="CASCADE"), nullable=False),
    sa.Column("guard", sa.Integer, nullable=False),  # its place in the spec
    sa.Column("finding", Key, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("do", sa.Text, nullable=False),
    sa.Column("dry", sa.Boolean, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.UniqueConstraint("phase_id", "guard", "finding"),  # each acts once upon a finding, whatever crashes
    sa.Index("ix_guard_acts_run_id", "run_id"),
)

receivers = sa.Table(
    "receivers",  # of alerts
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),  # webhook or apprise
    sa.Column("address", sa.LargeBinary, nullable=False),  # sealed: whoever knows it can post there
    sa.Column("masked", sa.Text, nullable=False),  # what may be shown of it
    sa.Column("secret", sa.LargeBinary),  # sealed: what its webhooks are signed with
    sa.Column("project", sa.Text),  # null: of all
    sa.Column("only_named", sa.Boolean, nullable=False, server_default=sa.false()),  # of runs that name it, alone
    sa.Column("kinds", sa.JSON, nullable=False),
    sa.Column("after", Offset, nullable=False),  # the newest event when it was added: it hears of later ones
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
    # Its alerts go out in their order, so it is the receiver that fails, not one of them.
    sa.Column("failures", sa.Integer, nullable=False, server_default=sa.text("0")),  # in a row
    sa.Column("failing_since", Seconds),
    sa.Column("next_at", Seconds, nullable=False, server_default=sa.text("0")),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
    sa.Column("sent_at", Seconds),  # the last one that it took
)

alerts = sa.Table(
    "alerts",  # the outbox: each is written once, as it will be sent, however often that takes
    metadata,
    sa.Column("id", Key, primary_key=True),
    sa.Column("delivery", sa.Text, nullable=False, unique=True),  # the same over all its tries
    sa.Column("receiver", sa.ForeignKey("receivers.name", ondelete="CASCADE"), nullable=False),
    sa.Column("event", Offset),  # its number; null: of a test
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # JSON
    sa.Column("state", sa.Text, nullable=False, server_default="waiting"),  # or sent, or given_up
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("ended_at", Seconds),
    sa.Column("error", sa.Text, nullable=False, server_default=""),  # of the last try
    sa.UniqueConstraint("receiver", "event", "kind"),
    sa.Index("ix_alerts_run_id", "run_id"),
    sa.Index("ix_alerts_ended_at", "ended_at"),
    sqlite_autoincrement=True,
)
sa.Index(
    "ix_alerts_waiting",
    alerts.c.receiver,
    alerts.c.id,
    sqlite_where=alerts.c.state == "waiting",
    postgresql_where=alerts.c.state == "waiting",
)

alert_episodes = sa.Table(
    "alert_episodes",  # what lasts, and was told of when it began
    metadata,
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("at", Seconds, nullable=False),
)

alert_cursor = sa.Table(
    "alert_cursor",  # one row: the last event that was looked at
    metadata,
    sa.Column("seq", Offset, primary_key=True, autoincrement=False),
)
