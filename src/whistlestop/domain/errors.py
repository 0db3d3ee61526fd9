"""Every error a person can meet, in one tree, with its wire code and HTTP status.

WhistleError
├── BadRequest            bad_request          400
│   ├── SpecInvalid       spec_invalid         422
│   └── BundleInvalid     bundle_invalid       422
├── Unauthenticated       unauthenticated      401
├── Forbidden             forbidden            403
├── NotFound              not_found            404
├── Refused               refused              409   the state does not allow it
│   ├── RunEnded          run_ended            409
│   ├── RunActive         run_active           409
│   ├── PhaseEnded        phase_ended          409
│   ├── NotATrainPhase    not_a_train_phase    409
│   ├── NoCheckpoint      no_checkpoint        409
│   ├── Ambiguous         ambiguous            409
│   ├── NeverFits         never_fits           409
│   ├── BudgetExceeded    budget_exceeded      409
│   └── SignedIn          signed_in            409
├── TooLarge              too_large            413
├── StaleAttempt          stale_attempt        409   fenced off: a newer attempt owns the phase
├── IllegalTransition     illegal_transition   500   a bug of ours
├── Busy                  busy                 503   ask again in a moment
├── EngineUnreachable     engine_unreachable   503
├── StorageUnreachable    storage_unreachable  503   where checkpoints are kept did not answer, or refused
├── DiskFull              disk_full            507
└── ServerUnreachable     server_unreachable   503   the client could not reach the server
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One mistake in a spec: where it is, what it is, what to do."""

    path: str  # phases.0.env
    text: str
    line: int | None = None
    hint: str | None = None


class WhistleError(Exception):
    """Something went wrong."""

    code = "error"
    http = 500

    def __init__(self, text: str | None = None, *, hint: str | None = None, problems: Sequence[Problem] = ()) -> None:
        self.text = text or (self.__doc__ or "").strip()
        self.hint = hint
        self.problems = tuple(problems)
        super().__init__(self.text)


class BadRequest(WhistleError):
    """The request makes no sense."""

    code, http = "bad_request", 400


class SpecInvalid(BadRequest):
    """The spec has mistakes."""

    code, http = "spec_invalid", 422


class BundleInvalid(BadRequest):
    """The code bundle can't be used."""

    code, http = "bundle_invalid", 422


class Unauthenticated(WhistleError):
    """No token, or one that this server does not know."""

    code, http = "unauthenticated", 401


class Forbidden(WhistleError):
    """This token's role does not allow that."""

    code, http = "forbidden", 403


class NotFound(WhistleError):
    """There is nothing by that name."""

    code, http = "not_found", 404


class Refused(WhistleError):
    """That can't be done now."""

    code, http = "refused", 409


class RunEnded(Refused):
    """The run has ended."""

    code = "run_ended"


class RunActive(Refused):
    """The run is active."""

    code = "run_active"


class PhaseEnded(Refused):
    """The phase has ended."""

    code = "phase_ended"


class NotATrainPhase(Refused):
    """Only train phases can be stopped."""

    code = "not_a_train_phase"


class NoCheckpoint(Refused):
    """There is no committed checkpoint."""

    code = "no_checkpoint"


class Ambiguous(Refused):
    """More than one thing has that name."""

    code = "ambiguous"


class NeverFits(Refused):
    """No pool is large enough, now or later."""

    code = "never_fits"


class BudgetExceeded(Refused):
    """The project can't pay for it."""

    code = "budget_exceeded"


class SignedIn(Refused):
    """The browser is signed in as somebody else."""

    code = "signed_in"


class TooLarge(WhistleError):
    """That is larger than the limit."""

    code, http = "too_large", 413


class StaleAttempt(WhistleError):
    """This attempt has been replaced or has ended."""

    code, http = "stale_attempt", 409


class IllegalTransition(WhistleError):
    """A state change that is not in the table."""

    code = "illegal_transition"


class Busy(WhistleError):
    """The server has too much to do right now; ask again in a moment."""

    code, http = "busy", 503


class EngineUnreachable(WhistleError):
    """The engine does not answer; it may later."""

    code, http = "engine_unreachable", 503


class StorageUnreachable(WhistleError):
    """The storage of checkpoints did not answer, or refused."""

    code, http = "storage_unreachable", 503


class DiskFull(WhistleError):
    """The server's disk is full; nothing was changed."""

    code, http = "disk_full", 507


class ServerUnreachable(WhistleError):
    """The server does not answer."""

    code, http = "server_unreachable", 503


def _tree(base: type[WhistleError]) -> list[type[WhistleError]]:
    return [base, *(leaf for child in base.__subclasses__() for leaf in _tree(child))]


BY_CODE = {error.code: error for error in _tree(WhistleError)}
