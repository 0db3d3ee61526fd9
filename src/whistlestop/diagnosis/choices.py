"""What can be done with a run that lives, each with its price: credits and time from now on, what is saved and lost."""

from dataclasses import dataclass
from enum import StrEnum

from whistlestop.diagnosis.evidence import Evidence, Saved
from whistlestop.diagnosis.forecast import Forecast, pace
from whistlestop.domain.estimates import Left, seconds_left


class Verb(StrEnum):
    WAIT = "wait"
    STOP = "stop"
    KILL = "kill"
    CONTINUE = "continue"  # kill it, then a new run from its checkpoint


@dataclass(frozen=True)
class Choice:
    verb: Verb
    seconds: Left | None  # from now to the result; None: can't be told
    credits: Left | None  # from now on
    saves: float | None  # credits, beside letting it run to its end
    lost_steps: int  # that were made and are in no checkpoint
    gets: str  # what one has afterwards


_NOW = Left(0.0, 0.0, 0.0)


def choices(evidence: Evidence, coming: Forecast, saved: Saved | None, *, first: Verb) -> tuple[Choice, ...]:
    """`saved`: the newest checkpoint that is worth something."""
    left, cost = coming.left, coming.cost
    likely = cost.likely if cost is not None else None
    train, step = evidence.kind == "train", evidence.place.step
    found = [Choice(Verb.WAIT, left, cost, None if likely is None else 0.0, 0, _at_the_end(evidence, coming))]
    if train:
        on = ", and the later phases go on" if evidence.follows else ""
        found.append(Choice(Verb.STOP, _NOW, _NOW, likely, 0, f"the result as it is at step {step:,}{on}"))
    unsaved = step - (saved.step if saved is not None else 0)
    kept = f"the checkpoint at step {saved.step:,}" if saved is not None else "metrics and logs alone"
    found.append(Choice(Verb.KILL, _NOW, _NOW, likely, max(0, unsaved), kept))
    if saved is not None and first is Verb.CONTINUE:
        again = seconds_left(pace(evidence), evidence.place.total - saved.step) if evidence.place.total else None
        found.append(
            Choice(
                Verb.CONTINUE,
                again,
                again.times(evidence.price) if again is not None else None,
                None,
                max(0, step - saved.step),
                f"a new run from step {saved.step:,}, with what you change",
            )
        )
    return tuple(sorted(found, key=lambda each: each.verb is not first))


def _at_the_end(evidence: Evidence, coming: Forecast) -> str:
    gain = coming.gain
    if gain is None:
        return "whatever the rest brings" if evidence.kind == "train" else "its result"
    end = f"{gain.metric} {gain.end.likely:.4g} ({gain.end.low:.4g} to {gain.end.high:.4g})"
    return end if gain.distinct else f"{end}; that can't be told from {gain.now:.4g} now"
