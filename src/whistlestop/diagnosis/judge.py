"""All that can be found in the evidence, the decisive first."""

from whistlestop.diagnosis import curves
from whistlestop.diagnosis.evidence import Evidence
from whistlestop.diagnosis.findings import Finding, Weight

_ORDER = {Weight.FATAL: 0, Weight.BAD: 1, Weight.HINT: 2}


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    found = curves.findings(evidence)
    return tuple(sorted(found, key=lambda each: (_ORDER[each.weight], -each.confidence)))
