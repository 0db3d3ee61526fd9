"""The closed list of causes, each with its weight and its words in one table, and what a finding says."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    # The curve.
    NON_FINITE = "non_finite"  # NaN or infinite
    DIVERGING = "diverging"  # far above where it was, and rising
    NOT_DECREASING = "not_decreasing"  # from the start: it does not learn
    OVERFITTING = "overfitting"  # validation rises while training falls
    PLATEAUED = "plateaued"  # it did learn, and does no more
    # The pace.
    STUCK = "stuck"  # no step for longer than its own history justifies
    SLOW_RANK = "slow_rank"  # one rank keeps the others waiting
    DATA_STARVED = "data_starved"  # the loop waits for its data
    THROTTLED = "throttled"  # the same steps take longer and longer, or much longer at once
    # The end.
    HOST_MEMORY = "host_memory"  # the kernel killed it for lack of memory
    DEVICE_MEMORY = "device_memory"  # CUDA, or whatever it computes on
    DISK_FULL = "disk_full"  # no space, or no quota
    MISSING_MODULE = "missing_module"
    MISSING_FILE = "missing_file"
    NOT_ALLOWED = "not_allowed"  # a file or service said no: rights, a token
    WRONG_CONFIG = "wrong_config"  # an argument, a key, a shape: the program was told something impossible
    BAD_DATA = "bad_data"  # a sample or a file that can't be read
    NETWORK = "network"  # something it needs can't be reached
    COMMUNICATION = "communication"  # ranks that lost each other: NCCL, gloo, time-outs of collectives
    DEVICE_FAULT = "device_fault"  # Xid, ECC, an illegal address, a device that fell off
    BAD_HOST = "bad_host"  # the same failure on one host only
    SHARED_MEMORY = "shared_memory"  # /dev/shm is too small for the data loader
    CRASHED = "crashed"  # a signal from inside: segmentation fault, abort, illegal instruction
    KILLED_OUTSIDE = "killed_outside"  # a signal that was not ours
    ENDED_EARLY = "ended_early"  # exit 0 in the middle of the loop
    COMMAND_NOT_FOUND = "command_not_found"
    CODE_ERROR = "code_error"  # the program raised, and none of the above says why
    SAVES_FAIL = "saves_fail"  # checkpoints can't be made durable


class Weight(StrEnum):
    FATAL = "fatal"  # as it is, it can't come to a good end
    BAD = "bad"  # it costs, and may come to nothing
    HINT = "hint"  # good to know


@dataclass(frozen=True)
class Kind:
    weight: Weight
    says: str  # what happened, as a headline
    do: str  # what a person does about it, where the finding does not know better


KINDS: Mapping[Cause, Kind] = {
    Cause.NON_FINITE: Kind(
        Weight.FATAL,
        "a metric is no longer a number",
        "Go back to the newest healthy checkpoint, with a lower learning rate or with gradient clipping.",
    ),
    Cause.DIVERGING: Kind(
        Weight.FATAL,
        "the loss is running away",
        "Go back to a checkpoint from before it rose, with a lower learning rate.",
    ),
    Cause.NOT_DECREASING: Kind(
        Weight.BAD,
        "the loss has not come down",
        "Look at the learning rate, at the labels, and whether the optimizer has the model's parameters.",
    ),
    Cause.OVERFITTING: Kind(
        Weight.BAD,
        "validation gets worse while training gets better",
        "Stop now and keep the best checkpoint; more data or more regularization helps the next one.",
    ),
    Cause.PLATEAUED: Kind(Weight.HINT, "it does not improve any more", "Stop now and keep what there is."),
    Cause.STUCK: Kind(
        Weight.FATAL, "no step for much longer than usual", "Look at the stacks, then restart it from its checkpoint."
    ),
    Cause.SLOW_RANK: Kind(Weight.BAD, "one rank keeps the others waiting", "Move the run off that rank's host."),
    Cause.DATA_STARVED: Kind(
        Weight.BAD, "the loop waits for its data", "Use more loader workers, or put the data nearer."
    ),
    Cause.THROTTLED: Kind(
        Weight.BAD, "steps take longer than they did", "Look at what else runs on the host, and at its temperature."
    ),
    Cause.HOST_MEMORY: Kind(
        Weight.FATAL,
        "the host ran out of memory",
        "Use a smaller batch or fewer loader workers, or a host with more memory.",
    ),
    Cause.DEVICE_MEMORY: Kind(
        Weight.FATAL,
        "the accelerator ran out of memory",
        "Use a smaller batch, gradient accumulation or checkpointed activations.",
    ),
    Cause.DISK_FULL: Kind(Weight.FATAL, "a disk or a quota is full", "Make room there, then resume."),
    Cause.MISSING_MODULE: Kind(Weight.FATAL, "a Python module is missing", "Install it in the run's environment."),
    Cause.MISSING_FILE: Kind(Weight.FATAL, "a file is missing", "Check the path, and that the file is in the bundle."),
    Cause.NOT_ALLOWED: Kind(Weight.FATAL, "something was not allowed", "Check rights and tokens."),
    Cause.WRONG_CONFIG: Kind(Weight.FATAL, "its configuration can't be used", "Correct it, then run it again."),
    Cause.BAD_DATA: Kind(Weight.FATAL, "some data can't be read", "Repair or skip it."),
    Cause.NETWORK: Kind(Weight.FATAL, "something it needs can't be reached", "Check address and network, then retry."),
    Cause.COMMUNICATION: Kind(
        Weight.FATAL, "the ranks lost each other", "Look which rank ended or hung first; retry from the checkpoint."
    ),
    Cause.DEVICE_FAULT: Kind(Weight.FATAL, "an accelerator failed", "Exclude the host, then retry."),
    Cause.BAD_HOST: Kind(Weight.BAD, "it fails on one host only", "Exclude the host: whistle hosts exclude HOST."),
    Cause.SHARED_MEMORY: Kind(
        Weight.FATAL, "shared memory is too small", "Use fewer loader workers, or a larger /dev/shm."
    ),
    Cause.CRASHED: Kind(
        Weight.FATAL, "the program crashed", "Look at native extensions and at what was loaded last; try another host."
    ),
    Cause.KILLED_OUTSIDE: Kind(
        Weight.FATAL, "somebody else ended the program", "Find out who sends signals on that host; then retry."
    ),
    Cause.ENDED_EARLY: Kind(
        Weight.FATAL, "the program ended in the middle of its loop", "Look for an exit or a return in the loop."
    ),
    Cause.COMMAND_NOT_FOUND: Kind(Weight.FATAL, "the command can't be started", "Check the command and the PATH."),
    Cause.CODE_ERROR: Kind(Weight.FATAL, "the program raised an error", "Read the last lines below."),
    Cause.SAVES_FAIL: Kind(Weight.BAD, "checkpoints can't be saved", "Look at the storage, before more work is lost."),
}


@dataclass(frozen=True)
class Finding:
    """`confidence`: how sure the rule is, set with the recorded cases in view and by hand; below 0.5 none is made."""

    cause: Cause
    confidence: float
    says: str  # a sentence with the figures that matter
    evidence: tuple[str, ...] = ()  # what it rests on: values, lines, stacks; the first is the most telling
    do: str = ""  # empty: as KINDS says
    metric: str = ""
    step: int | None = None  # where it began
    rank: int | None = None
    host: str = ""
    at: float | None = None

    @property
    def weight(self) -> Weight:
        return KINDS[self.cause].weight

    @property
    def what_to_do(self) -> str:
        return self.do or KINDS[self.cause].do
