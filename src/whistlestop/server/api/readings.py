"""Readings that may take long, for as long as somebody waits: in threads of their own, so that a stop or a kill always
finds one. Charts have two, searches and the rest a few others."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import anyio
from anyio import to_thread
from fastapi import Depends, Request
from fastapi.responses import Response

from whistlestop.domain.errors import Busy
from whistlestop.server.api.problems import problem_response
from whistlestop.server.services.answers import Answers

SEARCHES = 4  # logs, events, points and checks at once
FILES = 2  # pieces of them at once
STORED = 6  # things asked of the storage of checkpoints at once
WAITED = 32  # who wait for something that threads of its own do
LEFT = 499  # nobody sees it but the log
AGAIN = 2  # seconds after which one who found the server busy may ask again

T = TypeVar("T")


class Readings:
    """An application's own, made with its first reading: they belong to the event loop that serves it."""

    def __init__(self) -> None:
        self.charts = Answers()
        self.others = Answers(SEARCHES)
        self.files = anyio.CapacityLimiter(FILES)
        self.stored = anyio.CapacityLimiter(STORED)
        self.waited = anyio.CapacityLimiter(WAITED)


class Asked:
    """One request for a reading."""

    def __init__(self, request: Request, readings: Readings) -> None:
        self._request, self._readings = request, readings

    async def chart(self, key: tuple[object, ...], make: Callable[[], bytes], *, max_age: float) -> Response:
        return await self._response(self._readings.charts.get(key, make, max_age=max_age))

    async def once(self, make: Callable[[], bytes]) -> Response:
        """`make` encodes, too: a large answer would hold up the loop."""
        return await self._response(self._readings.others.once(make))

    async def piece(self, make: Callable[[], T]) -> T:
        """Of a file. Who has begun one waits for his turn: he could not be told to come back."""
        return await to_thread.run_sync(make, limiter=self._readings.files)

    async def stored(self, make: Callable[[], T]) -> T:
        """From the storage of checkpoints, which may be far away."""
        return await to_thread.run_sync(make, limiter=self._readings.stored)

    async def waited(self, make: Callable[[], T]) -> T:
        """Which does nothing but wait, for a while."""
        return await to_thread.run_sync(make, limiter=self._readings.waited)

    async def _response(self, answer: Awaitable[bytes]) -> Response:
        told = asyncio.ensure_future(answer)
        left = asyncio.ensure_future(self._left())
        try:
            await asyncio.wait({told, left}, return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                return Response(told.result(), media_type="application/json")
            return Response(status_code=LEFT)
        except Busy as busy:
            response = problem_response(busy)
            response.headers["Retry-After"] = str(AGAIN)
            return response
        finally:
            left.cancel()
            told.cancel()

    async def _left(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass


async def asked(request: Request) -> Asked:
    state = request.app.state
    if not hasattr(state, "readings"):
        state.readings = Readings()
    return Asked(request, state.readings)


Reads = Annotated[Asked, Depends(asked)]
