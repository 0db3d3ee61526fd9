"""Logged values that are still being computed on a device: kept aside and turned into numbers later, many at once.

Asking a GPU for one number makes the loop wait for all that it has to do: a training step's worth, at every log call.
"""

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

MOST = 64  # log calls that are kept; the oldest are long computed by then
AGE_SECONDS = 1.0

Points = Callable[[int, float, Mapping[str, float]], None]


class _Late(NamedTuple):
    step: int
    at: float
    values: dict[str, Any]


class LateValues:
    """`refused` gets the names of values that turn out to be no numbers, and their types."""

    def __init__(self, write: Points, refused: Callable[[str, Any], None]) -> None:
        self._write = write
        self._refused = refused
        self._kept: list[_Late] = []

    def keep(self, step: int, at: float, values: dict[str, Any]) -> None:
        self._kept.append(_Late(step, at, {name: _copy(value) for name, value in values.items()}))
        if len(self._kept) >= MOST:
            self.settle(MOST // 2)

    @property
    def due_at(self) -> float:
        """When the oldest of them has been kept long enough."""
        return self._kept[0].at + AGE_SECONDS if self._kept else math.inf

    def settle_old(self, now: float) -> None:
        """Those that are surely computed by now."""
        self.settle(sum(late.at <= now - AGE_SECONDS / 2 for late in self._kept))

    def settle(self, count: int | None = None) -> None:
        """Turn the oldest `count` of them into points; all by default."""
        ready, self._kept = self._kept[:count], self._kept[len(self._kept) if count is None else count :]
        if not ready:
            return
        numbers = iter(_numbers([value for late in ready for value in late.values.values()]))
        for late in ready:
            good = {}
            for name, value in late.values.items():
                number = next(numbers)
                if number is None:
                    self._refused(name, value)
                else:
                    good[name] = number
            if good:
                self._write(late.step, late.at, good)

    def forget(self) -> None:
        self._kept.clear()


def _copy(value: Any) -> Any:
    """The program may go on adding to it, or give its memory away. Made on the device: nobody waits."""
    home = type(value).__module__.partition(".")[0]
    try:
        if home == "torch":
            return value.detach().clone()
        return value.copy() if home in ("jax", "jaxlib") else value
    except Exception:  # read as it is, later
        return value


def is_plain(value: Any) -> bool:
    """A number that costs nothing to read."""
    kind = type(value)
    return kind in (float, int, bool) or kind.__module__ == "numpy"


def is_late(value: Any) -> bool:
    """On a device, or a promise of JAX's: reading it now would wait for it."""
    home = type(value).__module__.partition(".")[0]
    if home in ("jax", "jaxlib"):
        return True
    device = getattr(value, "device", None)
    if home == "torch":
        return getattr(device, "type", "cpu") != "cpu"
    if home == "tensorflow":
        return isinstance(device, str) and bool(device) and "CPU" not in device.upper()
    return False


def number_of(value: Any) -> float:
    """Raises what float() raises. A tensor that has a gradient is read without it, and without a warning."""
    if type(value).__module__.partition(".")[0] == "torch":
        return float(value.detach())
    return float(value)


def _numbers(values: list[Any]) -> list[float | None]:
    """One transfer per device for torch, which would make one wait for each value otherwise."""
    found: list[float | None] = [None] * len(values)
    devices: dict[Any, list[int]] = {}
    for index, value in enumerate(values):
        if type(value).__module__.partition(".")[0] == "torch" and getattr(value, "numel", lambda: 0)() == 1:
            devices.setdefault((value.device, value.dtype), []).append(index)
            continue
        try:
            found[index] = number_of(value)
        except Exception:
            found[index] = None
    for indices in devices.values():
        torch = sys.modules["torch"]
        flat = [values[index].detach().reshape(()) for index in indices]
        for index, number in zip(indices, torch.stack(flat).cpu().double().tolist(), strict=True):
            found[index] = number
    return found
