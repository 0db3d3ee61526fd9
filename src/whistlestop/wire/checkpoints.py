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


class NextSave(Shape):
    """Whichever comes first. A time that has passed: it waits for the one before it to become durable."""

    step: int | None = None
    at: str | None = None  # about then
    why: str  # the cadence, and for `auto` what it follows from


class FailedSave(Shape):
    at: str
    step: int | None = None
    text: str


class SavingView(Shape):
    """Of one phase."""

    phase: str
    next: NextSave | None = None  # while it trains, where the spec says how often
    failed: FailedSave | None = None  # the last one that failed, until one succeeds


class StorageView(Shape):
    """Where new runs keep their checkpoints, and whether that works now."""

    where: str
    remote: bool
    options: dict[str, str] = Field(default_factory=dict)
    fit: bool
    seconds: float
    text: str
