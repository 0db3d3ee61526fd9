"""Privacy that is spent stays spent: a ledger of all private steps ever run, and how many a budget allows.

A step whose result is thrown away (a crash behind the last checkpoint) has still looked at the data. So the count is
not in the checkpoint but in a file beside it:

    0      one word: the count, stored before every step. Survives SIGKILL, since the page is the kernel's
    512    } two slots, written in turn: steps up to `reserved` may run. Synced before the first of them does, so that
    1024   } after a crash of the host, which loses the word, the reserved ones count as spent
"""

import math
import mmap
import os
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whistlestop.blobs.files import sync_directory
from whistlestop.channel import locks, mapping
from whistlestop.domain.errors import BadRequest
from whistlestop.domain.ids import new_id
from whistlestop.domain.stop_rules import MOST_STEPS, PrivacyBudget

BLOCK = 100  # steps reserved at once, at least
LARGEST_BLOCK = 1 << 20
SIZE = 4096
SLOTS = (512, 1024)
_MAGIC = b"WSTOPDP1"
_SLOT = struct.Struct("<8sqqqqq40s")  # magic, number, base, reserved, block, clean, boot; then the CRC of it all
_CRC = struct.Struct("<I")
_SYNC_SHARE = 1000  # a sync may take one part in so many of the loop's time


@dataclass(frozen=True)
class Slot:
    number: int
    base: int  # the count when it was written
    reserved: int  # steps up to this one may run
    block: int
    clean: bool  # `reserved` is the count; else it is the word, or, after a crash of the host, `reserved`
    boot: bytes  # which start of which host: only there is the word to be trusted


