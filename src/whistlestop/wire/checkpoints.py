"""The shapes of what is asked of single checkpoints and of where they are kept."""

from typing import Any

from pydantic import Field

from whistlestop.wire.api import CheckpointView, Shape


class FileView(Shape):
    name: str
    size: int
    sha256: str


class CheckpointDetail(CheckpointView):
    """With what its manifest says."""

    files: list[FileView] = Field(default_factory=list)
    meta: dict[str, Any] = Field(default_factory=dict)


class CheckpointDone(Shape):
    checkpoint: CheckpointView
    changed: bool  # False: it was so already
    text: str


class Verified(Shape):
    """Every byte of a checkpoint, read back and compared. While it lasts: how long already."""

    checkpoint: CheckpointView
    reading: bool  # ask again: GET the same address
    intact: bool | None = None  # None: not known yet, or the storage did not answer
    files: int
    bytes: int
    seconds: float
    text: str


class StorageView(Shape):
    """Where new runs keep their checkpoints, and whether that works now."""

    where: str
    remote: bool
    options: dict[str, str] = Field(default_factory=dict)
    fit: bool
    seconds: float
    text: str
