"""A checkpoint into the tracked parts. What can't be loaded is an error: training must not begin again from step 0."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whistlestop.blobs.manifest import Checkpoint
from whistlestop.sdk.parts import Part, RestoreFailed
from whistlestop.sdk.stored import FILES, PARTS, part_names, read_part, tree_names


@dataclass(frozen=True)
class Restored:
    """What the program goes on from. `state` holds the parts that are not tracked, by name."""

    step: int
    path: Path
    state: Mapping[str, Any]
    meta: Mapping[str, Any] = field(default_factory=dict)


class Restoring:
    """Of one checkpoint, in one rank of `size`."""

    def __init__(
        self, start: Checkpoint, parts: Mapping[str, Part], *, rank: int, size: int, warn: Callable[[str], None]
    ) -> None:
        self._start = start
        self._parts = parts
        self._rank = rank
        self._size = size
        self._warn = warn
        self._world = start.meta.get("world", 1)

    def restore(self) -> Restored:
        """Load every tracked part. RestoreFailed names the one that did not."""
        start, parts = self._start, self._parts
        shared, own = self._stored(""), self._stored(f"ranks/{self._rank}/")
        missing = []
        for name, part in parts.items():
            if part.per_rank and self._world != self._size:
                self._mismatch(name, part)
            elif name not in (own if part.per_rank and self._size > 1 else shared):
                missing.append(name)
        self._check_missing(missing, shared | own)
        for name, part in parts.items():
            if name in missing or (part.per_rank and self._world != self._size):
                continue
            self._load(name, part)
        rest = {name: self._read(start.path, name) for name in sorted(part_names(start.files) - set(parts))}
        if parts and rest:
            self._warn(
                f"the checkpoint of step {start.step} also holds {', '.join(rest)}, which is not tracked: it is not "
                "loaded, unless you load it from run.restore().state"
            )
        return Restored(start.step, start.path, rest, start.meta)

    def _stored(self, prefix: str) -> set[str]:
        return part_names(self._start.files, prefix) | tree_names(self._start.files, prefix)

    def _mismatch(self, name: str, part: Part) -> None:
        step, world = self._start.step, self._world
        if not part.spare:
            raise RestoreFailed(
                f"this checkpoint of step {step} has shards of {world} ranks ({name}), and here there are {self._size}",
                hint=f"go on with {world} ranks: nobody else knows how to divide them anew. A program that does can "
                f"leave {name} untracked and read all shards: whistlestop.load(run.restore().path).rank(0), …",
            )
        words = f"{name} was saved by each of {world} ranks at step {step}, and here there are {self._size}"
        becomes = "it starts afresh"
        if part.derive is not None:
            becomes = "each rank's is derived from it anew"
            part.derive(self._seed(name))
        if self._rank == 0:
            self._warn(f"{words}: {becomes}, so what comes is not what an uninterrupted run would give")

    def _seed(self, name: str) -> int:
        """By what rank 0 had saved: the same start gives the same, each rank another."""
        heads = (f"ranks/0/{PARTS}/{name}", f"{PARTS}/{name}")
        saved = sorted(entry.sha256 for file, entry in self._start.files.items() if file.startswith(heads))
        text = f"{self._rank} of {self._size} at {self._start.step}: {' '.join(saved)}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def _check_missing(self, missing: list[str], stored: set[str]) -> None:
        start = self._start
        for name in [name for name in missing if self._parts[name].spare]:
            self._warn(f"the checkpoint of step {start.step} does not hold {name}: it starts afresh")
        needed = sorted(name for name in missing if not self._parts[name].spare)
        if needed:
            raise RestoreFailed(
                f"{', '.join(needed)} is tracked, but the checkpoint of step {start.step} in {start.path} has "
                f"no such part; it has: {', '.join(sorted(stored)) or 'none'}"
            )

    def _load(self, name: str, part: Part) -> None:
        start = self._start
        place = start.path / f"ranks/{self._rank}" if part.per_rank and self._size > 1 else start.path
        given: Any = place / FILES / name if part.files else self._read(place, name, own=not part.copies)
        try:
            part.load(given)
        except Exception as error:
            raise RestoreFailed(
                f"{name} could not be restored from step {start.step} in {start.path}: {error!r}"
            ) from error

    def _read(self, place: Path, name: str, *, own: bool = False) -> Any:
        start = self._start
        try:
            return read_part(place, name, own=own)
        except Exception as error:
            raise RestoreFailed(
                f"{name} could not be read from step {start.step} in {start.path}: {error!r}"
            ) from error