class PrivacyLedger:
    """How many private steps were ever run. One process at a time."""

    def __init__(self, path: Path, *, boot: bytes) -> None:
        self.path = path
        self._boot = boot
        self.spent = 0
        self._reserved = 0
        self._block = BLOCK
        self._reserved_at = -math.inf
        self._slot = Slot(0, 0, 0, BLOCK, True, b"")
        self._mapped: mmap.mmap | None = None
        self._word = memoryview(bytearray(8)).cast("q")
        self._lock: locks.Lock | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, boot: bytes | None = None) -> "PrivacyLedger":
        """BadRequest, never a count of zero, if the file can't be trusted or another process has it. `boot` names this
        start of this host; by default the kernel does."""
        ledger = cls(Path(path), boot=this_boot() if boot is None else boot)
        try:
            ledger._open()
        except (OSError, locks.Taken) as error:
            ledger._let_go()
            raise BadRequest(
                f"the privacy ledger {path} can't be opened: {error}; without it nobody knows how much is spent",
                hint="no private step is run until it can be opened",
            ) from error
        except BaseException:
            ledger._let_go()
            raise
        return ledger

    def spend(self, steps: int = 1) -> None:
        """Count a step, BEFORE it runs."""
        after = self.spent + steps
        if after > self._reserved:
            self._reserve(after)
        self._word[0] = self.spent = after

    def at_least(self, steps: int) -> None:
        """Count no less than `steps`: what a checkpoint of the same training elsewhere says."""
        if steps > self.spent:
            self._settle(steps)

    def close(self) -> None:
        """From now on the count is exact, even if the host crashes."""
        if self._mapped is None:
            return
        try:
            if not self._slot.clean:
                self._settle(self.spent)
        except (OSError, ValueError):
            pass  # the reserved ones count as spent: too many, never too few
        finally:
            self._let_go()

    def __enter__(self) -> "PrivacyLedger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = locks.hold(self.path.with_name(self.path.name + ".lock"))
        if not self.path.exists():
            _create(self.path)
        if self.path.stat().st_size != SIZE:
            raise _corrupt(self.path, f"it has {self.path.stat().st_size} bytes instead of {SIZE}")
        self._mapped = mapping.open_existing(self.path, writable=True)
        self._word = memoryview(self._mapped)[:8].cast("q")
        slots = [_read_slot(self._mapped, place) for place in SLOTS]
        found = [slot for slot in slots if slot is not None]
        if not found:
            raise _corrupt(self.path, "neither of its two records is whole")
        self._slot = newest = max(found, key=lambda slot: slot.number)
        spent = self._count(newest, whole=len(found) == len(slots))
        if newest.clean and len(found) == len(slots):
            self._word[0] = self.spent = self._reserved = spent
        else:
            self._settle(spent)

    def _count(self, slot: Slot, *, whole: bool) -> int:
        if not whole:
            # The other record was cut while it was written, or is damaged. It may be the newer one, with a block that
            # is twice as large.
            return slot.reserved + 2 * slot.block + 1
        if slot.clean or slot.boot != self._boot:
            return slot.reserved
        if not slot.base <= self._word[0] <= slot.reserved:
            raise _corrupt(self.path, f"it counts {self._word[0]} steps, outside of {slot.base} to {slot.reserved}")
        return self._word[0]

    def _reserve(self, after: int) -> None:
        began = time.perf_counter()
        self._write(Slot(0, self.spent, after + self._block, self._block, False, self._boot))
        now = time.perf_counter()
        # A sync must not be felt: where steps are quick, more of them are reserved at once.
        if began - self._reserved_at < _SYNC_SHARE * (now - began):
            self._block = min(2 * self._block, LARGEST_BLOCK)
        elif began - self._reserved_at > 8 * _SYNC_SHARE * (now - began):
            self._block = max(self._block // 2, BLOCK)
        self._reserved_at = now
        self._reserved = self._slot.reserved

    def _settle(self, spent: int) -> None:
        """The record is the count, whatever the word says; then the word follows."""
        self._write(Slot(0, spent, spent, self._block, True, b""))
        self._word[0] = self.spent = self._reserved = spent

    def _write(self, slot: Slot) -> None:
        """Synced on return. Over the older slot: if this is cut, the other one is whole."""
        if self._mapped is None:
            raise BadRequest(f"the privacy ledger {self.path} is closed; a step can't be counted any more")
        slot = replace(slot, number=self._slot.number + 1)
        place = SLOTS[slot.number % 2]
        packed = _pack(slot)
        self._mapped[place : place + len(packed)] = packed
        try:
            self._mapped.flush()
        except OSError as error:
            raise BadRequest(f"the privacy ledger {self.path} can't be written: {error}") from error
        self._slot = slot

    def _let_go(self) -> None:
        self._word.release()
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None
        self._reserved = -1  # the next spend() is told that it is closed
        self._word = memoryview(bytearray(8)).cast("q")
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def limit_steps(spent: Callable[[int], float], epsilon: float) -> int:
    """The largest number of steps with spent(steps) <= epsilon, by doubling and halving: `spent` never falls.
    BadRequest if it can't be told."""

    def within(steps: int) -> bool:
        try:
            cost = float(spent(steps))
        except Exception as error:
            raise BadRequest(f"the privacy budget can't be computed: {steps} steps raised {error!r}") from error
        if math.isnan(cost):
            raise BadRequest(f"the privacy budget can't be computed: the epsilon of {steps} steps is not a number")
        return cost <= epsilon

    if not within(1):
        return 0
    low = 1
    while within(2 * low):
        low *= 2
        if low >= MOST_STEPS:
            return low
    high = 2 * low  # low is within, high is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def epsilon_by_accountant(rule: PrivacyBudget) -> Callable[[int], float]:
    """From Opacus or dp-accounting, whichever the program's environment has. BadRequest if neither."""
    import importlib

    # By name: integrations stand above the SDK, and need packages that only some programs have.
    integration: Any = importlib.import_module("whistlestop.integrations.opacus")
    found: Callable[[int], float] = integration.any_epsilon_of(
        rule.noise_multiplier, rule.sample_rate, rule.delta, accountant=rule.accountant
    )
    return found


def _create(path: Path) -> None:
    """Under its name only once it is whole: a file that is not, is a damaged one."""
    temporary = path.with_name(f".{path.name}.{new_id('new')}")
    mapped = mapping.create(temporary, SIZE)
    try:
        for number, place in enumerate(SLOTS):
            packed = _pack(Slot(number, 0, 0, BLOCK, True, b""))
            mapped[place : place + len(packed)] = packed
        mapped.flush()
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        mapped.close()


def _pack(slot: Slot) -> bytes:
    packed = _SLOT.pack(_MAGIC, slot.number, slot.base, slot.reserved, slot.block, slot.clean, slot.boot)
    return packed + _CRC.pack(zlib.crc32(packed))


def _read_slot(mapped: mmap.mmap, place: int) -> Slot | None:
    packed = mapped[place : place + _SLOT.size]
    (crc,) = _CRC.unpack(mapped[place + _SLOT.size : place + _SLOT.size + _CRC.size])
    magic, number, base, reserved, block, clean, boot = _SLOT.unpack(packed)
    if crc != zlib.crc32(packed) or magic != _MAGIC or not 0 <= base <= reserved:
        return None
    return Slot(number, base, reserved, block, bool(clean), boot.rstrip(b"\0"))


def this_boot() -> bytes:
    """This start of this host; where nobody can tell, one that is never seen again."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:40]
    except OSError:
        return new_id("boot").encode()[:40]


def _corrupt(path: Path, why: str) -> BadRequest:
    return BadRequest(
        f"the privacy ledger {path} is damaged: {why}. How much of the budget is spent is not known, so no step is run",
        hint="restore it from a backup, or start a new run with what is left of the budget",
    )
