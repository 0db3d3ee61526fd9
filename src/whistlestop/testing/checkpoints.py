"""A checkpoint with the files that a test gives, in any storage."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whistlestop.blobs.manifest import Checkpoint
from whistlestop.blobs.staged import BUFFER, Piece, Staged
from whistlestop.blobs.storage import Storage


def write_checkpoint(
    storage: Storage,
    phase: str,
    step: int,
    attempt_number: int,
    attempt_id: str,
    files: Mapping[str, bytes],
    meta: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Committed as a runner does it."""
    storage.open_attempt(phase, attempt_number, attempt_id)
    with tempfile.TemporaryDirectory() as name:
        slot, offset, pieces = Path(name), 0, []
        with (slot / BUFFER).open("wb") as buffer:
            for file, data in files.items():
                buffer.write(data)
                pieces.append(Piece(file, len(data), BUFFER, offset))
                offset += len(data)
        staged = Staged(slot, phase, step, attempt_number, attempt_id, dict(meta or {}), pieces, time.time())
        return storage.commit(staged).checkpoint
