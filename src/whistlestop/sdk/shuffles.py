"""The order of a shuffled epoch, computed one place at a time: nothing is as long as the epoch."""

import sys
from array import array
from collections.abc import Callable
from math import isqrt

_LISTED = 4096  # up to here the order is a plain list: every one of its permutations is equally likely
_ROUNDS = 3  # of both halves, so six in a Feistel network's own count: four would do for random tables


def shuffle(length: int, *, seed: int, epoch: int) -> Callable[[int], int]:
    """A function that says which sample stands at a place: a permutation of range(length), the same on every machine
    and in every version of Python. Making it costs about the square root of `length`; an index costs a microsecond."""
    key = f"whistlestop {seed} {epoch} {length}".encode()
    if length <= _LISTED:
        keys = _random_numbers(key, length, "Q")
        return sorted(range(length), key=keys.__getitem__).__getitem__
    return _feistel(length, key)


def _feistel(length: int, key: bytes) -> Callable[[int], int]:
    """The places lie in rows and columns. Each round moves the row by a random number of the column's, then the column
    by one of the row's: that can be undone, so it is a permutation. The rectangle is hardly larger than `length`; what
    falls outside goes round once more."""
    rows = isqrt(length - 1) + 1
    columns = -(-length // rows)
    numbers = _random_numbers(key, _ROUNDS * (rows + columns), "I")
    tables = []
    for start in range(0, len(numbers), rows + columns):
        middle = start + columns
        tables.append((numbers[start:middle], numbers[middle : middle + rows]))

    def sample_at(place: int) -> int:
        while True:
            row, column = divmod(place, columns)
            for row_moves, column_moves in tables:
                row = (row + row_moves[column]) % rows
                column = (column + column_moves[row]) % columns
            place = row * columns + column
            if place < length:
                return place

    return sample_at


def _random_numbers(key: bytes, count: int, kind: str) -> "array[int]":
    import hashlib  # not at the top: it costs import time

    numbers = array(kind)
    numbers.frombytes(hashlib.shake_128(key).digest(count * numbers.itemsize))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
