"""The runner's connection: msgpack frames over a WebSocket, one tagged union each way.

Up: `Hello`, then `Data` (bytes of a stream by offset), `Progress` (latest wins). Down: `Welcome` (where each
stream stands at the server, and the standing order), `Ack`, `Order`, `Rehearse`, `Stacks`, `Gang`, `Bye`.
Everything that must arrive exactly once is a stream: the server stores the bytes and the new offset in one
transaction, and a reconnect goes on from the offset in `Welcome`.

Streams, by name:
  logs        records of LogLine, each prefixed with its u32 size (little endian)
  metrics-N   journal records of rank N (channel.layout), whole records only
  metrics-sys the runner's own samples, same format
  events-N    journal records of rank N, kind EVENT: what the SDK tells
  runner      records of RunnerEvent, each prefixed with its u32 size

Of an attempt on several nodes each has a runner and a connection of its own. Ranks are numbered over all nodes; what
is a runner's own ends in @NODE on all but the first: logs@1, runner@1, metrics-sys@1.
"""

from enum import StrEnum
from typing import Any

import msgspec

PROTOCOL = 1


class Hello(msgspec.Struct, tag="hello", frozen=True):
    attempt_id: str
    protocol: int
    host: str
    pid: int
    node: int = 0
    here: "Peer | None" = None  # of several nodes: where the others find this one, until its program starts


class Peer(msgspec.Struct, frozen=True):
    """One node of an attempt, as the others reach it."""

    address: str
    ports: list[int]  # that are free there: see runner/gang.py


class Data(msgspec.Struct, tag="data", frozen=True):
    stream: str
    offset: int
    data: bytes


class Progress(msgspec.Struct, tag="progress", frozen=True):
    at: float
    stage: str  # domain.states.Stage
    step: int = 0
    total: int = 0
    epoch: int = 0
    batch: int = 0
    batches: int = 0
    progress_at: float = 0.0
    saved_step: int | None = None
    evaluations: int = 0
    loop_started_at: float = 0.0
    resumed_step: int = 0
    loop: int = 0  # channel.layout.Loop; 0 = unknown, or not reached


class Welcome(msgspec.Struct, tag="welcome", frozen=True):
    offsets: dict[str, int]
    order: "Order"


class Ack(msgspec.Struct, tag="ack", frozen=True):
    stream: str
    offset: int  # everything before it is durable at the server


class Change(msgspec.Struct, frozen=True):
    """One change of a phase on the way, as the program finds it in steering.json."""

    seq: int
    name: str  # "total", or "param:NAME"
    value: bool | int | float | str
    step: int | None = None  # where it was applied; None: at the next boundary
    actor: str = ""


class Order(msgspec.Struct, tag="order", frozen=True):
    """The whole standing request, not a change to it: taking it twice is the same as once."""

    seq: int = 0
    stop: int = 0  # domain.stops.Stop
    latest: bool = False  # pause without saving
    actor: str = ""
    reason: str = "manually_stopped"  # domain.reasons.StopReason of a FINISH_PHASE
    checkpoint_now: int = 0  # counter; 0 also when every save that was asked for has been made
    kill_save: float | None = None  # how long a kill lets a save in flight finish, if not as launched
    protected: list[str] | None = None  # checkpoint ids that retention leaves alone; None = as before
    steering: list[Change] | None = None  # every change of the phase; None = as before
    leave: str = ""  # another node of this attempt has ended: why this one has to, at once
    preempt_deadline: float = 0.0  # unix time by which its capacity is taken back, by us; 0: it is not
    preempt_why: str = ""


class Fault(StrEnum):
    """What can be rehearsed on one attempt."""

    PROGRAM = "program"  # it dies
    HOST = "host"  # it is lost, with program and runner
    LINK = "link"  # the server is out of reach
    STORAGE = "storage"  # it is slow
    SAVE = "save"  # it fails


class Rehearse(msgspec.Struct, tag="rehearse", frozen=True):
    """Do this to yourself, now and once. No order: it does not stand, and one that gets lost is not sent again."""

    fault: str  # Fault
    seconds: float = 0.0


class Stacks(msgspec.Struct, tag="stacks", frozen=True):
    """Say where the program's threads are, now. No order: whoever asked sees that no answer comes."""

    asked: str  # given back in the event `stacks`


class Gang(msgspec.Struct, tag="gang", frozen=True):
    """All nodes of the attempt have come: their programs may start."""

    nodes: list[Peer]


class Bye(msgspec.Struct, tag="bye", frozen=True):
    """This attempt is over for the server: nothing more is wanted. The runner ends its tree and leaves."""

    text: str


