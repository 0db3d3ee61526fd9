"""The manifest: what a checkpoint consists of, and the only proof that it is complete."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from whistlestop.channel.plain import plain_value
from whistlestop.domain.errors import WhistleError

MANIFEST: Final = "manifest.json"
VERSION: Final = 1
DIRECTORY = re.compile(r"step-(\d{12,})-(\d{1,9})(?:\.r(\d{1,6}))?")
STAGE = re.compile(r"\.step-(\d{12,})-(\d{1,9})\.([A-Za-z0-9-]*)\.(\d+)\.[0-9a-z]+")
TRASH = re.compile(r"\.trash-(\d+)-(step-\d{12,}-\d{1,9}(?:\.r\d{1,6})?)")
_LONGEST = 255  # bytes between two slashes
_PHASE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


class Damaged(WhistleError):
    """The checkpoint is not what its manifest says."""

    code = "checkpoint_damaged"


class SaveFailed(WhistleError):
    """The checkpoint could not be saved; the ones before it are untouched."""

    code = "save_failed"


class BadName(WhistleError):
    """A name that would lead out of the checkpoint's directory."""

    code = "bad_name"


@dataclass(frozen=True)
class FileEntry:
    size: int
    sha256: str


@dataclass(frozen=True)
class Checkpoint:
    id: str
    phase: str
    step: int  # steps done when it was saved: training goes on with this one
    attempt_number: int
    attempt_id: str
    path: Path
    at: float  # when it was committed
    bytes: int
    files: Mapping[str, FileEntry]
    meta: Mapping[str, Any]
    revision: int = 0  # the same attempt saved the same step again: the highest one counts

    @property
    def healthy(self) -> bool:
        """False: a value was not finite before it was saved. It is kept to be looked at, not to go on from."""
        return self.meta.get("healthy") is not False


def directory_name(step: int, attempt_number: int, revision: int = 0) -> str:
    name = f"step-{step:012d}-{attempt_number}"
    return f"{name}.r{revision}" if revision else name


def is_phase(name: str) -> bool:
    return _PHASE.fullmatch(name) is not None


def check_phase(phase: str) -> str:
    if not is_phase(phase):
        raise BadName(f"{phase!r} can't be the name of a phase's checkpoint directory")
    return phase


def check_name(name: str) -> str:
    """A relative path below the checkpoint's directory, in its one canonical spelling."""
    path = PurePosixPath(name)
    plain = not path.is_absolute() and ".." not in path.parts and str(path) == name and name != "."
    if not plain or "\0" in name or "\\" in name or path.parts[0].startswith(MANIFEST):
        raise BadName(f"{name!r} can't be the name of a file in a checkpoint")
    return name


def check_names(names: Iterable[str]) -> None:
    """SaveFailed if they can't all be files below one directory."""
    import os

    known = set(names)
    for name in known:
        path = PurePosixPath(name)
        if around := next((str(each) for each in path.parents if str(each) in known), None):
            raise SaveFailed(f"{around} can't be a file and the directory of {name} at once")
        if any(len(os.fsencode(part)) > _LONGEST for part in path.parts):
            raise SaveFailed(f"{name!r} is too long for the name of a file")


def encode(checkpoint: Checkpoint) -> bytes:
    import json

    content = {
        "version": VERSION,
        "id": checkpoint.id,
        "phase": checkpoint.phase,
        "step": checkpoint.step,
        "attempt_number": checkpoint.attempt_number,
        "attempt_id": checkpoint.attempt_id,
        "revision": checkpoint.revision,
        "at": checkpoint.at,
        # File names stay as they are, even if they are no UTF-8: verifying has to find these very files.
        "files": {name: [entry.size, entry.sha256] for name, entry in checkpoint.files.items()},
        "meta": plain_value(checkpoint.meta),
    }
    try:
        return json.dumps({"content": content, "sha256": _digest(content)}, indent=1).encode()
    except (TypeError, ValueError) as error:
        raise SaveFailed(f"the checkpoint's meta is not JSON: {error}") from error


def decode(data: bytes, path: Path) -> Checkpoint:
    """Damaged unless every field is there, is of its type, and fits the directory it was found in."""
    import json

    try:
        whole = json.loads(data)
        content = whole["content"]
        if whole["sha256"] != _digest(content):
            raise Damaged(f"{path / MANIFEST} has changed since it was written")
        if content["version"] != VERSION:
            raise Damaged(f"{path / MANIFEST} is of version {content['version']!r}; this one reads {VERSION}")
        files = {
            check_name(name): FileEntry(int(size), str(digest)) for name, (size, digest) in content["files"].items()
        }
        checkpoint = Checkpoint(
            id=str(content["id"]),
            phase=check_phase(content["phase"]),
            step=int(content["step"]),
            attempt_number=int(content["attempt_number"]),
            attempt_id=str(content["attempt_id"]),
            path=path,
            at=float(content["at"]),
            bytes=sum(entry.size for entry in files.values()),
            files=files,
            meta=dict(content["meta"]),
            revision=int(content.get("revision", 0)),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, BadName) as error:
        raise Damaged(f"{path / MANIFEST} can't be read: {error!r}") from error
    if path.name != directory_name(checkpoint.step, checkpoint.attempt_number, checkpoint.revision):
        raise Damaged(f"{path / MANIFEST} belongs to step {checkpoint.step}, not to this directory")
    return checkpoint


def _digest(content: object) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
