"""Changes to a run on its way: more steps, another value of a declared parameter. Each holds from a step on, which is
kept with it: an attempt that starts again from an earlier step changes at the same steps."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whistlestop.channel.layout import STEERING_FILE
from whistlestop.domain.errors import BadRequest

TOTAL: Final = "total"
PARAM: Final = "param:"

Value = float | int | bool | str


@dataclass(frozen=True)
class Change:
    seq: int
    name: str
    value: Value
    step: int | None  # None: it has not been applied yet


@dataclass
class Param:
    default: Value
    value: Value
    low: float | None
    high: float | None

    def refuses(self, value: object) -> str | None:
        """Why it can't take this value."""
        number = isinstance(self.default, int | float) and not isinstance(self.default, bool)
        if number and (isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)):
            return f"{value!r} is not a number"
        if not number and not isinstance(value, type(self.default)):
            return f"{value!r} is not a {type(self.default).__name__}, as {self.default!r} is"
        if isinstance(value, int | float) and self.low is not None and value < self.low:
            return f"{value!r} is below {self.low}"
        if isinstance(value, int | float) and self.high is not None and value > self.high:
            return f"{value!r} is above {self.high}"
        return None

    def told(self) -> dict[str, Any]:
        return {"value": self.value, "default": self.default, "low": self.low, "high": self.high}


def _change(given: dict[str, Any]) -> Change:
    seq, name, value, step = given["seq"], given["name"], given["value"], given.get("step")
    whole = all(isinstance(each, int) and not isinstance(each, bool) for each in (seq, 0 if step is None else step))
    if not whole or not isinstance(name, str) or not isinstance(value, int | float | bool | str):
        raise ValueError(f"{given} is not a change")
    return Change(seq, name, value, step)


class Steering:
    """`tell` takes events for the server."""

    def __init__(self, channel: Path | None, tell: Callable[[dict[str, Any]], None]) -> None:
        self._path = channel / STEERING_FILE if channel is not None else None
        self._tell = tell
        self._changes: list[Change] = []
        self._applied: set[int] = set()
        self._given: dict[str, Change] = {}  # for parameters that are not declared yet
        self.params: dict[str, Param] = {}

    def read(self) -> None:
        """What has been asked for so far. A file that can't be read leaves things as they are."""
        if self._path is None:
            return
        try:
            listed = json.loads(self._path.read_text())["changes"]
            changes = [_change(each) for each in listed]
        except FileNotFoundError:
            return
        except Exception as error:  # it is a file that anybody may have written
            self._tell({"kind": "message", "level": "warning", "text": f"changes can't be read: {error!r}"})
            return
        self._changes = sorted(changes, key=lambda change: (change.step is None, change.step or 0, change.seq))

    @property
    def newest(self) -> int:
        """The highest number of a change that waits to be applied; 0 = none."""
        return max(
            (each.seq for each in self._changes if each.step is None and each.seq not in self._applied), default=0
        )

    def next_step(self) -> float:
        """The next step at which an earlier attempt changed something."""
        return min(
            (each.step for each in self._changes if each.step is not None and each.seq not in self._applied),
            default=math.inf,
        )

    def apply(self, step: int, *, up_to: int, set_total: Callable[[int], str | None], tells: bool) -> None:
        """Carry out what is due at `step`: what an earlier attempt did by now, and new ones up to number `up_to`."""
        for change in self._changes:
            if change.seq in self._applied:
                continue
            if change.step > step if change.step is not None else change.seq > up_to:
                continue
            self._applied.add(change.seq)
            # A newer wish holds: an older one, applied later in an earlier attempt, must not undo it.
            self._applied |= {e.seq for e in self._changes if e.name == change.name and e.seq < change.seq}
            try:
                refused = self._carry_out(change, set_total)
            except Exception as error:  # 10**400 is an integer to JSON
                refused = f"{change.name} was not changed: {error!r}"
            if not tells:
                continue
            if refused is not None:
                self._tell({"kind": "steering_refused", "seq": change.seq, "step": step, "text": refused})
            else:
                at = step if change.step is None else change.step
                self._tell(
                    {"kind": "steered", "seq": change.seq, "step": at, "name": change.name, "value": change.value}
                )

    def declare(self, name: str, default: Value, low: float | None, high: float | None) -> Value:
        param = Param(default, default, low, high)
        if (why := param.refuses(default)) is not None:
            raise BadRequest(f"param({name!r}): the default {why}")
        given = self._given.pop(name, None)
        if given is not None and (why := param.refuses(given.value)) is not None:
            self._tell({"kind": "steering_refused", "seq": given.seq, "text": f"{name} was not changed: {why}"})
        elif given is not None:
            param.value = given.value
        self.params[name] = param
        self.tell_params()
        return param.value

    def _carry_out(self, change: Change, set_total: Callable[[int], str | None]) -> str | None:
        """None, or why it can't be done."""
        if change.name == TOTAL:
            if isinstance(change.value, bool) or not isinstance(change.value, int):
                return f"{change.value!r} is not a number of steps"
            return set_total(change.value)
        if not change.name.startswith(PARAM):
            return f"{change.name} can't be changed by this version of the SDK"
        name = change.name.removeprefix(PARAM)
        param = self.params.get(name)
        if param is None:
            self._given[name] = change
            return None
        if (why := param.refuses(change.value)) is not None:
            return f"{name} was not changed: {why}"
        param.value = change.value
        self.tell_params()
        return None

    def tell_params(self) -> None:
        """What can be changed, also if it is nothing."""
        self._tell({"kind": "params", "params": {name: param.told() for name, param in self.params.items()}})
