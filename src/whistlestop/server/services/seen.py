"""How far a client of a run's stream has come: the ids of messages, and what comes back as Last-Event-ID."""

import re
from dataclasses import dataclass, field

from whistlestop.domain.errors import BadRequest
from whistlestop.server.services.history import Cursor, format_cursor, parse_cursor


@dataclass
class Seen:
    """`e120;l1:530.2:14;m1:4000`: events by number, log lines and metric records by attempt."""

    event: int = 0
    logs: Cursor = field(default_factory=dict)
    metrics: Cursor = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> "Seen":
        if not text:
            return cls()
        found = re.fullmatch(r"e(\d{1,18});l([\d:.]*);m([\d:.]*)", text, re.ASCII)
        if found is None:
            raise BadRequest(f"{text[:40]!r} is not an event id of this stream")
        return cls(int(found[1]), parse_cursor(found[2]), parse_cursor(found[3]))

    def __str__(self) -> str:
        return f"e{self.event};l{format_cursor(self.logs)};m{format_cursor(self.metrics)}"


class Ids:
    """Which messages of a page carry an id. One of a run of hundreds of attempts is kilobytes long, and a line is not:
    it comes when as many bytes have passed as it has itself, and with the last message. The ids of few attempts are
    shorter than any message, so each has its own. A client that is cut off in between is told some again, and knows
    them by their numbers: only for messages that have one, or of which only the newest counts."""

    def __init__(self, seen: Seen) -> None:
        self._size, self._passed = len(str(seen)), 0

    def after(self, data: str, seen: Seen, *, last: bool) -> str | None:
        """The id of a message with that data, behind which the client has come as far as `seen`."""
        self._passed += len(data)
        if self._passed < self._size and not last:
            return None
        text = str(seen)
        self._size, self._passed = len(text), 0
        return text
