"""What an engine hands to a runner: one attempt, complete. Stored as launch.json in the attempt's directory.

Secrets are not in it: they reach the runner through its standard input and never touch the disk.
"""

from typing import Any

import msgspec

from whistlestop.wire.frames import Change


def http_of(socket: str) -> str:
    """ws://host:port/… as http://host:port"""
    scheme, _, rest = socket.partition("://")
    return f"{'https' if scheme == 'wss' else 'http'}://{rest.partition('/')[0]}"


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that an earlier phase left."""

    phase: str
    path: str | None = None  # where it lies, if not among this run's own: a run that continues another
    options: dict[str, str] | None = None  # of the storage in which `path` lies; None: the run's own
    passed_over: list[list[int]] = []  # as in Launch, of that phase


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """What a node of a cluster is given to begin with: engines/boot.py asks the server for the rest."""

    server: str  # http://host:port, as the nodes reach it
    token: str  # good for this attempt alone
    root: str  # on the node: where code, attempts and what they leave are kept
    node: int = 0  # where nothing else tells
    host: str = ""  # as the cluster calls this node; empty: as it calls itself
    address: str = ""  # as in Launch
    witness: list[str] = []  # as in Launch
    forgets: bool = True  # as in Launch
    grace: float | None = None  # seconds between the cluster's SIGTERM and the end
    ahead: float | None = None  # seconds between its SIGUSR2 and the end


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The server's answer."""

    launch: "Launch"
    secrets: dict[str, str]
    seat: str  # name of the attempt's directory on the node
    bundle: str | None  # hash of the run's code
    kit: str  # hash of ours
    own: list[str] = []  # variables that the phase sets itself: what a pool's prolog sets does not change them


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
    checkpoint_damaged: list[str] = []  # where those are that were found so: on several nodes each looks at its part
    inputs: list[Input] = []
    checkpoint_every: list[str] = []
    checkpoint_keep: int = 3
    checkpoint_policy: dict[str, Any] = {}  # best, by, mode, every: what retention leaves beside the newest
    checkpoint_protected: list[str] = []  # ids that retention leaves alone: pinned, best, used elsewhere
    stop_when: str = "[]"  # JSON
    steering: list[Change] = []  # changes that were asked for, each with the step at which it was applied before
    skip: list[list[int]] = []  # batches that are not trained on: domain.skipping
    passed_over: list[list[int]] = []  # checkpoints that a guard rolled back behind: domain.checkpoints
    slots: list[int]  # of this node
    node: int = 0  # which of several this one is
    nodes: int = 1
    ranks: int = 0  # processes that are started here, each told which it is; 0: the command, once
    address: str = ""  # under which the other nodes reach this one; empty: the one that the server sees
    lease: float | None = None  # seconds without a word from server or cluster after which it saves and leaves
    avoid: list[str] = []  # hosts of its pool on which nothing is to be started, where the engine chooses
    witness: list[str] = []  # a command that succeeds as long as the cluster counts on this attempt
    stop: int = 0  # domain.stops.Stop that stands as it is launched: the program finds it before its first step
    stop_by: str = ""
    stop_reason: str = "manually_stopped"
    host: str = ""  # as its pool calls it; empty: the runner says where it is
    devices: list[int] | None = None  # of the slots; None: as the slots are numbered
    notice_seconds: float | None = None  # that the pool usually gives; None: as its sources do
    notices: dict[str, str] = {}  # where it is asked whether the capacity goes: source -> base URL or path
    time_limit: float | None = None  # seconds this attempt may still run, from launched_at on
    launched_at: float = 0.0  # unix time by the server's clock; 0: nobody said
    limit_reason: str = "time_limit"  # what the limit comes from: time_limit, budget_exhausted or deadline
    ladder: dict[str, float]  # flag, interrupt, terminate, attach, kill_save: seconds
    server: str  # ws://127.0.0.1:7333/api/v1/runner
    token: str  # good for this attempt alone
    server_file: str | None = None  # read again before each reconnect: the server may come back on another port
    log_limit: int = 1 << 30  # bytes of log kept for this attempt; what comes after is counted, not kept
    sdk_path: str | None = None  # put on PYTHONPATH
    forgets: bool = False  # nobody comes to take away what it leaves on its host: it does so itself
    sample_every: float = 5.0  # seconds between system samples
