"""What the runner and the SDK saw themselves: a hang with its stacks, a rank that is late, saves that fail."""

import math
from collections.abc import Sequence

from whistlestop.diagnosis.evidence import Evidence, Told
from whistlestop.diagnosis.findings import Cause, Finding
from whistlestop.diagnosis.reading import of_text
from whistlestop.diagnosis.remedies import remedy
from whistlestop.diagnosis.signs import OTHER, STRONG

_NOT_SAVED = "could not be saved"  # as the SDK says it
_PATIENCE = 60.0  # seconds before a save that is tried again is called failing


def findings(evidence: Evidence) -> list[Finding]:
    told = sorted(evidence.told, key=lambda each: each.at)
    now = [each for each in told if each.at >= evidence.place.started_at]
    found = (_stuck(now), _slow_rank(now), _saves_fail(evidence, told))
    return [each for each in found if each is not None]


def _stuck(told: Sequence[Told]) -> Finding | None:
    """The newest that was not followed by a step, of any rank."""
    last = next((each for each in reversed(told) if each.kind in ("stuck", "going_again")), None)
    if last is None or last.kind != "stuck":
        return None
    data = last.data
    rank, step, stage = _whole(data.get("rank")), _whole(data.get("step")), str(data.get("stage") or "")
    silent, expected = _number(data.get("silent_s")), _number(data.get("expected_s"))
    stacks = [each for each in _list(data.get("stacks")) if isinstance(each, dict)]
    where = _top(stacks)
    words = f"no step for {silent:.0f} s" if silent is not None else "no step for too long"
    words += f", where its own history says {expected:.0f} s at most" if expected is not None else ""
    words += f", while {stage}" if stage else ""
    words += f"; it hangs in {where}" if where else ""
    return Finding(
        Cause.STUCK,
        0.97,
        words,
        evidence=tuple(_stack(each) for each in stacks[:8]) or (last.text,),
        do=f"Look at {where}, then restart it from its checkpoint." if where else "",
        step=step,
        rank=rank,
        host=str(data.get("host") or ""),
        at=last.at,
    )


def _slow_rank(told: Sequence[Told]) -> Finding | None:
    last = next((each for each in reversed(told) if each.kind == "straggler"), None)
    rank = _whole(last.data.get("rank")) if last is not None else None
    if last is None or rank is None:
        return None
    host, wait = str(last.data.get("host") or ""), _number(last.data.get("wait"))
    share, steps = _number(last.data.get("share")), _whole(last.data.get("steps"))
    on = f" on {host}" if host else ""
    words = f"rank {rank}{on} keeps the others waiting"
    words += f", {wait * 1000:.3g} ms a step" if wait is not None else ""
    words += f"; it came last in {share:.0%} of {steps:,} steps" if share is not None and steps else ""
    return Finding(
        Cause.SLOW_RANK,
        0.95,
        words,
        evidence=(last.text,),
        do=f"Look at what else runs on {host}; if it stays slow, move the run (whistle hosts exclude {host})."
        if host
        else "",
        rank=rank,
        host=host,
        at=last.at,
    )


def _saves_fail(evidence: Evidence, told: Sequence[Told]) -> Finding | None:
    """None came through since. One try that failed is tried again: it is told when it was given up, or lasts."""
    since = list[Told]()
    for each in told:
        if each.kind == "checkpoint":
            since.clear()
        elif each.kind == "save_failed" or (each.kind == "program" and _NOT_SAVED in each.text):
            since.append(each)
    if not since:
        return None
    last, first = since[-1], since[0]
    given_up = any(each.data.get("final", True) for each in since)
    if not given_up and evidence.now - first.at < _PATIENCE and len(since) < 3:
        return None
    error = str(last.data.get("error") or last.text)
    known = of_text(error, (*STRONG, *OTHER))
    return Finding(
        Cause.SAVES_FAIL,
        0.95 if given_up else 0.85,
        f"{len(since)} save{'s' if len(since) > 1 else ''} failed and none came through since: {error[:300]}",
        evidence=tuple(dict.fromkeys(each.text for each in since[-4:])),
        do=(known and remedy(known[0], error)) or "",
        step=_whole(first.data.get("step")),
        at=first.at,
    )


def _top(stacks: Sequence[dict[str, object]]) -> str:
    for each in stacks:
        frames = [str(frame) for frame in _list(each.get("frames"))]
        if frames:
            return frames[0]
    return ""


def _stack(stack: dict[str, object]) -> str:
    head = f"rank {stack.get('rank', 0)}, process {stack.get('pid', '?')}, thread {stack.get('thread', '?')}"
    return "\n".join((head, *(f"  {frame}" for frame in _list(stack.get("frames"))[:20])))


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
