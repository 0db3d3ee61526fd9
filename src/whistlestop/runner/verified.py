"""What was hashed before need not be hashed at every start: `.verified.json` beside the checkpoints of a phase.

An entry holds the hash of the manifest and what each file looked like when it was read. It saves the keeper time;
what is restored is always read again.
"""

import hashlib
import json
import os
from pathlib import Path

from whistlestop.blobs.checkpoints import Checkpoint
from whistlestop.engines.attempt_files import write

FILE = ".verified.json"


class Verified:
    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._known: dict[str, str] | None = None

    def holds(self, checkpoint: Checkpoint) -> bool:
        try:
            return self._load().get(checkpoint.path.name) == _looks(checkpoint)
        except OSError:
            return False

    def remember(self, checkpoint: Checkpoint) -> None:
        """Whoever can't be remembered is read again next time."""
        try:
            known = {name: looks for name, looks in self._load().items() if (self._path.parent / name).exists()}
            self._known = known | {checkpoint.path.name: _looks(checkpoint)}
            write(self._path, json.dumps(self._known).encode())
        except OSError:
            pass

    def _load(self) -> dict[str, str]:
        if self._known is None:
            try:
                self._known = {str(name): str(looks) for name, looks in json.loads(self._path.read_bytes()).items()}
            except (OSError, ValueError, AttributeError, RecursionError):
                self._known = {}
        return self._known


def _looks(checkpoint: Checkpoint) -> str:
    digest = hashlib.sha256()
    for name in (*sorted(checkpoint.files), "manifest.json"):
        found = os.lstat(checkpoint.path / name)
        digest.update(f"{name}\0{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}\0".encode())
    digest.update((checkpoint.path / "manifest.json").read_bytes())
    return digest.hexdigest()
