"""Which start of a node's runner is the attempt's. A cluster may take a job twice, when what it said to the first time
was lost; both may begin at once, on different nodes. The first one that asks is the attempt's; others are refused.

Kept in memory: from when a runner was heard of, the database tells the same.
"""

import threading
from collections import OrderedDict

MOST = 100_000


class Starts:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._first: OrderedDict[tuple[str, int], str] = OrderedDict()

    def is_first(self, token: str, node: int, start: str) -> bool:
        """Also if it asks again: its answer may have been lost. `token`: the fingerprint of a launch's own."""
        with self._lock:
            first = self._first.setdefault((token, node), start)
            if len(self._first) > self._most:
                self._first.popitem(last=False)
            return first == start
