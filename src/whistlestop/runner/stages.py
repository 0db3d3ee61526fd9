"""Where an attempt's program hands over what it saves, and what is fetched for it; gone when the attempt is."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from whistlestop.engines.attempt_files import memory_of

if TYPE_CHECKING:
    from whistlestop.wire.launch import Launch


def own_stage(launch: "Launch") -> Path:
    return Path(launch.directory) / "stage"


def shared_stage(launch: "Launch") -> Path:
    """Where the ranks of several nodes stage: all of them see it."""
    return Path(launch.checkpoints) / launch.phase / f".stage-{launch.attempt_id}"


def clear(launch: "Launch") -> None:
    """The slots, and what was fetched for the program: nobody needs them behind its end."""
    fetched = Path(launch.directory) / "fetched"
    for path in (memory_of(launch.attempt_id), own_stage(launch), fetched, shared_stage(launch)):
        shutil.rmtree(path, ignore_errors=True)
