"""What every storage of checkpoints can do, whatever it is made of; and which of the checkpoints in it count.

    ROOT/PHASE/step-000000000500-2/manifest.json     a checkpoint: there is nothing to it before this file is there
    ROOT/PHASE/claim-000000003.json                  attempt 3 begins: nothing is committed by earlier ones from now on
    ROOT/PHASE/fence-000000003.json                  it has begun; this lists the checkpoints that counted then
    a share for each node, of a save that several nodes make: see shares.py

Attempts are numbered, and the number is in the name of all that an attempt writes. An attempt begins with its claim,
looks what is there, and writes its fence. From then on a checkpoint of an earlier attempt counts only if the fence
lists it: one that is still alive somewhere, cut off and not knowing it, may write what it likes. Who commits looks for
claims last of all: what was told to be safe was there before the claim, and is in the fence's list. This needs no
conditional writes, and no clock.
"""

import contextlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whistlestop.blobs.manifest import DIRECTORY, Checkpoint, Damaged, SaveFailed, decode
from whistlestop.blobs.shares import Shares
from whistlestop.blobs.staged import Staged
from whistlestop.domain.errors import WhistleError

BEGUN: Final = re.compile(r"(?:claim|fence)-(\d{9,})\.json")
FENCE: Final = re.compile(r"fence-(\d{9,})\.json")
CLAIM: Final = re.compile(r"claim-(\d{9,})\.json")
_LOOKS: Final = 5
DAY: Final = 86_400.0  # what was removed can be had back for this long


class Fenced(WhistleError):
    """A later attempt has begun: nothing of this one counts any more."""

    code = "fenced"


class StorageFailed(WhistleError):
    """The storage did not answer, or refused. Whatever was committed before is as it was."""

    code = "storage_failed"


class Removed(WhistleError):
    """The checkpoint was removed while it was read. Nothing is wrong with what was read of it."""

    code = "checkpoint_removed"


@dataclass(frozen=True)
class Committed:
    checkpoint: Checkpoint
    written: int  # bytes; those that were there already are not written again
    seconds: float


@dataclass(frozen=True)
class Probe:
    """What a storage can do, as it was tried."""

    conditional: bool  # of two who create the same name one is refused


@dataclass(frozen=True)
class Fence:
    attempt_number: int
    attempt_id: str
    counted: frozenset[str]  # names of the checkpoints of earlier attempts


