"""The `runner` stream: what the runner did and saw, in order, on disk. A full disk loses nothing of it."""

import time
from typing import Any

from whistlestop.runner.notes import note
from whistlestop.runner.recordfile import RecordFile


class Events:
    def __init__(self, file: RecordFile) -> None:
        self.file = file
        self._early: list[tuple[float, str, str, dict[str, Any]]] | None = []

    def tell(self, kind: str, text: str, /, **data: Any) -> None:
        """One event; `kind` and its data as frames.RUNNER_KINDS says."""
        if self._early is not None:  # before the program runs, importing the encoder would keep it waiting
            self._early.append((time.time(), kind, text, data))
        else:
            self._append(time.time(), kind, text, data)

    def begin_writing(self) -> None:
        early, self._early = self._early or [], None
        for each in early:
            self._append(*each)

    def _append(self, at: float, kind: str, text: str, data: dict[str, Any]) -> None:
        from whistlestop.runner.cleaning import clean_fields, clean_text
        from whistlestop.wire.frames import RunnerEvent, pack_record

        try:
            record = pack_record(RunnerEvent(at, kind, clean_text(text), clean_fields(data)))
        except Exception as error:  # an end that can't be told would hold its slots for ever
            note(f"event {kind}: {error!r}")
            plain: dict[str, Any] = {
                name: value for name, value in data.items() if value is None or isinstance(value, (bool, float))
            }
            plain |= {name: ascii(value)[1:-1] for name, value in data.items() if type(value) is str}
            plain |= {name: value for name, value in data.items() if type(value) is int and abs(value) < 1 << 63}
            record = pack_record(RunnerEvent(at, kind, ascii(text)[1:-1], plain))
        self.file.hold(record)
