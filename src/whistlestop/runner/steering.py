"""steering.json: the phase's changes on the way, as the program reads them. Standard library only: it is written before
the program starts.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whistlestop.channel.layout import STEERING_FILE, Word
from whistlestop.engines.attempt_files import write

if TYPE_CHECKING:
    from whistlestop.channel.control import Control
    from whistlestop.wire.frames import Change

Entry = dict[str, Any]  # as in the file: seq, name, value, step, actor


class Steering:
    """Owns the file. What can't be written now is written later: `retry` is called on every tick."""

    def __init__(self, directory: Path, control: "Control", given: Sequence[Mapping[str, Any]]) -> None:
        self._path = directory / STEERING_FILE
        self._control = control
        self._entries: list[Entry] = [dict(each) for each in given]
        self._unwritten = self._news = bool(given)  # the file is behind; the program has to look at it
        self._complained = False
        self._refused: set[int] = set()

    def begin(self) -> None:
        """Before the program starts. OSError: it would train as if nothing had been changed, so it must not start."""
        if self._unwritten:
            self._write()

    def take(self, changes: "Sequence[Change] | None", tell: Callable[..., None]) -> None:
        """The whole list, from an order. Taking it twice is the same as once; an older one changes nothing."""
        if changes is None or max((each.seq for each in changes), default=0) < self._last():
            return
        steps = {each["seq"]: each["step"] for each in self._entries}
        news: list[Entry] = [
            {
                "seq": each.seq,
                "name": each.name,
                "value": each.value,
                # The server may not have heard yet what we have.
                "step": each.step if each.step is not None else steps.get(each.seq),
                "actor": each.actor,
            }
            for each in changes
            if each.seq not in self._refused
        ]
        if news != self._entries:
            self._entries, self._unwritten, self._news = news, True, True
            self.retry(tell)

    def applied(self, seq: int, step: int) -> None:
        """The program said so. Another process of the same attempt has to replay it there, not to apply it anew."""
        for entry in self._entries:
            if entry["seq"] == seq and entry["step"] is None:
                entry["step"] = step
                self._unwritten = True

    def refused(self, seq: int) -> None:
        """The program said so. It is not asked again, not even by another process of the same attempt."""
        kept = [entry for entry in self._entries if entry["seq"] != seq]
        if len(kept) < len(self._entries):
            self._refused.add(seq)
            self._entries, self._unwritten = kept, True

    def retry(self, tell: Callable[..., None]) -> None:
        if not self._unwritten:
            return
        try:
            self._write()
        except OSError as error:
            if not self._complained:
                self._complained = True
                tell("notice", f"A change that was asked for can't be handed to the program yet: {error.strerror}. "
                     "It is tried again until it can.")  # fmt: skip
        else:
            self._complained = False

    def _write(self) -> None:
        write(self._path, json.dumps({"changes": self._entries}).encode())
        self._unwritten = False
        if self._news:
            self._news = False
            self._control[Word.STEERING] += 1

    def _last(self) -> int:
        return max((*(int(each["seq"]) for each in self._entries), *self._refused), default=0)
