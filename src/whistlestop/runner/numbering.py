"""After a power cut a file may be shorter than what the server has of it: then what is appended goes on from there.

Kept in a file, because a salvager may die as well: `cut` is where the file ended when the first one found it, `shift`
what is added to a place in the file to get the place in the stream. It is settled once, before anything is sent.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from whistlestop.engines.attempt_files import write

FILE = "numbering.json"


class Numbering:
    def __init__(self, path: Path, cut: dict[str, int], shift: dict[str, int] | None) -> None:
        self._path = path
        self._cut = cut
        self._shift = shift

    @classmethod
    def load(cls, directory: Path, ends: Mapping[str, int]) -> "Numbering":
        """`ends`: where the files end now, before anything is appended."""
        path = directory / FILE
        try:
            known = json.loads(path.read_bytes())
            return cls(path, {name: int(end) for name, end in known["cut"].items()}, known["shift"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            made = cls(path, dict(ends), None)
            made._keep()
            return made

    def settle(self, offsets: Mapping[str, int]) -> Mapping[str, int]:
        """The shift of each stream, from what the server has."""
        if self._shift is None:
            self._shift = {name: max(0, offsets.get(name, 0) - end) for name, end in self._cut.items()}
            self._keep()
        return self._shift

    def _keep(self) -> None:
        write(self._path, json.dumps({"cut": self._cut, "shift": self._shift}).encode())
