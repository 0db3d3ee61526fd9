"""The files of a journal: their names, and which of them are there. Early ones go once they have been shipped."""

import os
import re
from pathlib import Path


def segment_path(directory: Path, prefix: str, number: int) -> Path:
    return directory / f"{prefix}.{number:06d}.journal"


def segment_numbers(directory: Path, prefix: str) -> list[int]:
    pattern = re.compile(re.escape(prefix) + r"\.(\d{6,})\.journal")
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for name in names if (match := pattern.fullmatch(name)))
