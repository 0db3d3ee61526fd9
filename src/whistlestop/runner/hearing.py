"""Listening to what the SDK tells in its event journals: staged saves, changes applied, and why it stopped."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whistlestop.channel.journal import JournalDamaged, JournalReader, Record, parse
from whistlestop.channel.layout import Kind
from whistlestop.domain.reasons import EndReason
from whistlestop.runner.cleaning import clean_text
from whistlestop.runner.climb import Climber
from whistlestop.runner.notes import note

_EVENTS = re.compile(r"(events-\w+)\.\d{6,}\.journal")
_MOST = 100  # stop reasons; a phase has one or two


class Hearing:
    """`hide` blanks out secrets in what people will read."""

    def __init__(
        self,
        directory: Path,
        *,
        announce: Callable[[str], None],
        applied: Callable[[int, int], None] = lambda seq, step: None,
        refused: Callable[[int], None] = lambda seq: None,
        hide: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._hide = hide
        self._directory = directory
        self._announce, self._applied, self._refused = announce, applied, refused
        self._readers: dict[str, tuple[JournalReader, int]] = {}
        self._deaf: set[str] = set()
        self._looks = 0
        self.stop_reasons: list[dict[str, Any]] = []
        self.dead_ranks: set[int] = set()

    def listen(self, *, last: bool = False) -> None:
        """Everything told since the last time. New journals are looked for now and then, and the last time."""
        if last or self._looks % (20 if self._readers else 5) == 0:
            self._discover()
        self._looks += 1
        for prefix, (reader, offset) in list(self._readers.items()):
            try:
                while data := reader.read(offset):
                    offset += len(data)
                    for record in parse(data):
                        if record.kind == Kind.EVENT:
                            self._hear(record)
            except JournalDamaged as error:
                note(f"{prefix}: {error.text}")
                self._deaf.add(prefix)
                del self._readers[prefix]
                continue
            self._readers[prefix] = (reader, offset)

    def account(self, reason: EndReason, climber: Climber) -> list[dict[str, Any]]:
        """The program's own; where it has none, the request that was carried out."""
        if self.stop_reasons or reason is not EndReason.STOPPED:
            return self.stop_reasons
        text = f"asked by {climber.actor}" if climber.actor else ""
        return [{"reason": climber.reason, "decisive": True, "text": text}]

    def _discover(self) -> None:
        for path in self._directory.iterdir():
            match = _EVENTS.fullmatch(path.name)
            if match is not None and match[1] not in self._readers and match[1] not in self._deaf:
                self._readers[match[1]] = (JournalReader(self._directory, match[1]), 0)

    def _hear(self, record: Record) -> None:
        try:
            event = record.event()
        except (JournalDamaged, RecursionError) as error:  # the bytes are whole: what comes behind it can be heard
            note(f"an event of the program can't be read: {error!r}")
            return
        match event:
            case {"kind": "staged", "dir": str(directory)}:
                self._announce(directory)
            case {"kind": "steered", "seq": int(seq), "step": int(step)}:
                self._applied(seq, step)
            case {"kind": "steering_refused", "seq": int(seq)}:
                self._refused(seq)
            case {"kind": "stop_reasons", "reasons": list(reasons)}:
                self.stop_reasons = [self._reason(each) for each in reasons[:_MOST] if isinstance(each, dict)]
            case {"kind": "rank_died", "rank": int(rank)} if len(self.dead_ranks) < _MOST:
                self.dead_ranks.add(rank)
            case _:
                pass

    def _reason(self, said: dict[str, Any]) -> dict[str, Any]:
        return {
            "reason": clean_text(str(said.get("reason", "")), 100),
            "decisive": said.get("decisive") is True,
            "text": clean_text(self._hide(str(said.get("text") or "")), 2000),
        }
