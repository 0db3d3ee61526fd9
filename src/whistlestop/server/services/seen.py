"""How far a client of a run's stream has come: the id of every message, and what comes back as Last-Event-ID."""

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

    @property
    def tail(self) -> str:
        """What the id says of logs and metrics; the same for everyone who follows neither."""
        return f";l{format_cursor(self.logs)};m{format_cursor(self.metrics)}"

    def __str__(self) -> str:
        return f"e{self.event}{self.tail}"
