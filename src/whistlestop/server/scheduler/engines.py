"""Which engine a pool's attempts are on. Made when they are first asked for, and kept."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from whistlestop.engines.base import Engine
from whistlestop.server.services.context import Context
from whistlestop.server.store import pools

Make = Callable[[str, Mapping[str, Any]], Engine]


class Engines(Protocol):
    def of(self, pool: str) -> Engine:
        """The one that a pool is on; for a pool that is gone, the one that it was on, or this machine's."""


class One:
    """The same for all."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of(self, pool: str) -> Engine:
        return self._engine


class ByPool:
    """`make` is given a name and the pool's settings; the answer is kept for pools that are alike."""

    def __init__(self, context: Context, make: Make) -> None:
        self._context, self._make = context, make
        self._made: dict[str, Engine] = {}
        self._last: dict[str, Engine] = {}

    def of(self, pool: str) -> Engine:
        with self._context.database.read() as connection:
            row = pools.get(connection, pool)
        if row is None:
            return self._last.get(pool) or self._get("local", {})
        self._last[pool] = self._get(row.engine, row.settings)
        return self._last[pool]

    def _get(self, name: str, settings: Mapping[str, Any]) -> Engine:
        key = f"{name} {json.dumps(settings, sort_keys=True)}"
        if key not in self._made:
            self._made[key] = self._make(name, settings)
        return self._made[key]
