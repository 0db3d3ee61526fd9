"""A phase's changes on the way, as they are stored: a list that only grows, each with the step it was applied at.

Beside them the parameters that the program has declared, with the attempt that told of them last. Pure. `steering.py`
adds what people ask for, `steered.py` what the program says about it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from whistlestop.wire.frames import Change

TOTAL = "total"
PARAM = "param:"
_HEARD = ""  # no parameter has this name


class Stored(TypedDict):
    seq: int  # from 1, over the phase
    name: str  # TOTAL, or PARAM + the parameter's name
    value: Any  # bool, int, float or str
    step: int | None  # None: not applied yet
    refused: str | None  # why the program did not take it
    actor: str
    at: float
    key: NotRequired[str]  # of the request, and what it was answered: a repeated one is answered alike
    said: NotRequired[str]


def last_seq(stored: Sequence[Stored]) -> int:
    return stored[-1]["seq"] if stored else 0


def added(
    stored: Sequence[Stored], name: str, value: Any, *, actor: str, at: float, key: str | None = None, said: str = ""
) -> list[Stored]:
    new = Stored(seq=last_seq(stored) + 1, name=name, value=value, step=None, refused=None, actor=actor, at=at)
    return [*stored, new if key is None else Stored(**new, key=key, said=said)]


def answered(stored: Sequence[Stored], key: str) -> str | None:
    """What the request with this key was answered, if it was made before."""
    return next((each.get("said", "") for each in stored if each.get("key") == key), None)


def wanted(stored: Sequence[Stored], name: str) -> Stored | None:
    """The last one of this name that was not refused."""
    return next((each for each in reversed(stored) if each["name"] == name and each["refused"] is None), None)


def pending(stored: Sequence[Stored]) -> list[Stored]:
    return [each for each in stored if each["step"] is None and each["refused"] is None]


def standing(stored: Sequence[Stored]) -> list[Change]:
    """What the program has to apply or to replay."""
    good = [each for each in stored if each["refused"] is None]
    return [
        Change(each["seq"], each["name"], each["value"], each["step"], each["actor"])
        for each in good
        if not any(_replaces(later, each) for later in good)
    ]


def until(stored: Sequence[Stored], step: int) -> list[Stored]:
    """What was applied on the way to this step, for another run: it has no part in the requests of this one."""
    return [
        Stored(**{name: value for name, value in each.items() if name not in ("key", "said")})  # type: ignore[typeddict-item]
        for each in stored
        if each["refused"] is None and each["step"] is not None and each["step"] <= step
    ]


def with_news(stored: Sequence[Stored], seq: int, **news: Any) -> list[Stored]:
    return [Stored(**{**each, **news}) if each["seq"] == seq else each for each in stored]  # type: ignore[typeddict-item]


def declared(params: Mapping[str, Any]) -> dict[str, Any]:
    """By name, as stored with the phase."""
    return {name: said for name, said in params.items() if name != _HEARD}


def heard(params: Mapping[str, Any]) -> int:
    """Number of the last attempt that has told what it declares, be it nothing; 0 = none has."""
    return int(params.get(_HEARD, {}).get("attempt", 0))


def with_declared(params: Mapping[str, Any], known: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    return {**known, _HEARD: {"attempt": max(attempt, heard(params))}}


def in_words(change: Mapping[str, Any]) -> str:
    """lr was set to 0.01 / the end was moved to step 5000"""
    if change["name"] == TOTAL:
        return f"the end was moved to step {change['value']}"
    return f"{change['name'].removeprefix(PARAM)} was set to {change['value']!r}"


def _replaces(later: Stored, earlier: Stored) -> bool:
    """After a resume the later one may have been applied at an earlier step: the old wish must not undo the new one."""
    if later["name"] != earlier["name"] or later["seq"] <= earlier["seq"] or later["step"] is None:
        return False
    return earlier["step"] is None or later["step"] <= earlier["step"]
