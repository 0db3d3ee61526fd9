"""Whether it is the host: this failure there, and not elsewhere."""

from whistlestop.diagnosis.evidence import End, Evidence
from whistlestop.diagnosis.findings import Cause, Finding

# These lie with the program or with what it was told, wherever it runs.
_TAKEN_ALONG = frozenset(
    {
        Cause.CODE_ERROR, Cause.WRONG_CONFIG, Cause.BAD_DATA, Cause.ENDED_EARLY, Cause.NON_FINITE,
    }
)  # fmt: skip


def bad_host(evidence: Evidence, end: End, cause: Cause | None) -> Finding | None:
    record = next((each for each in evidence.hosts if each.host == end.host and end.host), None)
    if record is None or not (record.elsewhere or record.failed):
        return None
    here = sum(1 for each in evidence.ends if each.host == end.host and each.reason == end.reason)
    sure = _sure(here, record.elsewhere, record.failed, record.good)
    if sure < 0.5 or (cause in _TAKEN_ALONG and not record.elsewhere):
        return None
    words = [f"it failed {here} time{'s' if here != 1 else ''} on {end.host}"]
    if record.elsewhere:
        words.append(
            f"got on without that on other hosts {record.elsewhere} time{'s' if record.elsewhere != 1 else ''}"
        )
    if record.failed:
        words.append(f"{record.failed} attempt{'s' if record.failed != 1 else ''} of other runs failed there too")
    return Finding(
        Cause.BAD_HOST,
        sure,
        ", ".join(words),
        evidence=(f"{end.host}: {record.good} of other runs ended well there, {record.failed} failed", end.text),
        do=f"Exclude the host (whistle hosts exclude {end.host}), then retry.",
        step=end.last_step,
        host=end.host,
        at=end.at,
    )


def _sure(here: int, elsewhere: int, failed: int, good: int) -> float:
    """Its own attempts elsewhere prove it; others' failures do only where nobody gets on."""
    if elsewhere:
        return round(min(0.97, 0.6 + 0.1 * min(here, 2) + 0.05 * min(elsewhere, 3) + 0.1 * min(failed, 2)), 2)
    return round(min(0.9, 0.5 + 0.1 * min(failed, 4)), 2) if failed >= 3 and good * 3 < failed else 0.0
