"""The byte layout that the SDK and the runner share, and the names of the files. Nothing else knows an offset.

Control block: one file `control`, 4096 bytes, made by the runner before the program starts. Every field is one
aligned 8-byte word, stored with a single machine store, so that neither side ever sees half a value. The two
writers own different cache lines.
"""

from enum import IntEnum
from typing import Final

MAGIC: Final = 0x3130504F54534857  # "WHSTOP01", little endian
SIZE: Final = 4096

CONTROL_FILE: Final = "control"


def metrics_prefix(rank: int) -> str:
    """Journal of one rank: `metrics-0.000000.journal`, `metrics-0.000001.journal`, …"""
    return f"metrics-{rank}"


EVENTS_PREFIX: Final = "events"  # events-<rank>: what the SDK tells in words (checkpoints, stop reasons, messages)


def events_prefix(rank: int) -> str:
    return f"{EVENTS_PREFIX}-{rank}"


class Word(IntEnum):
    """Index of each 8-byte word. Integers unless marked (f): seconds since the epoch as a double."""

    MAGIC = 0
    # Written by the runner.
    STOP_LEVEL = 8  # domain.stops.Stop
    STOP_SEQ = 9  # raised with every order, so that the program can acknowledge one
    STOP_DEADLINE = 10  # (f) when the next rung comes; 0 = none
    PAUSE_LATEST = 11  # 1: leave without saving
    PREEMPT_DEADLINE = 12  # (f) the capacity goes at this time; 0 = no notice
    CHECKPOINT_NOW = 13  # counter: save once for every increase
    STOP_AT_STEP = 14  # 0 = at the next boundary; ranks agree on a step otherwise
    STEERING = 15  # counter: steering.json has changed
    RANKS_INTERRUPTED = 16  # another rank saw a signal
    RANKS_FINISH = 17  # another rank wants the end
    DURABLE_STEP = 18  # step of the newest save that is safe in storage + 1; 0 = none of this attempt yet
    DURABLE_SECONDS = 19  # (f) from staged to durable, the last time
    SAVES_FAILED = 20  # counter: saves of this attempt that were given up
    # Written by the program (rank 0).
    ATTACHED = 128  # 1 once the SDK is in; the ladder waits for the loop then
    PID = 129
    STEP = 130  # steps done
    TOTAL = 131  # 0 = unknown
    EPOCH = 132
    BATCH = 133  # batches done in this epoch
    BATCHES = 134  # batches per epoch; 0 = unknown
    PROGRESS_AT = 135  # (f) last time STEP moved
    LOOP = 136  # Loop
    STAGE = 137  # ProgramStage
    SAVING = 138  # step being saved + 1; 0 = no save in progress
    SAVED_STEP = 139  # step of the last complete save + 1; 0 = none yet
    ACK_SEQ = 140  # the STOP_SEQ that the loop has seen
    RESUMED_STEP = 141  # step it was restored at
    DROPPED = 142  # records dropped because the disk was full
    LOOP_STARTED_AT = 143  # (f)
    EVALUATIONS = 144  # evaluations begun so far
    SAVE_SECONDS = 145  # (f) how long the last save blocked the loop
    STAGED_STEP = 147  # step of the last save that was handed over + 1
    BEHIND = 148  # step + 1 that this attempt has in storage and not on this host: only a new attempt can fetch it
    IMPORTED = 146  # 1 once whistlestop is imported; the ladder then waits for the loop


class Loop(IntEnum):
    """Where the program is with its loop. Only this tells exit 0 in the middle from the end."""

    NONE = 0
    INSIDE = 1
    FINISHED = 2  # all steps done
    STOPPED = 3  # a stop was seen and the loop ended for it
    PAUSED = 4  # left by the pause exit
    LEFT = 5  # the user's own break


class ProgramStage(IntEnum):
    STARTING = 0
    TRAINING = 1
    EVALUATING = 2
    SAVING = 3
    FINISHING = 4  # behind the loop


EXIT_PAUSED: Final = 75  # EX_TEMPFAIL: saved and left, not the end of training

# Journal segments: `<prefix>.<number:06d>.journal`, preallocated with fallocate (a sparse page on a full disk would
# be SIGBUS in the user's program), mapped, filled, never reused. A segment starts with a 16-byte header:
#   u64 SEGMENT_MAGIC, u64 offset of its first record in the whole journal (record bytes only, headers not counted).
# Records follow, each aligned to 8 bytes. The first word is written last: u32 size of the whole record (with this
# word, multiple of 8; 0 = nothing here yet), u16 kind, u16 shape. A size of END_OF_SEGMENT says: go on in the next.
SEGMENT_MAGIC: Final = 0x31304C4E524A5357  # "WSJRNL01"
SEGMENT_HEADER: Final = 16
SEGMENT_SIZE: Final = 1 << 20
END_OF_SEGMENT: Final = 0xFFFFFFFF


class Kind(IntEnum):
    """What a journal record holds after its first word."""

    SHAPE = 1  # defines `shape`: JSON array of metric names, UTF-8, padded with zero bytes
    POINTS = 2  # i64 step, f64 time, then one f64 per name of the shape
    EVENT = 3  # JSON object, UTF-8, padded with zero bytes


# Environment of the program.
ENV_CHANNEL: Final = "WHISTLE_CHANNEL"  # this directory
ENV_RUN: Final = "WHISTLE_RUN"
ENV_RUN_NAME: Final = "WHISTLE_RUN_NAME"
ENV_PHASE: Final = "WHISTLE_PHASE"
ENV_ATTEMPT: Final = "WHISTLE_ATTEMPT"  # also the mark by which stray processes are found
ENV_JOB: Final = "WHISTLE_JOB"  # the same mark where an attempt has several nodes: ATTEMPT.NODE
ENV_ATTEMPT_NUMBER: Final = "WHISTLE_ATTEMPT_NUMBER"  # the fence: part of every checkpoint's name
ENV_CHECKPOINTS: Final = "WHISTLE_CHECKPOINTS"  # directory that holds this run's checkpoints
ENV_STAGE: Final = "WHISTLE_STAGE"  # directory for the slots in which saves are handed over
ENV_RATE: Final = "WHISTLE_PREEMPTION_RATE"  # unnoticed preemptions per second of this pool
ENV_RESTORE: Final = "WHISTLE_RESTORE"  # directory of the checkpoint to start from, verified
ENV_OWN: Final = "WHISTLE_RESTORE_OWN"  # 1: it is one of this phase, not of a run that this one continues
ENV_EVERY: Final = "WHISTLE_CHECKPOINT_EVERY"  # "500 steps", "10 minutes", "1 epoch", comma-separated
ENV_KEEP: Final = "WHISTLE_CHECKPOINT_KEEP"
ENV_STOP_WHEN: Final = "WHISTLE_STOP_WHEN"  # JSON: the spec's stop rules
ENV_SKIP: Final = "WHISTLE_SKIP"  # JSON: batches that are passed over, [[first, behind], ...]
ENV_INPUT: Final = "WHISTLE_INPUT_"  # + PHASE NAME in capitals: directory of that phase's checkpoint
ENV_SLOTS: Final = "WHISTLE_SLOTS"  # "0,3"
ENV_AGREE: Final = "WHISTLE_AGREE"  # host:port at which rank 0 meets the ranks of other nodes
ENV_DIGESTS: Final = "WHISTLE_DIGESTS"  # 1: every checkpoint's manifest holds a hash of each leaf of its state

STEERING_FILE: Final = "steering.json"  # the phase's changes on the way: {"changes": [{seq, name, value, step, actor}]}
