"""How the clusters are that pools are on: for whoever asks, and waits for it."""

import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLong
from typing import Any, cast

import sqlalchemy as sa

from whistlestop.domain.errors import EngineUnreachable
from whistlestop.engines.base import Cluster, Telling
from whistlestop.server.scheduler.engines import Engines
from whistlestop.server.services.context import Context
from whistlestop.server.store import pools as store
from whistlestop.wire.pools import ClusterView, on_words

PATIENCE = 25.0  # seconds for all of them together: a controller that is away keeps a command waiting for 20
Row = sa.Row[Any]


class Clusters:
    def __init__(self, context: Context, engines: Engines) -> None:
        self._context, self._engines = context, engines

    def look(self) -> list[ClusterView]:
        """All at once; who does not answer in time is said not to."""
        with self._context.database.read() as connection:
            rows = [row for row in store.all_pools(connection) if self._engines.of(row.name).can.tells]
        asked = [(row, self._ask(row.name)) for row in rows]
        end = time.monotonic() + PATIENCE
        return [_view(row, answer, max(0.0, end - time.monotonic())) for row, answer in asked]

    def _ask(self, pool: str) -> "Future[Cluster]":
        answer: Future[Cluster] = Future()
        engine = cast(Telling, self._engines.of(pool))

        def ask() -> None:
            try:
                answer.set_result(engine.cluster())
            except Exception as error:
                answer.set_exception(error)

        threading.Thread(target=ask, name=f"look at {pool}", daemon=True).start()
        return answer


def _view(row: Row, answer: "Future[Cluster]", seconds: float) -> ClusterView:
    view = ClusterView(pool=row.name, engine=row.engine, on=on_words(row.engine, row.settings), reachable=False)
    try:
        found = answer.result(seconds)
    except TooLong:
        return view.model_copy(update={"text": f"it has not answered for {PATIENCE:.0f} s"})
    except EngineUnreachable as error:
        return view.model_copy(update={"text": error.text})
    except Exception as error:  # one pool's trouble is not the others'
        return view.model_copy(update={"text": f"{type(error).__name__}: {error}"})
    said = {"reachable": True, "version": found.version, "nodes": found.nodes, "text": found.text}
    return view.model_copy(update=said)
