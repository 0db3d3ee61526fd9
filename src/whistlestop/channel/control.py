"""The control block: one page that the runner and the program both map. Reading a flag is reading memory."""

import mmap
from pathlib import Path

from whistlestop.channel import mapping
from whistlestop.channel.layout import MAGIC, SIZE, Word
from whistlestop.domain.errors import WhistleError


class ControlUnusable(WhistleError):
    """This file is not a control block."""

    code = "control_unusable"


class Control:
    """`control[Word.STEP] = 5` is one aligned 8-byte store: the other side sees the old value or the new one.

    `words` and `doubles` are the same memory as signed integers and as doubles, for loops that can't afford a call.
    """

    def __init__(self, mapped: mmap.mmap, start: int = 0) -> None:
        """`start`: where the block begins, in a file that holds several."""
        self._mapped = mapped
        self._bytes = memoryview(mapped)[start : start + SIZE]
        self.words: memoryview[int] = self._bytes.cast("q")
        self.doubles: memoryview[float] = self._bytes.cast("d")

    @classmethod
    def create(cls, path: Path) -> "Control":
        """Make the file; it must not exist. The magic goes in last, so that nobody opens half of it."""
        control = cls(mapping.create(path, SIZE))
        control.words[Word.MAGIC] = MAGIC
        return control

    @classmethod
    def open(cls, path: Path) -> "Control":
        try:
            mapped = mapping.open_existing(path, writable=True)
        except ValueError as error:  # an empty file can't be mapped
            raise ControlUnusable(f"{path} is empty, not a control block") from error
        if len(mapped) != SIZE:
            size = len(mapped)
            mapped.close()
            raise ControlUnusable(f"{path} has {size} bytes, a control block has {SIZE}")
        control = cls(mapped)
        if control.words[Word.MAGIC] != MAGIC:
            control.close()
            raise ControlUnusable(f"{path} is not a control block of this version of Whistlestop")
        return control

    def __getitem__(self, word: int) -> int:
        return self.words[word]

    def __setitem__(self, word: int, value: int) -> None:
        self.words[word] = value

    def seconds(self, word: int) -> float:
        return self.doubles[word]

    def set_seconds(self, word: int, value: float) -> None:
        self.doubles[word] = value

    def close(self) -> None:
        """Unmap. Closing twice is allowed; using it afterwards is a ValueError."""
        self.words.release()
        self.doubles.release()
        self._bytes.release()
        self._mapped.close()
