"""The `runner` stream: what the runner did and saw, in order, on disk. A full disk loses nothing of it."""

import time
from typing import Any

from whistlestop.runner.recordfile import RecordFile


class Events:
    def __init__(self, file: RecordFile) -> None:
        self.file = file
        self._early: list[tuple[float, str, str, dict[str, Any]]] | None = []

    def tell(self, kind: str, text: str, **data: Any) -> None:
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
        from whistlestop.wire.frames import RunnerEvent, pack_record

        self.file.hold(pack_record(RunnerEvent(at, kind, text, data)))
