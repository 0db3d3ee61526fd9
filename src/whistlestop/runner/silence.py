"""What is said of a program that does not get on, in sentences. Knows no process and no clock."""

from whistlestop.diagnosis.pace import Doing, Usual

_WORK = {Doing.STEP: "steps", Doing.EVALUATION: "evaluations", Doing.SAVE: "saves",
         Doing.EPOCH_END: "steps at the end of an epoch"}  # fmt: skip


def span(seconds: float) -> str:
    if seconds < 1.0:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120.0:
        return f"{seconds:.3g} s"
    if seconds < 7200.0:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def stuck(doing: Doing, silent: float, step: int, usual: Usual | None, *, sdk: bool, idle: bool) -> str:
    """Without a full stop: where it hangs follows."""
    took = span(silent)
    match doing:
        case _ if not sdk:
            return f"The program has printed nothing and computed nothing for {took}"
        case Doing.START:
            return f"The program has not come to its loop for {took}{', and does nothing' if idle else ''}"
        case Doing.FIRST_STEP:
            return f"The first step has not ended for {took}{', and nothing is computed' if idle else ''}"
        case Doing.EVALUATION:
            said = f"The evaluation at step {step:,} has lasted {took}"
        case Doing.SAVE:
            said = f"The save at step {step:,} has lasted {took}"
        case Doing.FINISH:
            return f"The loop has ended at step {step:,}, and the program has not for {took}"
        case _:
            said = f"No step for {took} at step {step:,}"
    if usual is None:
        return f"{said}, and there was none before it" if doing in (Doing.EVALUATION, Doing.SAVE) else said
    return f"{said} ({_WORK[doing]} take {span(usual.median)}, at most {span(usual.longest)} so far)"


def who(rank: int | None, *, ranks: int, host: str) -> str:
    if rank is None or ranks < 2:
        return "it"
    return f"rank {rank} on {host}" if host else f"rank {rank}"


def going_again(silent: float, step: int) -> str:
    return f"The program gets on again after {span(silent)} of silence, at step {step:,}."
