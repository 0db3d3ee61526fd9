"""Pools whose cluster tells how large they are: nodes come and go there, and the pool with them."""

import logging
from functools import partial
from typing import cast

from whistlestop.domain.errors import EngineUnreachable
from whistlestop.engines.base import Engine, Offering
from whistlestop.server.scheduler.aside import Aside
from whistlestop.server.scheduler.engines import Engines
from whistlestop.server.services import pools
from whistlestop.server.services.context import Context
from whistlestop.server.store import pools as store

log = logging.getLogger(__name__)


class Following:
    def __init__(self, context: Context, engines: Engines, aside: Aside) -> None:
        self._context, self._engines, self._aside = context, engines, aside

    def look(self) -> None:
        """Every pool's engine is there from now on, whether anything runs on it or not."""
        with self._context.database.read() as connection:
            rows = store.all_pools(connection)
        for row in rows:
            engine = self._engines.of(row.name)
            if engine.can.offers and row.settings.get("follow"):
                self._aside.soon(f"follow {row.name}", partial(self._follow, row.name, engine))

    def _follow(self, pool: str, engine: Engine) -> None:
        try:
            slots = cast(Offering, engine).offers()
        except EngineUnreachable as error:  # what it had, it may have again at any moment
            log.info("pool %s: %s", pool, error.text)
            return
        pools.follow(self._context, pool, slots)
