"""What the curves say: values that are none, a loss that runs away, does not fall, falls no more, or falls alone."""

from whistlestop.diagnosis.evidence import Evidence
from whistlestop.diagnosis.findings import Cause, Finding


def findings(evidence: Evidence) -> list[Finding]:
    return _non_finite(evidence)


def _non_finite(evidence: Evidence) -> list[Finding]:
    """Of all metrics the one that went first: the others follow from it."""
    odd = [(series.odd, series) for series in evidence.series if series.odd is not None and series.kind == "program"]
    if not odd:
        return []
    first, series = min(odd, key=lambda each: (each[0].step, each[0].at))
    where = f" on rank {series.rank}" if series.rank else ""
    return [
        Finding(
            Cause.NON_FINITE,
            0.99,
            f"{series.name} is {first.value} since step {first.step:,}{where}",
            metric=series.name,
            step=first.step,
            rank=series.rank,
            at=first.at,
        )
    ]
