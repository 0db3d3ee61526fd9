"""All that can be found in the evidence, the decisive first, and nothing that contradicts it."""

import re
from dataclasses import replace

from whistlestop.diagnosis import curves, endings, slow, told
from whistlestop.diagnosis.evidence import Evidence
from whistlestop.diagnosis.findings import Cause, Finding, Weight

_ORDER = {Weight.FATAL: 0, Weight.BAD: 1, Weight.HINT: 2}
_PACE = frozenset({Cause.SLOW_RANK, Cause.THROTTLED, Cause.DATA_STARVED})
_SAVING = frozenset({Cause.DISK_FULL, Cause.NOT_ALLOWED, Cause.SAVES_FAIL})
_SURE_HOST = 0.75  # from there on it is the host, and how it failed there is the host's doing
_ABOUT_NUMBERS = re.compile(r"(?i)\bnan\b|\binf\b|infinit|non-?finite|not finite")


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    end, seen = endings.findings(evidence), told.findings(evidence)
    curve, pace = curves.findings(evidence), slow.findings(evidence)
    causes = {each.cause for each in end}
    hung = next((each for each in seen if each.cause is Cause.STUCK), None)
    if end:
        curve, end = _of_numbers([each for each in curve if each.cause is not Cause.PLATEAUED], end)
        seen = [each for each in seen if not (each.cause is Cause.SAVES_FAIL and causes & _SAVING)]
        if hung is not None and Cause.KILLED_OUTSIDE in causes:
            end = []  # whoever ended it did so because it hung
        else:
            seen = [each for each in seen if each is not hung]
    if end or hung is not None:
        pace, seen = [], [each for each in seen if each.cause not in _PACE]
    first = sorted(end, key=lambda each: not (each.cause is Cause.BAD_HOST and each.confidence >= _SURE_HOST))
    rest = sorted([*curve, *seen, *pace], key=lambda each: (_ORDER[each.weight], -each.confidence))
    return (*first, *rest)


def _of_numbers(curve: list[Finding], end: list[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Whoever raised an error about a value that is none ended for that value; the metric tells since when."""
    odd = next((each for each in curve if each.cause is Cause.NON_FINITE), None)
    raised = next((each for each in end if each.cause is Cause.NON_FINITE or _ABOUT_NUMBERS.search(each.says)), None)
    if odd is None or raised is None:
        return curve, end
    joined = replace(odd, evidence=(*raised.evidence[:3], *odd.evidence), host=raised.host)
    return [each for each in curve if each is not odd], [joined, *(each for each in end if each is not raised)]
