"""Buckets: what a chart shows of a stretch of points. A point is a bucket of one; sixteen buckets make a larger one."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from whistlestop.server.store import packing

Column = npt.NDArray[Any]

NAN, PLUS, MINUS = 1, 2, 4  # bits of `odd`
ODD = {NAN: "nan", PLUS: "inf", MINUS: "-inf"}


@dataclass(frozen=True)
class Buckets:
    """The highest step and time are those of the last point, unless a program goes back."""

    low: Column  # f64 of the finite values; NaN: there are none
    high: Column
    last: Column  # f64, the last finite one
    odd: Column  # u8, which values that are not finite are in it
    step_low: Column  # i64
    step_high: Column
    time_low: Column  # f64
    time_high: Column

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, chosen: Any) -> "Buckets":
        return Buckets(*(column[chosen] for column in self.columns()))

    def columns(self) -> list[Column]:
        return [getattr(self, name) for name in NAMES]


NAMES = tuple(field.name for field in fields(Buckets))
_TYPES = ("<f8", "<f8", "<f8", "u1", "<i8", "<i8", "<f8", "<f8")
_PACKED = ("step_low", "step_high", "time_low", "time_high", "low", "high", "last", "odd")
EMPTY = Buckets(*(np.empty(0, kind) for kind in _TYPES))


def of_points(step: Column, time: Column, value: Column) -> Buckets:
    finite = np.isfinite(value)
    if finite.all():
        shown, odd = value, np.zeros(len(value), np.uint8)
    else:
        shown = np.where(finite, value, np.nan)
        odd = np.isnan(value) * NAN + (value == np.inf) * PLUS + (value == -np.inf) * MINUS
    time = time if np.isfinite(time).all() else np.nan_to_num(time, nan=0.0, posinf=0.0, neginf=0.0)
    return Buckets(shown, shown, shown, odd.astype(np.uint8), step, step, time, time)


def join(parts: list[Buckets]) -> Buckets:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return EMPTY
    return Buckets(*(np.concatenate(columns) for columns in zip(*(part.columns() for part in parts), strict=True)))


def merge(whole: Buckets, starts: Column) -> Buckets:
    """One bucket from each start to the next; within `whole`, the later one is the newer."""
    if not len(starts):
        return EMPTY
    finite = np.isfinite(whole.last)
    if finite.all():
        newest = np.append(starts[1:], len(whole)) - 1
    else:
        newest = np.maximum.reduceat(np.where(finite, np.arange(len(whole)), -1), starts)
    return Buckets(
        np.fmin.reduceat(whole.low, starts),
        np.fmax.reduceat(whole.high, starts),
        np.where(newest >= 0, whole.last[newest], np.nan),
        np.bitwise_or.reduceat(whole.odd, starts),
        np.minimum.reduceat(whole.step_low, starts),
        np.maximum.reduceat(whole.step_high, starts),
        np.minimum.reduceat(whole.time_low, starts),
        np.maximum.reduceat(whole.time_high, starts),
    )


def coarser(whole: Buckets, factor: int) -> Buckets:
    """Only whole groups; what is left over is left out."""
    groups = len(whole) // factor
    return merge(whole[: groups * factor], np.arange(groups) * factor)


def pack(buckets: Buckets) -> bytes:
    return packing.pack([getattr(buckets, name) for name in _PACKED], growing=4)


def unpack(data: bytes) -> Buckets:
    table = dict(zip(_PACKED, packing.unpack(data, len(_PACKED), growing=4), strict=True))
    columns = (column.view(kind) if kind == "<f8" else column.astype(kind) for column, kind in _typed(table))
    return Buckets(*columns)


def _typed(table: dict[str, Column]) -> list[tuple[Column, str]]:
    return [(table[name], kind) for name, kind in zip(NAMES, _TYPES, strict=True)]
