"""Bytes of an output stream to lines of text: folded, cut, cleaned of secrets. Knows no files and no threads."""

import re
from collections.abc import Collection

MAX_LINE = 64 << 10
UPDATE_EVERY = 1.0  # seconds between two states of a progress bar

_SHORTEST_SECRET = 4  # shorter values would blank out ordinary words
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Failure|Warning|Exit)\b"
    r"|^(?:[A-Za-z_]\w*\.)+[A-Z]\w*: "  # of a module, whatever it is called
    r"|out of memory|Segmentation fault"
)


class Secrets:
    """Blanks out secret values, and each line of those that have several."""

    def __init__(self, values: Collection[str]) -> None:
        parts = {part.encode("utf-8", "surrogatepass") for value in values for part in (value, *value.splitlines())}
        known = sorted((part for part in parts if len(part) >= _SHORTEST_SECRET), key=len, reverse=True)
        self.longest = len(known[0]) if known else 0
        self._pattern = re.compile(b"|".join(map(re.escape, known))) if known else None

    def hide(self, data: bytes) -> bytes:
        return data if self._pattern is None else self._pattern.sub(b"***", data)

    def hide_text(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self.hide(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


def looks_like_exception(text: str) -> bool:
    return _EXCEPTION.search(text) is not None


class Lines:
    """One stream. `feed` gives back the lines that are complete; memory stays bounded whatever comes in.

    A progress bar rewrites its line with carriage returns: its last state is kept, and a state in between at most
    once a second.
    """

    def __init__(self, secrets: Secrets | None = None) -> None:
        self._secrets = secrets or Secrets(())
        # A secret that lies across the cut must be seen whole before the cut is made.
        self._keep = MAX_LINE + self._secrets.longest
        self._partial = b""
        self._cut = 0  # bytes of the present line that were let go
        self._state = b""  # the progress bar's last whole state
        self._shown = b""  # the state that was given out last
        self._shown_at = 0.0

    def feed(self, data: bytes, at: float) -> list[str]:
        lines: list[str] = []
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            whole = self._partial + head
            if self._cut or self._state or b"\r" in whole or len(whole) > self._keep:
                # The first line goes with what is pending; the others are whole.
                first, newline, rest = head.partition(b"\n")
                self._extend(first)
                lines += self._finish()
                lines += [text for line in rest.split(b"\n") for text in self._line(line)] if newline else []
            else:
                lines += self._plain(whole)
                self._partial = b""
        self._extend(tail)
        if self._state and at - self._shown_at >= UPDATE_EVERY:
            lines += self.update(at)
        return lines

    def update(self, at: float) -> list[str]:
        """The progress bar's present state, if it was not given out yet."""
        if not self.waiting:
            return []
        self._shown, self._shown_at = self._state, at
        return [self._text(self._state)]

    @property
    def waiting(self) -> bool:
        return bool(self._state) and self._state != self._shown

    def finish(self) -> list[str]:
        """The stream has ended: what is left without a newline."""
        return self._finish() if self._partial or self._cut or self._state else []

    def _plain(self, block: bytes) -> list[str]:
        text = self._secrets.hide(block).decode("utf-8", "replace")
        return [line if len(line) <= MAX_LINE else self._text(line.encode()) for line in text.split("\n")]

    def _line(self, line: bytes) -> list[str]:
        self._extend(line)
        return self._finish()

    def _extend(self, data: bytes) -> None:
        """Add to the present line. A carriage return begins it anew."""
        if b"\r" in data:
            before, _, data = data.rpartition(b"\r")
            states = [state for state in (self._partial + before).split(b"\r") if state]
            self._state = states[-1][: self._keep] if states else self._state
            self._partial, self._cut = b"", 0
        room = self._keep - len(self._partial)
        self._partial += data[:room]
        self._cut += max(0, len(data) - room)

    def _finish(self) -> list[str]:
        line = self._partial or self._state
        cut, shown, had_state = self._cut, self._shown, bool(self._state)
        self._partial, self._cut, self._state, self._shown = b"", 0, b"", b""
        if had_state and line == shown:
            return []
        return [self._text(line, cut)]

    def _text(self, line: bytes, cut: int = 0) -> str:
        line = self._secrets.hide(line)
        cut += max(0, len(line) - MAX_LINE)
        text = line[:MAX_LINE].decode("utf-8", "replace")
        return f"{text} … [{cut} bytes cut]" if cut else text
