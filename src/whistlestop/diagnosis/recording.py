"""Evidence as JSON and back, exactly; and as it was at an earlier time. What recorded cases are made of."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import msgspec

from whistlestop.diagnosis.evidence import Evidence, Place, Series


def to_json(evidence: Evidence) -> dict[str, Any]:
    """What differs from the defaults, as JSON knows it. Numbers are as they were."""
    told: dict[str, Any] = _plain(evidence)
    return told


def from_json(told: dict[str, Any]) -> Evidence:
    """Raises msgspec.ValidationError for what is no evidence."""
    return msgspec.convert(told, Evidence)


def cut(evidence: Evidence, at: float) -> Evidence:
    """As it was at this time, while the attempt that ended later was running: what a live look would have seen."""
    series = tuple(_before(each, at) for each in evidence.series)
    made = [each for each in series if each.kind == "program" and each.steps]
    place = replace(
        evidence.place,
        stage="training",
        step=max((each.steps[-1] + 1 for each in made), default=evidence.place.resumed_step),
        progress_at=max((each.times[-1] for each in made), default=0.0),
        ended_at=None,
    )
    return replace(
        evidence,
        now=at,
        status="running",
        place=place,
        series=tuple(each for each in series if each.steps or each.odd),
        ends=tuple(end for end in evidence.ends if end.at <= at),
        lines=tuple(line for line in evidence.lines if line.at <= at),
        told=tuple(told for told in evidence.told if told.at <= at),
        spent=evidence.spent * _part(evidence.place, evidence.now, at),
    )


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        plain = {}
        for each in fields(value):
            mine = getattr(value, each.name)
            if mine != each.default or each.name in ("now", "attempt"):
                plain[each.name] = _plain(mine)
        return plain
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return dict(value) if isinstance(value, dict) else value


def _before(series: Series, at: float) -> Series:
    kept = sum(1 for each in series.times if each <= at)
    odd = series.odd if series.odd is not None and series.odd.at <= at else None
    return replace(series, steps=series.steps[:kept], values=series.values[:kept], times=series.times[:kept], odd=odd)


def _part(place: Place, now: float, at: float) -> float:
    end = place.ended_at or now
    return max(0.0, min(1.0, (at - place.started_at) / (end - place.started_at))) if end > place.started_at else 1.0
