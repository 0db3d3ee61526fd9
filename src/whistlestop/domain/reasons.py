"""Why an attempt ended and why a phase stopped. The state says where, the reason says why, one table joins them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from whistlestop.domain.states import AttemptState


class EndReason(StrEnum):
    """Why one attempt ended: a closed list, decided once, by the runner or by proof of its absence."""

    FINISHED = "finished"
    STOPPED = "stopped"
    TIME_LIMIT = "time_limit"
    PAUSED = "paused"
    KILLED = "killed"
    PREEMPTED = "preempted"
    CODE_RAISED = "code_raised"
    SIGNALLED = "signalled"
    OUT_OF_MEMORY = "out_of_memory"
    ENDED_EARLY = "ended_early"
    STOP_UNANSWERED = "stop_unanswered"
    COMMAND_NOT_FOUND = "command_not_found"
    PREPARE_FAILED = "prepare_failed"
    STORAGE_UNFIT = "storage_unfit"
    STORAGE_AWAY = "storage_away"
    CHECKPOINT_DAMAGED = "checkpoint_damaged"
    CHECKPOINT_UNUSABLE = "checkpoint_unusable"
    BEHIND = "behind"
    RUNNER_LOST = "runner_lost"
    HOST_LOST = "host_lost"
    LAUNCH_FAILED = "launch_failed"
    GUARDED = "guarded"


class Retry(StrEnum):
    NEVER = "never"  # the answer would be the same
    BUDGET = "budget"  # the spec's retries pay for it
    ALWAYS = "always"  # not the program's fault: it costs the user's budget nothing
    ATTENTION = "attention"  # a person has to look; nothing is touched until then


@dataclass(frozen=True)
class Outcome:
    state: AttemptState
    retry: Retry
    says: str

    @property
    def completes(self) -> bool:
        """The phase has its result."""
        return self.state is AttemptState.COMPLETED


OUTCOMES: Mapping[EndReason, Outcome] = {
    EndReason.FINISHED: Outcome(AttemptState.COMPLETED, Retry.NEVER, "finished"),
    EndReason.STOPPED: Outcome(AttemptState.COMPLETED, Retry.NEVER, "stopped, its result is kept"),
    EndReason.TIME_LIMIT: Outcome(AttemptState.FAILED, Retry.NEVER, "its time was up before it was done"),
    EndReason.PAUSED: Outcome(AttemptState.ABORTED, Retry.NEVER, "paused on request"),
    EndReason.KILLED: Outcome(AttemptState.ABORTED, Retry.NEVER, "killed on request"),
    EndReason.PREEMPTED: Outcome(AttemptState.PREEMPTED, Retry.ALWAYS, "the capacity was reclaimed"),
    EndReason.CODE_RAISED: Outcome(AttemptState.FAILED, Retry.BUDGET, "the program ended with an error"),
    EndReason.SIGNALLED: Outcome(
        AttemptState.FAILED, Retry.BUDGET, "the program was ended by a signal that Whistlestop did not send"
    ),
    EndReason.OUT_OF_MEMORY: Outcome(AttemptState.FAILED, Retry.BUDGET, "the host ran out of memory"),
    EndReason.ENDED_EARLY: Outcome(
        AttemptState.FAILED, Retry.BUDGET, "the program ended without error in the middle of its loop"
    ),
    EndReason.STOP_UNANSWERED: Outcome(
        AttemptState.FAILED, Retry.NEVER, "the stop was not answered and there is no checkpoint to keep"
    ),
    EndReason.COMMAND_NOT_FOUND: Outcome(AttemptState.FAILED, Retry.NEVER, "the command could not be started"),
    EndReason.PREPARE_FAILED: Outcome(AttemptState.FAILED, Retry.BUDGET, "the code could not be laid out on the host"),
    EndReason.STORAGE_UNFIT: Outcome(
        AttemptState.FAILED, Retry.NEVER, "its checkpoints can't be kept where they should be"
    ),
    EndReason.STORAGE_AWAY: Outcome(AttemptState.FAILED, Retry.ALWAYS, "its checkpoints can't be reached"),
    EndReason.CHECKPOINT_DAMAGED: Outcome(
        AttemptState.FAILED, Retry.ALWAYS, "the checkpoint to go on from is damaged, and an older one is taken"
    ),
    EndReason.CHECKPOINT_UNUSABLE: Outcome(
        AttemptState.FAILED, Retry.ATTENTION, "none of its checkpoints can be used; nothing was touched"
    ),
    EndReason.BEHIND: Outcome(
        AttemptState.FAILED, Retry.ALWAYS, "its program was started again and needs what it has saved to storage since"
    ),
    EndReason.RUNNER_LOST: Outcome(AttemptState.LOST, Retry.ALWAYS, "its runner died; the program was ended"),
    EndReason.HOST_LOST: Outcome(AttemptState.LOST, Retry.ALWAYS, "the host stopped reporting"),
    EndReason.LAUNCH_FAILED: Outcome(AttemptState.FAILED, Retry.ALWAYS, "the runner could not be started"),
    EndReason.GUARDED: Outcome(AttemptState.ABORTED, Retry.ALWAYS, "a guard ended it"),
}


ERROR_LINE = "its last error line: "  # in the words of an end, before what the program said last
_VARIES = re.compile(r"0x[0-9a-fA-F]+|\d{3,}")  # addresses, counters, times: another one each time


def fingerprint(reason: EndReason, exit_code: int | None, signal: str | None, text: str) -> str:
    """What an error looks like: two that look alike are the same failure."""
    _, _, line = text.partition(ERROR_LINE)
    return f"{reason} {signal or exit_code} {_VARIES.sub('#', line)[:500]}"


class StopReason(StrEnum):
    """Why a train phase stopped training. Several may hold at once; one is decisive."""

    MANUAL = "manually_stopped"
    EARLY = "early_stopped"
    PRIVACY_BUDGET = "privacy_budget_exhausted"
    THRESHOLD = "threshold_reached"
    TIME_LIMIT = "time_limit"
    BUDGET = "budget_exhausted"
    DEADLINE = "deadline"
    NON_FINITE = "non_finite_metric"
    CUSTOM = "custom"
    COMPLETED = "all_steps_done"
    UNKNOWN = "unknown"


STOP_SAYS: Mapping[StopReason, str] = {
    StopReason.MANUAL: "manually stopped",
    StopReason.EARLY: "early stopped",
    StopReason.PRIVACY_BUDGET: "privacy budget exhausted",
    StopReason.THRESHOLD: "threshold reached",
    StopReason.TIME_LIMIT: "time limit",
    StopReason.BUDGET: "budget exhausted",
    StopReason.DEADLINE: "deadline",
    StopReason.NON_FINITE: "non-finite metric",
    StopReason.CUSTOM: "custom",
    StopReason.COMPLETED: "all steps done",
    StopReason.UNKNOWN: "unknown",
}
