"""A checkpoint that is still on its way when the program starts. The runner fetches it meanwhile, and takes its mark
away when all of it is there and every hash was compared; where it can't be had, the runner ends the program."""

import time
from pathlib import Path
from typing import Final

_LOOK: Final = 0.005  # seconds


def mark_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.fetching")


def wait_until_fetched(path: Path) -> None:
    """At once where nothing is on its way."""
    mark = mark_of(path)
    while mark.exists():
        time.sleep(_LOOK)
