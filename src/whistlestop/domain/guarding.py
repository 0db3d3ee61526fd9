"""How a guard's doings are told from people's: by whom it was asked, and for which stop reason."""

from collections.abc import Mapping

from whistlestop.domain.credits import BUDGET_OF
from whistlestop.domain.reasons import StopReason

GUARD = "guard"  # the actor of its events; no token can be called what stands before the cause of a stop
_STOP_BY = f"{GUARD}: "

# Of the causes of diagnosis.findings; all others are custom.
_REASONS: Mapping[str, StopReason] = {
    "non_finite": StopReason.NON_FINITE,
    "diverging": StopReason.EARLY,
    "not_decreasing": StopReason.EARLY,
    "overfitting": StopReason.EARLY,
    "plateaued": StopReason.EARLY,
}


def stop_by(cause: str) -> str:
    return f"{_STOP_BY}{cause}"


def is_guards(by: str) -> bool:
    return by.startswith(_STOP_BY)


def stop_reason(by: str) -> StopReason:
    """Why a phase stops, by who asked for it."""
    if by.startswith(BUDGET_OF):
        return StopReason.BUDGET
    if by.startswith(_STOP_BY):
        return _REASONS.get(by.removeprefix(_STOP_BY), StopReason.CUSTOM)
    return StopReason.MANUAL
