"""Checkpoints at the client: which one is meant, fetching one, comparing two."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whistlestop.blobs.manifest import MANIFEST, BadName, check_name
from whistlestop.domain.checkpoints import latest
from whistlestop.domain.errors import NoCheckpoint, NotFound, Refused, ServerUnreachable
from whistlestop.wire.api import CheckpointView

if TYPE_CHECKING:
    from whistlestop.client.client import Client
    from whistlestop.wire.checkpoints import CheckpointDetail, FileView

TRIES = 4  # of one file: a connection may break, the server may be restarted
_CHUNK = 1 << 20


def choose(
    found: Sequence[CheckpointView], *, name: str | None = None, step: int | None = None, phase: str | None = None
) -> CheckpointView:
    """By id or step, else the newest that a run may resume from; of two attempts at one step the later."""
    known = [each for each in found if phase in (None, each.phase)]
    where = f" of phase {phase}" if phase else ""
    if name is not None:
        chosen = [each for each in found if each.id == name]
        if not chosen:
            raise NoCheckpoint(f"There is no checkpoint {name}.", hint=_steps(found))
        return chosen[0]
    if step is not None:
        known = [each for each in known if each.step == step]
        if not known:
            raise NoCheckpoint(f"There is no checkpoint{where} at step {step}.", hint=_steps(found))
        if len({each.phase for each in known}) > 1:
            names = " or ".join(f"--phase {each.phase}" for each in known)
            raise Refused(f"Several phases have a checkpoint at step {step}.", hint=f"say which: {names}")
        return known[0]
    good = [each for each in known if each.healthy and each.verified] or known
    newest = latest(good)
    if newest is None:
        raise NoCheckpoint(f"There is no such checkpoint{where}.", hint=_steps(found))
    return newest


def _steps(found: Sequence[CheckpointView]) -> str:
    if not found:
        return "it has none"
    return "there are: " + ", ".join(f"{each.phase} at step {each.step}" for each in found[:8])


@dataclass
class Fetched:
    files: int = 0
    bytes: int = 0
    skipped: int = 0  # files that were there already, and whole


def download(
    client: "Client",
    run: str,
    checkpoint: "CheckpointDetail",
    into: Path,
    *,
    progress: Callable[[int], None] = lambda count: None,
) -> Fetched:
    """Its files below `into`, every hash compared, and its manifest last: what has one is whole. Whole files that are
    there are not fetched again: after a failure the same call goes on. `progress` is told of bytes as they come."""
    done = Fetched()
    (into / MANIFEST).unlink(missing_ok=True)
    for entry in checkpoint.files:
        target = _target(into, entry.name)
        if _is(target, entry):
            done.skipped += 1
            progress(entry.size)
        else:
            _fetch(client, run, checkpoint.id, entry, target, progress)
            done.bytes += entry.size
        done.files += 1
    _fetch_manifest(client, run, checkpoint, into)
    return done


def _fetch_manifest(client: "Client", run: str, checkpoint: "CheckpointDetail", into: Path) -> None:
    try:
        data = b"".join(client.checkpoint_file(run, checkpoint.id, MANIFEST))
    except NotFound:  # an older server
        return
    part = into / f".{MANIFEST}.part"
    into.mkdir(parents=True, exist_ok=True)
    part.write_bytes(data)
    os.replace(part, into / MANIFEST)


def _target(into: Path, name: str) -> Path:
    try:
        return into / check_name(name)
    except BadName as error:
        raise Refused(f"{name!r} would lead out of {into}: this checkpoint is not fetched") from error


def _is(path: Path, entry: "FileView") -> bool:
    if not path.is_file() or path.stat().st_size != entry.size:
        return False
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest() == entry.sha256


def _fetch(
    client: "Client", run: str, checkpoint: str, entry: "FileView", target: Path, progress: Callable[[int], None]
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    for left in reversed(range(TRIES)):
        digest, size = hashlib.sha256(), 0
        try:
            with part.open("wb") as file:
                for piece in client.checkpoint_file(run, checkpoint, entry.name):
                    digest.update(piece)
                    size += len(piece)
                    file.write(piece)
                    progress(len(piece))
        except ServerUnreachable:
            progress(-size)
            if left:
                continue
            raise
        finally:
            if size != entry.size or digest.hexdigest() != entry.sha256:
                part.unlink(missing_ok=True)
        if not part.exists():
            raise Refused(
                f"{entry.name} is not what was saved: its hash differs",
                hint=f"have the server read it back: whistle checkpoints {run} verify {checkpoint}",
            )
        os.replace(part, target)
        return


@dataclass
class Part:
    """A part of the state, or a framework's own file: what differs between two checkpoints."""

    name: str
    same: int = 0  # files
    changed: int = 0
    added: int = 0
    removed: int = 0
    before: int = 0  # bytes
    after: int = 0
    differ: int = 0  # bytes of files in the second one that the first has not


@dataclass
class Difference:
    parts: list[Part] = field(default_factory=list)
    metrics: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    meta: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        return not any(part.changed or part.added or part.removed for part in self.parts)


def compare(first: "CheckpointDetail", second: "CheckpointDetail") -> Difference:
    """By the hashes of their files: nothing is fetched."""
    old = {entry.name: entry for entry in first.files}
    new = {entry.name: entry for entry in second.files}
    parts: dict[str, Part] = {}
    for name in sorted(old.keys() | new.keys()):
        part = parts.setdefault(part_of(name), Part(part_of(name)))
        before, after = old.get(name), new.get(name)
        part.before += before.size if before else 0
        part.after += after.size if after else 0
        same = before is not None and after is not None and before.sha256 == after.sha256
        part.same += same
        part.changed += before is not None and after is not None and not same
        part.added += before is None
        part.removed += after is None
        part.differ += after.size if after is not None and not same else 0
    metrics = _differing(first.metrics, second.metrics)
    meta = _differing(
        {name: value for name, value in first.meta.items() if name != "metrics"},
        {name: value for name, value in second.meta.items() if name != "metrics"},
    )
    return Difference(list(parts.values()), metrics, meta)


def part_of(name: str) -> str:
    """parts/model/000001 and parts/model.pickle are of parts/model."""
    words = name.split("/")
    depth = 4 if words[0] == "ranks" else 2
    return "/".join(words[:depth]).removesuffix(".pickle")


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = sorted(old.keys() | new.keys())
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}
