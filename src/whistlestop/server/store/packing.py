"""Columns of 8-byte numbers, packed. Bytes of equal rank stand together, and what grows is stored by its differences:
a third of the size and a tenth of the time of compressing them as they are."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

Column = npt.NDArray[Any]

MARK = b"\x02"  # of this form. What an earlier version has packed begins with zstd's own mark, 0x28
LEVEL = -1  # of zstd: higher ones take several times as long and save nothing


class _Zstd(threading.local):
    """One for each thread: making one costs as much as using it."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=LEVEL).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_zstd = _Zstd()


def pack(columns: Sequence[Column], *, growing: int) -> bytes:
    """The first `growing` columns are stored by their differences."""
    table = np.empty((len(columns), len(columns[0])), "<i8")
    for row, column in zip(table, columns, strict=True):
        row[:] = column.view(np.int64) if column.dtype.kind == "f" else column
    table[:growing, 1:] -= table[:growing, :-1].copy()
    ranked = table.view(np.uint8).reshape(len(columns), -1, 8).transpose(0, 2, 1)
    return MARK + _zstd.compress(ranked.tobytes())


def unpack(data: bytes, count: int, *, growing: int) -> Column:
    """So many columns, as 64-bit integers: those that were none are to be viewed as what they were."""
    raw = np.frombuffer(_zstd.decompress(memoryview(data)[1:]), np.uint8)
    ranked = raw.reshape(count, 8, -1).transpose(0, 2, 1)
    table = ranked.copy().view("<i8").reshape(count, -1)
    np.cumsum(table[:growing], axis=1, out=table[:growing])
    return table


def unpack_old(data: bytes) -> bytes:
    return _zstd.decompress(data)
