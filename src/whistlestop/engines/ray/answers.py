"""What the agents of a cluster said last. Answers overtake each other on their way: one to an earlier question, which
has not seen what was started meanwhile, is not taken for news."""

from collections.abc import Mapping

Seats = dict[str, str]


class Answers:
    def __init__(self) -> None:
        self._last: dict[str, tuple[int, Seats]] = {}

    def of(self, node_id: str) -> Seats | None:
        """None: it was never heard."""
        return self._last[node_id][1] if node_id in self._last else None

    def take(self, node_id: str, number: int, seats: Mapping[str, str]) -> bool:
        """Whether it is something new."""
        before, known = self._last.get(node_id, (0, None))
        if number < before:
            return False
        self._last[node_id] = (number, dict(seats))
        return seats != known

    def begin_anew(self, node_id: str) -> None:
        """Another agent numbers its answers from the beginning; until it is heard, what the last one said stands."""
        if node_id in self._last:
            self._last[node_id] = (0, self._last[node_id][1])

    def forget(self, node_id: str) -> None:
        self._last.pop(node_id, None)
