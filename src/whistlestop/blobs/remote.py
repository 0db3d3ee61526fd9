"""Checkpoints in an object store: s3://, gs://, az://.

    ROOT/PHASE/parts/SHA256                          the bytes of a file, of as many checkpoints as have it
    ROOT/PHASE/step-000000000500-2/manifest.json     a checkpoint: there is nothing to it before this object is there
    ROOT/PHASE/fence-000000003.json                  see storage.py
    ROOT/PHASE/trash/SECONDS-step-…-2.json           a manifest that was discarded then: its parts are kept
    ROOT/PHASE/shares/STEP-ATTEMPT-SAVE.NODE.json    what a node has brought of a save that several make: see shares.py
    ROOT/PHASE/probe-…                               gone again in a moment

Parts have the name of their hash: a put that is repeated changes nothing, a save that was cut goes on where it was, and
what has not changed is not put again. No clock is needed to sweep: the parts are listed before the manifests, and who
puts a part later is not in that list. Where several nodes write, only a part is swept that was nobody's the last time,
too: it may have been put a moment ago. Who joins shares looks once more whether all parts are there.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from whistlestop.blobs import files, parts, shares
from whistlestop.blobs.manifest import (
    DIRECTORY,
    MANIFEST,
    BadName,
    Checkpoint,
    Damaged,
    FileEntry,
    SaveFailed,
    check_names,
    check_phase,
    decode,
    directory_name,
    encode,
)
from whistlestop.blobs.objects import PATIENCE, Listed, Objects
from whistlestop.blobs.shares import Shares, is_left, nodes_of, share_name
from whistlestop.blobs.staged import Staged
from whistlestop.blobs.storage import BEGUN, CLAIM, FENCE, Committed, Probe, Removed, Storage, StorageFailed
from whistlestop.domain.ids import new_id

PROBE_PATIENCE: Final = 10.0  # a wrong address shall be known before anything was trained
_TRASH = re.compile(r"(\d+)-(step-.+)\.json")
_HASH = re.compile(rb"[0-9a-f]{64}")
_PLACE = re.compile(rf".+/({DIRECTORY.pattern})/{re.escape(MANIFEST)}")
_REVISIONS: Final = 100
_TRIES: Final = 3


class RemoteStorage(Storage):
    """The checkpoints of one run, behind a URL. Nothing is asked of it before the first call."""

    def __init__(self, url: str, options: Mapping[str, str] | None = None, *, patience: float = PATIENCE) -> None:
        self._objects = Objects(url, options or {}, patience=patience)
        self._fences: dict[str, bytes] = {}  # written once: read once
        self._looked_at: set[str] = set()  # manifests whose parts we trust
        self._trusted: dict[str, set[str]] = {}  # by phase: read back by us, or by whoever has committed them
        self._doubted: set[str] = set()  # found damaged since
        self._distrusted: set[str] = set()  # names of checkpoints
        self._brought: dict[str, dict[int, shares.Brought]] = {}  # by save and node: read once
        self._orphans: dict[str, set[str]] = {}  # by phase: parts that were nobody's when it was swept last

    def where(self, checkpoint: Checkpoint) -> str:
        return f"{self._objects.url}/{checkpoint.phase}/{checkpoint.path.name}"

    # The attempt that writes.

    def probe(self, phase: str) -> Probe:
        objects = self._objects.patient(min(PROBE_PATIENCE, self._objects.patience))
        name, data = f"{check_phase(phase)}/probe-{os.urandom(8).hex()}", os.urandom(64)
        objects.create(name, data)
        conditional = not objects.create(name, data)
        try:
            if objects.read(name) != data:
                raise StorageFailed(f"{objects.url} does not give back what was written to it")
        except FileNotFoundError as error:
            raise StorageFailed(f"{objects.url} does not show what was written to it a moment ago") from error
        if not any(each.name == name for each in objects.below(phase)[1]):
            raise StorageFailed(f"{objects.url} does not list what was written to it a moment ago")
        objects.delete([name])
        return Probe(conditional)

    def commit(self, staged: Staged, *, cancelled: Callable[[], bool] = lambda: False) -> Committed:
        began, written = time.perf_counter(), 0
        check_names(piece.name for piece in staged.pieces)
        phase = check_phase(staged.phase)
        self.check_fence(phase, staged.attempt_number)
        for _ in range(_TRIES):
            entries, sent = self._upload(staged)
            written += sent
            self._check_wanted(staged, cancelled)
            checkpoint = self._publish(staged, entries)
            # One that is over may have swept what it took for nobody's, on a request that was long on its way.
            missing = self._missing(phase, {entry.sha256 for entry in entries.values()})
            if not missing:
                return Committed(checkpoint, written, time.perf_counter() - began)
            self._objects.delete([f"{phase}/{checkpoint.path.name}/{MANIFEST}"])
            self._trusted[phase] -= missing
        raise StorageFailed(f"{len(missing)} objects of {self.where(checkpoint)} were deleted while it was saved")

    # Several nodes.

    def lay_share(self, staged: Staged, *, cancelled: Callable[[], bool] = lambda: False) -> int:
        check_names(piece.name for piece in staged.pieces)
        phase = check_phase(staged.phase)
        self.check_fence(phase, staged.attempt_number)
        entries, written = self._upload(staged)
        self._check_wanted(staged, cancelled)
        self._objects.create(_share(staged), shares.encode(shares.brought_of(staged, entries)))
        return written

    def refuse_share(self, staged: Staged, why: str) -> None:
        assert staged.share is not None
        self.check_fence(check_phase(staged.phase), staged.attempt_number)
        self._objects.create(_share(staged), shares.encode(shares.Brought(staged.share.node, refused=why)))

    def shares(self, staged: Staged) -> Shares:
        share = staged.share
        assert share is not None
        names = {_share_of(each.name): each.name for each in self._objects.below(f"{staged.phase}/shares")[1]}
        own, passed = nodes_of(staged, names)
        known = self._brought.setdefault(share.save, {})
        fresh = [(node, names[name]) for node, name in own.items() if node not in known]
        for (node, name), data in zip(
            fresh, parts.in_parallel(lambda each: self._read_share(each[1]), fresh), strict=True
        ):
            known[node] = shares.decode(data, name)
        return Shares(share.nodes, dict(known), passed)

    def _read_share(self, name: str) -> bytes:
        try:
            return self._objects.read(name)
        except FileNotFoundError as error:
            raise StorageFailed(f"{self._objects.url}/{name} is listed, and is not there") from error

    def join(self, staged: Staged, shares: Shares, *, cancelled: Callable[[], bool] = lambda: False) -> Checkpoint:
        phase, entries = check_phase(staged.phase), shares.files()
        self._check_wanted(staged, cancelled)
        checkpoint = self._publish(replace(staged, meta=shares.meta(staged)), entries)
        missing = self._missing(phase, {entry.sha256 for entry in entries.values()})
        if missing:
            self._objects.delete([f"{phase}/{checkpoint.path.name}/{MANIFEST}"])
            self.drop_shares(staged)
            raise SaveFailed(f"{len(missing)} objects of {self.where(checkpoint)} were deleted while it was saved")
        self.drop_shares(staged)
        return checkpoint

    def drop_shares(self, staged: Staged) -> None:
        assert staged.share is not None
        self._brought.pop(staged.share.save, None)
        self._objects.delete(_share(staged, node) for node in range(staged.share.nodes))

    def _upload(self, staged: Staged) -> tuple[Mapping[str, FileEntry], int]:
        """All of it is there and was read back. What it consists of, and how many bytes were sent."""
        phase, place, written = staged.phase, _parts(staged.phase), 0
        trusted, there = self._trust(phase), self._there(place)
        for _ in range(_TRIES):
            uploaded = parts.upload(self._objects, place, staged, there)
            written += sum(uploaded.put.values())
            # Those that an interrupted save has left are read, too: nobody has yet.
            everything = set(uploaded.files.values())
            fresh = {each for each in everything if each.sha256 in uploaded.put or each.sha256 not in trusted}
            bad = parts.check(self._objects, place, fresh)
            if not bad:
                self._trusted.setdefault(phase, set()).update(entry.sha256 for entry in fresh)
                self._doubted -= {entry.sha256 for entry in fresh}
                return uploaded.files, written
            gone = {error.entry.sha256 for error in bad}
            there = {name: size for name, size in {**there, **uploaded.put}.items() if name not in gone}
        raise StorageFailed(f"what was written to {self._objects.url}/{place} {bad[0].text}")

    def _there(self, place: str) -> dict[str, int]:
        """Size by hash."""
        return {each.name.rpartition("/")[2]: each.size for each in self._objects.all(place)}

    def _missing(self, phase: str, hashes: set[str]) -> set[str]:
        return hashes - {*self._there(_parts(phase))}

    def _trust(self, phase: str) -> set[str]:
        """The parts of the checkpoints that count: they were read back when they were committed."""
        trusted, counts = self._trusted.setdefault(phase, set()), self._counts(phase)
        for name in self._names(phase):
            match = DIRECTORY.fullmatch(name)
            if match and counts(name, int(match[2])) and f"{phase}/{name}" not in self._looked_at:
                try:
                    data = self._objects.read(f"{phase}/{name}/{MANIFEST}")
                    self._looked_at.add(f"{phase}/{name}")
                    if name in self._distrusted:
                        self._doubted |= _hashes(data)
                    trusted |= {entry.sha256 for entry in decode(data, Path(phase) / name).files.values()}
                except (Damaged, FileNotFoundError):
                    continue
        return trusted - self._doubted

    def distrust(self, address: str) -> None:
        self._distrusted.add(address.rstrip("/").rpartition("/")[2])

    def _publish(self, staged: Staged, files: Mapping[str, FileEntry]) -> Checkpoint:
        phase, stem = staged.phase, directory_name(staged.step, staged.attempt_number)
        used = [*self._names(phase), *(match[2] for _, match in self._trash(phase))]
        revisions = [
            int(match[3] or 0) for name in used if (match := DIRECTORY.fullmatch(name)) and _stem(name) == stem
        ]
        first = max(revisions, default=-1) + 1
        for revision in range(first, first + _REVISIONS):
            name = directory_name(staged.step, staged.attempt_number, revision)
            checkpoint = Checkpoint(
                id=new_id("c"),
                phase=phase,
                step=staged.step,
                attempt_number=staged.attempt_number,
                attempt_id=staged.attempt_id,
                path=Path(phase) / name,
                at=time.time(),
                bytes=sum(entry.size for entry in files.values()),
                files=files,
                meta=dict(staged.meta),
                revision=revision,
            )
            data = encode(checkpoint)
            self._objects.create(f"{phase}/{name}/{MANIFEST}", data)
            # Refused or not: it is ours if it holds our words. An answer may have been lost on its way.
            if self._manifest_is(phase, name, data):
                self.check_counts(phase, staged.attempt_number, name)
                self._looked_at.add(f"{phase}/{name}")
                return decode(data, checkpoint.path)
        raise StorageFailed(f"{self._objects.url}/{phase}/{stem} is taken, and so are {_REVISIONS} more like it")

    def _manifest_is(self, phase: str, name: str, data: bytes) -> bool:
        try:
            return self._objects.read(f"{phase}/{name}/{MANIFEST}") == data
        except FileNotFoundError:
            raise StorageFailed(f"{self._objects.url} does not show what was written to it a moment ago") from None

    # Those who read.

    def verify(self, checkpoint: Checkpoint) -> None:
        for error in parts.check(self._objects, _parts(checkpoint.phase), checkpoint.files.values()):
            raise self._wrong(checkpoint, error) from error

    def fetch(self, checkpoint: Checkpoint, into: Path, *, only: Callable[[str], bool] | None = None) -> Path:
        manifest = self._held(checkpoint)
        if not manifest:
            raise Removed(f"{self.where(checkpoint)} is not there any more")
        into.mkdir(parents=True, exist_ok=True)
        (into / MANIFEST).unlink(missing_ok=True)
        try:
            wanted = {name: entry for name, entry in checkpoint.files.items() if only is None or only(name)}
            parts.fetch(self._objects, _parts(checkpoint.phase), wanted, into)
        except parts.PartDamaged as error:
            raise self._wrong(checkpoint, error) from error
        files.write(into / MANIFEST, manifest)
        return into

    def open_file(self, checkpoint: Checkpoint, name: str) -> Iterator[bytes]:
        entry = checkpoint.files.get(name)
        if entry is None:
            raise BadName(f"{self.where(checkpoint)} has no file {name}")
        try:
            yield from map(bytes, parts.read(self._objects, _parts(checkpoint.phase), entry))
        except parts.PartDamaged as error:
            raise self._wrong(checkpoint, error) from error

    def _held(self, checkpoint: Checkpoint) -> bytes:
        """Its manifest, wherever that is now; empty if it is nowhere."""
        places = (name for name, match in self._trash(checkpoint.phase) if match[2] == checkpoint.path.name)
        own = f"{checkpoint.phase}/{checkpoint.path.name}/{MANIFEST}"
        return self._read_if_there(own) or next(filter(None, map(self._read_if_there, places)), b"")

    def _wrong(self, checkpoint: Checkpoint, error: parts.PartDamaged) -> Damaged | Removed:
        """From now on it is looked at again before it is counted on."""
        if not self._held(checkpoint):
            return Removed(f"{self.where(checkpoint)} was removed while it was read")
        self._doubted.add(error.entry.sha256)
        names = [name for name, entry in checkpoint.files.items() if entry.sha256 == error.entry.sha256]
        return Damaged(f"{names[0]} of {self.where(checkpoint)} {error.text}")

    # Removing.

    def discard(self, checkpoint: Checkpoint, now: float) -> None:
        manifest = f"{check_phase(checkpoint.phase)}/{_own(checkpoint)}/{MANIFEST}"
        try:
            data = self._objects.read(manifest)
        except FileNotFoundError:
            return
        self._objects.put(f"{checkpoint.phase}/trash/{int(now)}-{checkpoint.path.name}.json", data)
        self._objects.delete([manifest])

    def trashed(self, phase: str) -> Sequence[tuple[Checkpoint, float]]:
        found = []
        for name, match in self._trash(phase):
            try:
                found.append((decode(self._objects.read(name), Path(phase) / match[2]), float(match[1])))
            except (Damaged, FileNotFoundError):  # nobody can have it back; purge takes it
                continue
        return found

    def recover(self, checkpoint: Checkpoint) -> None:
        manifest = f"{check_phase(checkpoint.phase)}/{_own(checkpoint)}/{MANIFEST}"
        kept = [name for name, match in self._trash(checkpoint.phase) if match[2] == checkpoint.path.name]
        if data := self._held(checkpoint):
            self._objects.create(manifest, data)
            hashes = {entry.sha256 for entry in checkpoint.files.values()}
            if kept and not any(map(self._read_if_there, kept)) and self._missing(checkpoint.phase, hashes):
                self._objects.delete([manifest])  # `purge` was quicker, and a sweep behind it
                data = b""
        if not data:
            raise Damaged(f"{self.where(checkpoint)} was removed for good")
        self._objects.delete(kept)

    def purge(self, phase: str, before: float) -> int:
        gone = [name for name, match in self._trash(phase) if float(match[1]) < before]
        self._objects.delete(gone)
        return len(gone)

    def sweep(self, phase: str, attempt_number: int, *, nodes: int = 1) -> int:
        self.check_fence(phase, attempt_number)  # one that is over would take what its successor is just putting
        listed = self._objects.all(_parts(phase))
        counts, fence = self._counts(phase), self._fence(phase)
        manifests = self._manifests(phase)
        found = {name: self._read_if_there(name) for name in manifests}
        shut_out = {
            name for name in manifests if (match := _PLACE.fullmatch(name)) and not counts(match[1], int(match[3]))
        }
        gone = [name for name in shut_out if found[name]]  # some stores keep a directory that nothing is in any more
        objects = self._objects.below(phase)[1]
        gone += [each.name for each in objects if _is_past(each, phase, fence.attempt_number if fence else 0)]
        wanted = {each for name in found if name not in shut_out for each in _hashes(found[name])}
        left, brought = self._sort_shares(phase, attempt_number, nodes, manifests)
        gone += left
        wanted |= brought
        orphans = [each.name for each in listed if each.name.rpartition("/")[2] not in wanted]
        if nodes > 1:  # of those some may be on their way into a share
            before, self._orphans[phase] = self._orphans.get(phase, set()), {*orphans}
            orphans = [name for name in orphans if name in before]
        if self._has_moved(phase, found):
            return 0
        self.check_fence(phase, attempt_number)
        self._objects.delete(gone)
        self._objects.delete(orphans)
        self._trusted.pop(phase, None)
        self._looked_at.clear()
        return len(gone) + len(orphans)

    def _sort_shares(
        self, phase: str, attempt_number: int, nodes: int, manifests: Sequence[str]
    ) -> tuple[list[str], set[str]]:
        """Those that nobody is going to join; and the hashes of what the others need."""
        steps = [
            int(match[2]) for name in manifests if (match := _PLACE.fullmatch(name)) and int(match[3]) == attempt_number
        ]
        left, brought = list[str](), set[str]()
        for each in self._objects.below(f"{phase}/shares")[1]:
            if is_left(_share_of(each.name), attempt_number, max(steps, default=-1), nodes=nodes):
                left.append(each.name)
            else:
                brought |= _hashes(self._read_if_there(each.name))
        return left, brought

    def _manifests(self, phase: str) -> list[str]:
        places = [prefix.rpartition("/")[2] for prefix in self._objects.below(check_phase(phase))[0]]
        trash = [name for name, _ in self._trash(phase)]
        return trash + [f"{phase}/{name}/{MANIFEST}" for name in places if DIRECTORY.fullmatch(name)]

    def _has_moved(self, phase: str, found: Mapping[str, bytes]) -> bool:
        """Something was on its way to the trash or back while we looked, and we have missed it in both: what it needs
        is nobody's only seemingly. The next sweep will see it."""
        now = self._manifests(phase)
        return any(name not in found or (not found[name] and self._read_if_there(name)) for name in now)

    def remove_all(self) -> None:
        everything = [each.name for each in self._objects.all()]
        manifests = [name for name in everything if name.endswith(f"/{MANIFEST}")]
        fences = [name for name in everything if BEGUN.fullmatch(name.rpartition("/")[2])]
        self._objects.delete(manifests)
        self._objects.delete({*everything} - {*manifests} - {*fences})
        self._objects.delete(fences)  # last: until then they keep out who is still writing

    # How it is done.

    def _names(self, phase: str) -> Sequence[str]:
        prefixes, objects = self._objects.below(check_phase(phase))
        names = [name.rpartition("/")[2] for name in (*prefixes, *(each.name for each in objects))]
        return [name for name in names if DIRECTORY.fullmatch(name) or BEGUN.fullmatch(name)]

    def _trashed_names(self, phase: str) -> Sequence[str]:
        return [match[2] for _, match in self._trash(phase)]

    def _manifest(self, phase: str, name: str) -> tuple[bytes, Path]:
        return self._objects.read(f"{phase}/{name}/{MANIFEST}"), Path(phase) / name

    def _read(self, phase: str, name: str) -> bytes:
        if f"{phase}/{name}" not in self._fences:
            self._fences[f"{phase}/{name}"] = self._objects.read(f"{phase}/{name}")
        return self._fences[f"{phase}/{name}"]

    def _create(self, phase: str, name: str, data: bytes) -> bool:
        return self._objects.create(f"{check_phase(phase)}/{name}", data)

    def _trash(self, phase: str) -> list[tuple[str, re.Match[str]]]:
        """Oldest first."""
        found = self._objects.below(f"{check_phase(phase)}/trash")[1]
        matching = [(each.name, match) for each in found if (match := _TRASH.fullmatch(each.name.rpartition("/")[2]))]
        return sorted(matching, key=lambda each: float(each[1][1]))

    def _read_if_there(self, name: str) -> bytes:
        try:
            return self._objects.read(name)
        except FileNotFoundError:
            return b""


def _parts(phase: str) -> str:
    return f"{check_phase(phase)}/parts"


def _share(staged: Staged, node: int | None = None) -> str:
    return f"{staged.phase}/shares/{share_name(staged, node)}.json"


def _share_of(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".json")


def _hashes(manifest: bytes) -> set[str]:
    """All that are in it, whether or not we can read the rest."""
    return {found.decode() for found in _HASH.findall(manifest)}


def _stem(name: str) -> str:
    return name.partition(".r")[0]


def _own(checkpoint: Checkpoint) -> str:
    if not DIRECTORY.fullmatch(checkpoint.path.name):
        raise BadName(f"{checkpoint.path} is not a checkpoint")
    return checkpoint.path.name


def _is_past(each: Listed, phase: str, attempt_number: int) -> bool:
    """A probe that nobody took away, or what an attempt began with, when a later one has."""
    name = each.name.removeprefix(f"{phase}/")
    if claim := CLAIM.fullmatch(name):
        return int(claim[1]) <= attempt_number
    fence = FENCE.fullmatch(name)
    return name.startswith("probe-") or (fence is not None and int(fence[1]) < attempt_number)
