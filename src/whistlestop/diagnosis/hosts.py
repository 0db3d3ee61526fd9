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
    if cause in _TAKEN_ALONG:
        sure -= 0.0 if record.elsewhere else 0.3
    if sure < 0.5:
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
    """Both witnesses, or one that says it more than once; good ends of others speak against it."""
    points = min(here, 3) * (1 if elsewhere else 0) + min(elsewhere, 2) + min(failed, 3) - 0.5 * min(good, 4)
    return round(min(0.97, 0.4 + 0.13 * points), 2)
