"""Should this run be killed? What the findings and the forecast come to, and what each choice costs. It never acts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from whistlestop.diagnosis.choices import Choice, Verb, choices
from whistlestop.diagnosis.evidence import Evidence, Saved
from whistlestop.diagnosis.findings import Cause, Finding, Weight
from whistlestop.diagnosis.forecast import Forecast, forecast
from whistlestop.diagnosis.guards import safe_until

NEARLY_DONE = 0.8  # of the steps
SURE = 0.8  # of a finding that work is thrown away for
EARLY = 0.05  # of the steps: before that a run without a finding is too young to be judged

# Fatal, but of the place and the hour: the same run may well come to its end elsewhere, or later.
PASSING = frozenset(
    {Cause.NETWORK, Cause.COMMUNICATION, Cause.DEVICE_FAULT, Cause.BAD_HOST, Cause.KILLED_OUTSIDE, Cause.DISK_FULL}
)
_SPOILT = frozenset({Cause.NON_FINITE, Cause.DIVERGING})  # what was saved behind its first step is no good
_LIVE = frozenset({"starting", "running"})
_ENDED = frozenset({"completed", "failed", "killed"})


class Verdict(StrEnum):
    KILL = "kill"  # now: nothing good can come of it
    STOP = "stop"  # now, and keep what there is
    WAIT = "wait"
    FIX_AND_CONTINUE = "fix_and_continue"  # end it, change something, go on from a checkpoint
    RERUN = "rerun"  # it has ended and left nothing to go on from: change something, begin again
    NOTHING = "nothing"  # it has ended, and there is nothing to be done


@dataclass(frozen=True)
class Advice:
    verdict: Verdict
    sure: bool  # False: this is what one does who does not know
    reason: str  # one sentence
    do: str  # the next thing to do
    findings: tuple[Finding, ...]
    forecast: Forecast
    choices: tuple[Choice, ...]  # the one that is advised first
    fraction: float | None  # of the steps that are done
    goes_back_to: int | None = None  # the step of the checkpoint to continue from


def advise(evidence: Evidence, findings: Sequence[Finding]) -> Advice:
    """`findings`: as `judge` has them, the decisive first."""
    worst = next(iter(findings), None)
    coming = forecast(evidence) if evidence.status in _LIVE else Forecast(None, None, None)
    if worst is not None and worst.cause in _SPOILT:
        coming = replace(coming, gain=None)  # where it was going it goes no more
    saved = good_checkpoint(evidence, worst)
    said = _of_ended(evidence, worst, saved) if evidence.status in _ENDED else _of_live(evidence, worst, saved, coming)
    fraction = _fraction(evidence)
    open_choices = choices(evidence, coming, saved, first=_VERB[said.verdict]) if evidence.status in _LIVE else ()
    back = saved.step if saved is not None and said.verdict is Verdict.FIX_AND_CONTINUE else None
    return Advice(said.verdict, said.sure, said.reason, said.do, tuple(findings), coming, open_choices, fraction, back)


def good_checkpoint(evidence: Evidence, worst: Finding | None) -> Saved | None:
    """The newest that the trouble has not reached."""
    if worst is None or worst.cause not in _SPOILT or worst.step is None:
        return next(iter(evidence.saved), None)
    good = safe_until(evidence, worst.cause, worst.step)
    return next((each for each in evidence.saved if each.step <= good), None)


_VERB = {
    Verdict.KILL: Verb.KILL,
    Verdict.STOP: Verb.STOP,
    Verdict.WAIT: Verb.WAIT,
    Verdict.FIX_AND_CONTINUE: Verb.CONTINUE,
    Verdict.RERUN: Verb.KILL,
    Verdict.NOTHING: Verb.WAIT,
}


@dataclass(frozen=True)
class _Said:
    verdict: Verdict
    reason: str
    do: str
    sure: bool = True


def _of_live(evidence: Evidence, worst: Finding | None, saved: Saved | None, coming: Forecast) -> _Said:
    if evidence.status not in _LIVE:
        return _Said(Verdict.WAIT, "It holds no slots and costs nothing as it is.", "Resume it, or let it wait.")
    if worst is None:
        return _without_findings(evidence, coming)
    if worst.confidence < SURE:
        return _unsure(f"There are signs of trouble, too few to throw work away for: {_plain(worst)}.")
    if worst.weight is Weight.FATAL:
        return _of_fatal(worst, saved)
    match worst.cause:
        case Cause.NOT_DECREASING:
            return _Said(Verdict.KILL, f"It does not learn: {_plain(worst)}.", worst.what_to_do)
        case Cause.OVERFITTING | Cause.PLATEAUED:
            why = "More steps make it worse" if worst.cause is Cause.OVERFITTING else "More steps do not make it better"
            return _Said(Verdict.STOP, f"{why}: {_plain(worst)}.", f"Stop it now: {_kept(evidence)}.")
    reason = f"It gets on, at a higher cost than it need have: {_plain(worst)}."
    return _Said(Verdict.WAIT, reason, worst.what_to_do)


def _of_fatal(worst: Finding, saved: Saved | None) -> _Said:
    if saved is not None:
        return _Said(
            Verdict.FIX_AND_CONTINUE,
            f"As it is it can't come to a good end: {_plain(worst)}.",
            f"{worst.what_to_do} Its checkpoint at step {saved.step:,} is good to continue from.",
        )
    spoilt = worst.cause in _SPOILT
    none = "there is no checkpoint from before" if spoilt else "there is no checkpoint to go on from"
    do = "Kill it, and begin again with a lower learning rate or gradient clipping." if spoilt else worst.what_to_do
    return _Said(Verdict.KILL, f"As it is it can't come to a good end, and {none}: {_plain(worst)}.", do)


def _without_findings(evidence: Evidence, coming: Forecast) -> _Said:
    fraction, gain = _fraction(evidence), coming.gain
    if coming.left is None or fraction is None:
        why = "it does not say how many steps it will make" if not evidence.place.total else "it has only begun"
        return _unsure(f"Too early to tell: {why}, and nothing is wrong so far.")
    if fraction >= NEARLY_DONE and (gain is None or gain.better[1] > 0):
        improving = " and still improving" if gain is not None and gain.distinct else ""
        return _Said(Verdict.WAIT, f"Nothing is wrong, and it is nearly done{improving}.", "Let it finish.")
    if fraction < EARLY:
        return _unsure(f"Too early to tell: {fraction:.0%} is done, and nothing is wrong so far.")
    if gain is None:
        return _unsure("Nothing is wrong; what the rest will bring can't be told from its metrics.", "Let it go on.")
    if gain.distinct:
        return _Said(Verdict.WAIT, f"Nothing is wrong, and {gain.metric} is still improving.", "Let it go on.")
    return _unsure(
        f"Nothing is wrong, but what the rest will bring to {gain.metric} can't be told from noise.",
        "Weigh what it costs to finish; a learning rate that is lowered at the end may still help.",
    )


def _unsure(reason: str, do: str = "Look again later.") -> _Said:
    """To wait takes nothing away that can't be taken later."""
    return _Said(Verdict.WAIT, reason, do, sure=False)


