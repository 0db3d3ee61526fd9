"""Bytes from where they are into a mapped buffer, by a few threads at once. Not what is copied: flat.py says that."""

import ctypes
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_ALONE = 4 << 20  # less than this is copied before another thread has started
_MOST_THREADS = 4  # memory is the limit, not the cores
_LOOK_SECONDS = 0.001


@dataclass(slots=True)  # not frozen: that costs more than all the rest of planning it
class Copy:
    """To `offset` of the buffer. From an address of this process, which `keep` holds; or `put` does it by itself, with
    the buffer's part that is meant for it: from a device, or from what does not lie in one piece."""

    offset: int
    size: int
    address: int = 0
    keep: Any = None
    put: Callable[[memoryview], None] | None = None


def copy_all(target: memoryview, copies: Sequence[Copy], *, threads: int = _MOST_THREADS) -> None:
    """All of it is there when this returns. memmove lets other threads of the program run meanwhile."""
    plain = []
    for each in copies:
        if each.put is not None:
            each.put(target[each.offset : each.offset + each.size])
        elif each.size:
            plain.append(each)
    if not plain:
        return
    if max(each.offset + each.size for each in plain) > target.nbytes:
        raise ValueError("the copy would go beyond its buffer")
    total = sum(each.size for each in plain)
    count = 1 if total < _ALONE else min(threads, _processors())
    _Work(target, plain, _shares(plain, total, count)).do()


class _Work:
    """Shares that any thread may take. It holds what is copied: whatever becomes of the save, no thread reads what was
    given back."""

    def __init__(self, target: memoryview, copies: Sequence[Copy], shares: Sequence[Sequence[tuple[int, int, int]]]):
        self._held = target, copies
        self._start = address_of(target)
        self._left = deque(shares)
        self._busy: list[None] = []

    def do(self) -> None:
        """All is copied when this returns, and nothing is written any more if it raises: the buffer has other users."""
        helpers = []
        try:
            for _ in range(len(self._left) - 1):
                helper = threading.Thread(target=self._help, daemon=True)
                try:
                    helper.start()
                except RuntimeError:  # the program is ending, or has too many: then it is done here
                    break
                helpers.append(helper)
            self._move()
            for helper in helpers:
                helper.join()
        finally:
            self._left.clear()
            while self._busy:  # a join that was interrupted takes a living thread for ended
                time.sleep(_LOOK_SECONDS)

    def _help(self) -> None:
        self._busy.append(None)  # before it takes a share: none is under way while nobody is busy and none is left
        try:
            self._move()
        finally:
            self._busy.pop()

    def _move(self) -> None:
        while self._left:
            try:
                share = self._left.popleft()
            except IndexError:
                return
            for offset, address, size in share:
                ctypes.memmove(self._start + offset, address, size)


def address_of(view: memoryview) -> int:
    """Of a writable buffer, as long as it lives."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else 0


def from_buffer(offset: int, raw: memoryview) -> Copy:
    """Of anything with a buffer. A read-only one tells its address to numpy alone, whose it mostly is."""
    if raw.nbytes == 0:
        return Copy(offset, 0)
    if not raw.readonly:
        return Copy(offset, raw.nbytes, address_of(raw), raw)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        return Copy(offset, raw.nbytes, numpy.frombuffer(raw, numpy.uint8).__array_interface__["data"][0], raw)

    def put(target: memoryview) -> None:
        target[:] = raw

    return Copy(offset, raw.nbytes, put=put)


def _shares(copies: Sequence[Copy], total: int, count: int) -> list[list[tuple[int, int, int]]]:
    """Offset, address and size for each thread, in equal amounts, in order: neighbours stay together."""
    shares: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]
    most = -(-total // count)
    index, room = 0, most
    for each in copies:
        done = 0
        while done < each.size:
            take = min(room, each.size - done)
            shares[index].append((each.offset + done, each.address + done, take))
            done += take
            room -= take
            if not room:
                index, room = index + 1, most
    return shares


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1
