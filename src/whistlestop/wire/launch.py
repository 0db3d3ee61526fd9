"""What an engine hands to a runner: one attempt, complete. Stored as launch.json in the attempt's directory.

Secrets are not in it: they reach the runner through its standard input and never touch the disk.
"""

from typing import Any

import msgspec

from whistlestop.wire.frames import Change


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that an earlier phase left."""

    phase: str
    path: str | None = None  # where it lies, if not among this run's own: a run that continues another
    options: dict[str, str] | None = None  # of the storage in which `path` lies; None: the run's own


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    attempt_id: str
    attempt_number: int  # rises over the whole run: the fence of every write
    run_id: str
    run_name: str
    phase: str
    kind: str  # train | task
    command: list[str]
    env: dict[str, str]  # complete, without secrets
    secret_names: list[str] = []  # names of the variables that come through standard input
    directory: str  # the attempt's own directory: channel, journals, logs, lock
    workdir: str  # where the code is laid out; shared by the attempts of a run
    cwd: str = "."  # inside workdir
    bundle: str | None = None  # path of the tar that holds the code; None = run in place in workdir
    checkpoints: str  # root of the run's checkpoints on this machine
    storage: str | None = None  # where they are kept instead: the run's own root, s3://bucket/prefix/RUN
    storage_options: dict[str, str] = {}  # no secrets: region, endpoint
    storage_worked: bool = False  # for an earlier attempt of this run: it is waited for, should it be away now
    preemption_rate: float | None = None  # of this pool, per second, without notice; None: nobody knows yet
    restore: bool = True  # resume from this phase's newest verified checkpoint, if there is one
    restore_from: str | None = None  # directory to start from if this phase has none of its own: `continue`
    restore_options: dict[str, str] | None = None  # of the storage in which that lies; None: the run's own
    fetch_beside: bool = False  # the program is known to wait for what is restored: it may start meanwhile
    must_restore: bool = False  # checkpoints were committed before: starting without one is refused
    inputs: list[Input] = []
    checkpoint_every: list[str] = []
    checkpoint_keep: int = 3
    checkpoint_policy: dict[str, Any] = {}  # best, by, mode, every: what retention leaves beside the newest
    checkpoint_protected: list[str] = []  # ids that retention leaves alone: pinned, best, used elsewhere
    stop_when: str = "[]"  # JSON
    steering: list[Change] = []  # changes that were asked for, each with the step at which it was applied before
    slots: list[int]
    time_limit: float | None = None  # seconds this attempt may still run
    limit_reason: str = "time_limit"  # what the limit comes from: time_limit, budget_exhausted or deadline
    ladder: dict[str, float]  # flag, interrupt, terminate, attach, kill_save: seconds
    server: str  # ws://127.0.0.1:7333/api/v1/runner
    token: str  # good for this attempt alone
    server_file: str | None = None  # read again before each reconnect: the server may come back on another port
    log_limit: int = 1 << 30  # bytes of log kept for this attempt; what comes after is counted, not kept
    sdk_path: str | None = None  # put on PYTHONPATH
    sample_every: float = 5.0  # seconds between system samples
