"""A slot as a program leaves it, without a program."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whistlestop.blobs import staged
from whistlestop.blobs.staged import Piece, Share, Staged


def lay(
    directory: Path,
    step: int,
    *,
    attempt: int = 1,
    phase: str = "train",
    files: Mapping[str, bytes],
    meta: Mapping[str, Any] | None = None,
    at: float = 1.0,
    id: str | None = None,
    share: Share | None = None,
) -> Staged:
    """The pieces one behind the other in the buffer, not aligned to anything, and published."""
    directory.mkdir(parents=True, exist_ok=True)
    pieces, offset = [], 7
    with (directory / staged.BUFFER).open("wb") as buffer:
        buffer.write(b"\0" * offset)
        for name, data in files.items():
            buffer.write(data)
            pieces.append(Piece(name, len(data), staged.BUFFER, offset))
            offset += len(data)
    made = Staged(
        directory, phase, step, attempt, id or f"a-{attempt}", meta or {"why": "test"}, pieces, at, 0.01, share=share
    )
    staged.publish(made)
    found = staged.read(directory)
    assert found is not None
    return found