def _of_ended(evidence: Evidence, worst: Finding | None, saved: Saved | None) -> _Said:
    if evidence.status == "completed":
        more = f" Of note: {_plain(worst)}." if worst is not None else ""
        return _Said(Verdict.NOTHING, f"It has come to its end.{more}", worst.what_to_do if worst is not None else "")
    if worst is None and evidence.status == "killed":
        goes = f"A new run can continue at step {saved.step:,}." if saved is not None else ""
        return _Said(Verdict.NOTHING, "It was killed, and nothing was wrong with it that shows.", goes)
    if worst is None:
        why = "It failed, and nothing that was recorded says why."
        if saved is None:
            return _Said(Verdict.RERUN, why, "Read its last lines, then run it again.", sure=False)
        do = f"Read its last lines, then continue from its checkpoint at step {saved.step:,}."
        return _Said(Verdict.FIX_AND_CONTINUE, why, do, sure=False)
    sure = worst.confidence >= SURE
    first = "It may well go better another time" if worst.cause in PASSING else "The same again would end the same way"
    reason = f"{first}: {_plain(worst)}."
    if saved is None:
        return _Said(Verdict.RERUN, reason, f"{worst.what_to_do} It left no checkpoint: run it again.", sure)
    do = f"{worst.what_to_do} Then continue from its checkpoint at step {saved.step:,}."
    return _Said(Verdict.FIX_AND_CONTINUE, reason, do, sure)


def _fraction(evidence: Evidence) -> float | None:
    place = evidence.place
    return min(1.0, place.step / place.total) if place.total else None


def _kept(evidence: Evidence) -> str:
    best = next((each for each in evidence.saved if each.best), None)
    if best is not None:
        return f"the best checkpoint, at step {best.step:,}, is kept"
    newest = next(iter(evidence.saved), None)
    return (
        f"its checkpoint at step {newest.step:,} is kept" if newest is not None else "its result as it is now is kept"
    )


def _plain(finding: Finding) -> str:
    """To go on in a sentence."""
    return finding.says.rstrip(".")