class Storage(ABC):
    """The checkpoints of one run."""

    @abstractmethod
    def where(self, checkpoint: Checkpoint) -> str:
        """Its address in words, and for `locate` of open.py: a directory's path, or s3://bucket/prefix/RUN/PHASE/NAME."""

    # The attempt that writes.

    def open_attempt(self, phase: str, attempt_number: int, attempt_id: str) -> None:
        """Fenced if a later one has begun. Twice by the same attempt is not an error: its runner may have died."""
        self.check_fence(phase, attempt_number)
        fence, own = self._fence(phase), {"attempt_number": attempt_number, "attempt_id": attempt_id}
        if fence is None or fence.attempt_number < attempt_number:
            claim = f"claim-{attempt_number:09d}.json"
            if not self._create(phase, claim, json.dumps(own).encode()):
                with contextlib.suppress(FileNotFoundError):  # swept: then there is a fence
                    self._check_own(own, phase, self._read_fence(phase, attempt_number, claim))
            listed = {**own, "counted": sorted(self._counted(phase))}
            if self._create(phase, f"fence-{attempt_number:09d}.json", json.dumps(listed).encode()):
                return
            fence = self._fence(phase)  # another process of this attempt was quicker
        self._check_own(own, phase, fence)

    def check_fence(self, phase: str, attempt_number: int) -> None:
        """Fenced if a later attempt has begun, or is about to."""
        last = max((int(match[1]) for name in self._names(phase) if (match := BEGUN.fullmatch(name))), default=0)
        if last > attempt_number:
            raise Fenced(f"attempt {last} of {phase} has begun: attempt {attempt_number} is over")

    def check_counts(self, phase: str, attempt_number: int, name: str) -> None:
        """The same for one that is committed already: Fenced unless the later attempt knows of it."""
        try:
            self.check_fence(phase, attempt_number)
        except Fenced as error:
            fence = self._fence(phase)
            if fence is None or fence.attempt_number <= attempt_number or name not in fence.counted:
                raise Fenced(f"{error.text}, and {name} came too late") from error

    @abstractmethod
    def probe(self, phase: str) -> Probe:
        """Whether it can be written to and read from at all. StorageFailed says what is wrong, and what to do."""

    @abstractmethod
    def commit(self, staged: Staged, *, cancelled: Callable[[], bool] = lambda: False) -> Committed:
        """Write what is staged, read it back, and make it count. Fenced, SaveFailed or StorageFailed: it does not
        exist then. `cancelled` is asked when nothing is left to do but that: True is SaveFailed."""

    # The nodes that write, where an attempt has several. All of it is done by the first one's runner but `lay_share`
    # and `refuse_share`.

    @abstractmethod
    def lay_share(self, staged: Staged, *, cancelled: Callable[[], bool] = lambda: False) -> int:
        """Write what this node has staged, read it back, and say so where the first node finds it; the bytes that were
        written. Twice is not an error. Fenced, SaveFailed or StorageFailed, as `commit`."""

    @abstractmethod
    def refuse_share(self, staged: Staged, why: str) -> None:
        """This node's never comes: nobody need wait for it."""

    @abstractmethod
    def shares(self, staged: Staged) -> Shares:
        """What has come of the save of which this is the first node's."""

    @abstractmethod
    def join(self, staged: Staged, shares: Shares, *, cancelled: Callable[[], bool] = lambda: False) -> Checkpoint:
        """One checkpoint of all of them. As `commit`; its shares are gone afterwards."""

    def joined(self, staged: Staged) -> Checkpoint | None:
        """What this very save has become already: its runner may have died behind it."""
        assert staged.share is not None
        for name, step, number, _ in _in_order(self._names(staged.phase)):
            if (step, number) == (staged.step, staged.attempt_number):
                with contextlib.suppress(Damaged, FileNotFoundError):
                    found = decode(*self._manifest(staged.phase, name))
                    if found.meta.get("save") == staged.share.save:
                        return found
        return None

    @abstractmethod
    def drop_shares(self, staged: Staged) -> None:
        """Nobody joins them any more."""

    def _check_wanted(self, staged: Staged, cancelled: Callable[[], bool]) -> None:
        """Right before it counts."""
        self.check_fence(staged.phase, staged.attempt_number)
        if cancelled():
            raise SaveFailed(f"step {staged.step} of {staged.phase} was given up: nobody waits for it any more")

    @abstractmethod
    def distrust(self, address: str) -> None:
        """Somebody has found this one damaged: what it consists of is written again, not built on. Any name of it that
        ends in its own will do."""

    # Those who read.

    def list(self, phase: str) -> list[Checkpoint]:
        """Those that count and have a readable manifest, newest first by step, attempt and revision. Their files are
        not looked at."""
        return [found for found, why in self._all(phase) if why is None]

    def newest(
        self,
        phase: str,
        *,
        verify: Callable[[Checkpoint], Any] | None = None,
        without: Callable[[Checkpoint], bool] = lambda checkpoint: False,
    ) -> tuple[Checkpoint | None, Sequence[tuple[Checkpoint, str]]]:
        """The newest one that verifies, and the newer ones that had to be set aside, each with why. `verify`: another
        way to do so, fetching for instance; it raises Damaged, or Removed. `without`: as if it were not there. None:
        there are none, or none that is fit; that all have gone meanwhile is StorageFailed."""
        aside: list[tuple[Checkpoint, str]] = []
        removed = 0
        for found, why in self._all(phase):
            if without(found):
                continue
            if why is None and not found.healthy:
                why = f"{self.where(found)}: a value was not finite before it was saved"
            if why is None:
                try:
                    (verify or self.verify)(found)
                except Removed:
                    removed += 1
                    continue
                except Damaged as error:
                    why = error.text
            if why is None:
                return found, aside
            aside.append((found, why))
        if removed and not aside:  # a person, or a share that is not mounted any more: no reason to start from zero
            raise StorageFailed(f"all checkpoints of {phase} have gone while they were looked at")
        return None, aside

    @abstractmethod
    def verify(self, checkpoint: Checkpoint) -> None:
        """Read every file. Damaged, with words, unless all are there with the size and hash of the manifest. As `fetch`
        and `open_file`: what was discarded is read where it is now, Removed if it goes meanwhile, and StorageFailed if
        nothing can be said about it."""

    @abstractmethod
    def fetch(self, checkpoint: Checkpoint, into: Path, *, only: Callable[[str], bool] | None = None) -> Path:
        """A directory on this machine with its files and its manifest, each hash checked on the way; `into` is made
        if it has to be copied. `only`: the files that are needed here, by name. Damaged, as `verify`."""

    @abstractmethod
    def open_file(self, checkpoint: Checkpoint, name: str) -> Iterator[bytes]:
        """The bytes of one file, in pieces. Damaged at the end if they are not those that were saved."""

    # Removing.

    @abstractmethod
    def discard(self, checkpoint: Checkpoint, now: float) -> None:
        """It counts no more. `recover` brings it back, until `purge`. Twice is not an error."""

    @abstractmethod
    def trashed(self, phase: str) -> Sequence[tuple[Checkpoint, float]]:
        """What was discarded, and when."""

    @abstractmethod
    def recover(self, checkpoint: Checkpoint) -> None:
        """Undo `discard`. Damaged if it is not there any more."""

    @abstractmethod
    def purge(self, phase: str, before: float) -> int:
        """For good: what was discarded before that time. Returns how many."""

    @abstractmethod
    def sweep(self, phase: str, attempt_number: int, *, nodes: int = 1) -> int:
        """Remove what belongs to nothing: saves that were never committed, checkpoints that a fence has shut out, parts
        that no checkpoint has, the trash's included. Only by the attempt that writes, between two saves, or when no
        attempt is under way: it is its own saves that it must spare. `nodes`: of that attempt; of several, others may
        be writing all the time, and what they have brought and what they may be bringing is left alone. Returns how
        many things went."""

    @abstractmethod
    def remove_all(self) -> None:
        """Everything of this run: every manifest before any data."""

    # How it is done.

    @abstractmethod
    def _names(self, phase: str) -> Sequence[str]:
        """All that lies directly in a phase: step-… that have a manifest, claim-….json, fence-….json."""

    @abstractmethod
    def _manifest(self, phase: str, name: str) -> tuple[bytes, Path]:
        """The manifest of step-…, and the path that its Checkpoint shall have. Damaged if it can't be read."""

    @abstractmethod
    def _read(self, phase: str, name: str) -> bytes:
        """A small file of a phase."""

    @abstractmethod
    def _create(self, phase: str, name: str, data: bytes) -> bool:
        """Whole or not at all. False: it is there already."""

    @abstractmethod
    def _trashed_names(self, phase: str) -> Sequence[str]:
        """Of what was discarded: step-…"""

    def _counted(self, phase: str) -> set[str]:
        """By name: nothing is shut out because its manifest makes no sense just now. What was removed can be had back,
        and counts again then. The trash is looked at twice: something may be on its way, there or back."""
        counts, trashed = self._counts(phase), {*self._trashed_names(phase)}
        names = {name for name, _, number, _ in _in_order(self._names(phase)) if counts(name, number)}
        return names | trashed | {*self._trashed_names(phase)}

    def _fence(self, phase: str) -> Fence | None:
        """The newest. Where an attempt is just beginning, the one before it is still the one that counts."""
        for _ in range(_LOOKS):
            numbers = [(int(match[1]), name) for name in self._names(phase) if (match := FENCE.fullmatch(name))]
            try:
                found = (self._read_fence(phase, number, name) for number, name in sorted(numbers, reverse=True))
                return next(filter(None, found), None)
            except FileNotFoundError:  # a later one has come, and this one was swept
                continue
        raise StorageFailed(f"{phase} lists a fence that is not there")

    def _read_fence(self, phase: str, number: int, name: str) -> Fence | None:
        """None: it is not written yet."""
        data = self._read(phase, name)
        if not data:
            return None
        try:
            content = json.loads(data)
            if int(content["attempt_number"]) != number:
                raise ValueError(f"it says attempt {content['attempt_number']}")
            return Fence(number, str(content["attempt_id"]), frozenset(map(str, content.get("counted", ()))))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StorageFailed(f"{name} of {phase} can't be read: {error!r}") from error

    def _check_own(self, own: Mapping[str, Any], phase: str, found: Fence | None) -> None:
        if found is None or found.attempt_number != own["attempt_number"]:
            raise Fenced(f"another one is beginning as attempt {own['attempt_number']} of {phase}, or a later one has")
        if found.attempt_id != own["attempt_id"]:
            raise Fenced(f"attempt {found.attempt_number} of {phase} is {found.attempt_id}, not {own['attempt_id']}")

    def _counts(self, phase: str) -> Callable[[str, int], bool]:
        fence = self._fence(phase)
        if fence is None:
            return lambda name, attempt_number: True
        return lambda name, attempt_number: attempt_number >= fence.attempt_number or name in fence.counted

    def _all(self, phase: str) -> Iterator[tuple[Checkpoint, str | None]]:
        """Those that count, newest first. Where a manifest is there but can't be read: a stand-in, and why."""
        counts = self._counts(phase)
        for name, step, number, revision in _in_order(self._names(phase)):
            if not counts(name, number):
                continue
            path = Path(phase) / name
            try:
                data, path = self._manifest(phase, name)
                found = decode(data, path)
                if found.phase != phase:
                    raise Damaged(f"the manifest in {path} belongs to phase {found.phase}")
                yield found, None
            except FileNotFoundError:
                continue  # it was removed while we looked
            except Damaged as error:
                yield Checkpoint(name, phase, step, number, "", path, 0.0, 0, {}, {}, revision), error.text


def _in_order(names: Sequence[str]) -> Sequence[tuple[str, int, int, int]]:
    found = [
        (name, int(match[1]), int(match[2]), int(match[3] or 0))
        for name in names
        if (match := DIRECTORY.fullmatch(name))
    ]
    return sorted(found, key=lambda each: each[1:], reverse=True)