Up = Hello | Data | Progress
Down = Welcome | Ack | Order | Rehearse | Stacks | Gang | Bye


class LogLine(msgspec.Struct, array_like=True, frozen=True):
    at: float
    stream: str  # out | err | sys (the runner's own words)
    rank: int
    text: str


class RunnerEvent(msgspec.Struct, array_like=True, frozen=True):
    """One thing the runner did or saw. `kind` decides what `data` holds (see RUNNER_KINDS)."""

    at: float
    kind: str
    text: str  # a sentence for people
    data: dict[str, Any] = {}


# kind -> what data holds. `ended` is the last one of every attempt, and the only proof of its end.
RUNNER_KINDS = {
    "preparing": "",
    "node_ready": "of several nodes: this one waits for the others",
    "program_started": "pid, restored_step (null: from the start), restored_from",
    "attached": "the SDK is in",
    "training": "the loop has been reached",
    "order_seen": "seq, stop",
    "rung": "rung, next_rung, next_in_s: the ladder went up",
    "checkpoint": "id, step, attempt, path, bytes, files, metrics, verified, healthy, at, "
    "saves: so many of the saves that were asked for are answered by it, "
    "why, block_seconds, upload_seconds, written: bytes",
    "checkpoint_set_aside": "path, why",
    "checkpoint_fetched": "path, seconds, bytes: while the program started",
    "checkpoints_removed": "ids, until: they can be had back so long (unix time)",
    "save_failed": "step, why (it was saved), error, tries, final: when it begins to fail, and when it is given up",
    "storage_ready": "milliseconds, conditional: where the checkpoints go can be written and read",
    "dropped": "lines or bytes that the log limit cut",
    "leftovers": "count: processes that outlived the program and were ended",
    "notice": "anything a person should see; of a capacity that goes or may go: source, deadline (unix time), "
    "kind (final, advisory), final: the program has to leave",
    "notice_source": "source, answers: a source of notices can't be asked, or can again",
    "notice_too_short": "notice, needed: seconds, steps: a save would not be safe within a notice of this pool",
    "notice_fits": "notice, needed: it would be again",
    "rehearsal": "fault, seconds: a loss on purpose begins",
    "stuck": "the program is silent for longer than its own history justifies: rank (the one that is behind; null: "
    "nobody can tell), ranks: step of each, host, stage (diagnosis.pace.Doing), silent_s, expected_s, usual_s, "
    "longest_s, step, idle, sdk (false: only its output and its CPU time are known), trouble: why frames are missing, "
    "stacks: rank, pid, process, thread, state, frames: file:line function, the innermost first",
    "going_again": "silent_s, step: the end of that silence",
    "stacks": "asked, host, ranks, stacks, trouble: as of `stuck`, because somebody asked",
    "ended": "reason (EndReason), exit_code, signal, last_step, total, epoch, evidence, stop_reasons, "
    "loop, gone_at, saved_step, notice: the source of the one that was there before the end, or null",
}

_encoder = msgspec.msgpack.Encoder()
_up = msgspec.msgpack.Decoder(Up)
_down = msgspec.msgpack.Decoder(Down)
_line = msgspec.msgpack.Decoder(LogLine)
_event = msgspec.msgpack.Decoder(RunnerEvent)


def encode(frame: Up | Down) -> bytes:
    return _encoder.encode(frame)


def decode_up(data: bytes) -> Up:
    frame: Up = _up.decode(data)
    return frame


def decode_down(data: bytes) -> Down:
    frame: Down = _down.decode(data)
    return frame


def on_node(stream: str, node: int) -> str:
    """The name of a runner's own stream on this node."""
    return f"{stream}@{node}" if node else stream


def split_node(stream: str) -> tuple[str, int]:
    name, _, node = stream.partition("@")
    return name, int(node) if node.isdecimal() else 0


def pack_record(record: LogLine | RunnerEvent) -> bytes:
    body = _encoder.encode(record)
    return len(body).to_bytes(4, "little") + body


def split_records(data: bytes) -> tuple[list[bytes], int]:
    """The whole records in `data`, and how many bytes they take; a torn tail is left for the next time."""
    records, position = [], 0
    while position + 4 <= len(data):
        size = int.from_bytes(data[position : position + 4], "little")
        if position + 4 + size > len(data):
            break
        records.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return records, position


def decode_line(body: bytes) -> LogLine:
    return _line.decode(body)


def decode_event(body: bytes) -> RunnerEvent:
    return _event.decode(body)
