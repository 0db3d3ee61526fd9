"""Charts that many dashboards ask for at once are read once, and stand in nobody's way."""

import asyncio
import threading
from typing import Any

import pytest
from fastapi import FastAPI, Response

from whistlestop.domain.errors import Busy, NotFound
from whistlestop.server.api.readings import LEFT, SEARCHES, Reads
from whistlestop.server.services import answers as module
from whistlestop.server.services.answers import MOST_WAITING, THREADS, Answers


class Maker:
    """Counts, and waits until it is let go."""

    def __init__(self) -> None:
        self.made, self.at_once, self.most = 0, 0, 0
        self.go = threading.Event()
        self._lock = threading.Lock()

    def __call__(self) -> bytes:
        with self._lock:
            self.made, self.at_once = self.made + 1, self.at_once + 1
            self.most = max(self.most, self.at_once)
        assert self.go.wait(10)
        with self._lock:
            self.at_once -= 1
        return str(self.made).encode()


def test_fifty_who_ask_for_the_same_get_one_answer() -> None:
    make = Maker()

    async def ask() -> list[bytes]:
        answers = Answers()
        asked = [asyncio.create_task(answers.get("a", make, max_age=1.0)) for _ in range(50)]
        await asyncio.sleep(0)
        make.go.set()
        found = await asyncio.gather(*asked)
        return [*found, await answers.get("a", make, max_age=60.0)]

    found = asyncio.run(ask())
    assert make.made == 1
    assert len({id(body) for body in found}) == 1


def test_who_takes_no_old_answer_gets_a_new_one() -> None:
    make = Maker()
    make.go.set()

    async def ask() -> list[bytes]:
        answers = Answers()
        return [await answers.get("a", make, max_age=age) for age in (0.0, 0.0, 60.0, 60.0, 0.0)]

    assert asyncio.run(ask()) == [b"1", b"2", b"3", b"3", b"4"]


def test_what_nobody_will_take_again_is_not_kept_and_the_rest_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 10_000)

    async def ask() -> list[int]:
        answers, kept = Answers(), []
        for number in range(20):
            await answers.get(number, lambda: b"x" * 1000, max_age=0.0)
        kept.append(answers.kept)
        for number in range(20):
            await answers.get(number, lambda: b"x" * 1000, max_age=60.0)
        kept.append(answers.kept)
        await answers.get("short", lambda: b"x" * 9999, max_age=0.01)
        kept.append(answers.kept)
        while answers.kept:  # what is too old for all who asked goes by itself
            await asyncio.sleep(0.001)
        return kept

    assert asyncio.run(ask()) == [0, 10_000, 9999]


def test_nothing_is_begun_for_who_has_left_and_too_many_are_told_at_once() -> None:
    make = Maker()

    async def ask() -> None:
        answers = Answers()
        asked = [asyncio.create_task(answers.get(number, make, max_age=1.0)) for number in range(THREADS)]
        while make.at_once < THREADS:
            await asyncio.sleep(0.001)
        waiting = [asyncio.create_task(answers.once(make)) for _ in range(MOST_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="busy"):
            await answers.once(make)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        asked.append(asyncio.create_task(answers.once(make)))
        await asyncio.sleep(0)
        make.go.set()
        await asyncio.gather(*asked)

    asyncio.run(ask())
    assert make.made == THREADS + 1


def test_different_charts_take_few_threads_and_one_who_leaves_spoils_nothing() -> None:
    make = Maker()

    async def ask() -> None:
        answers = Answers()
        asked = [asyncio.create_task(answers.get(number, make, max_age=1.0)) for number in range(10)]
        while make.at_once < THREADS:
            await asyncio.sleep(0.001)
        asked[0].cancel()
        other = asyncio.create_task(answers.get(0, make, max_age=1.0))
        await asyncio.sleep(0)
        make.go.set()
        await asyncio.gather(other, *asked[1:])

    asyncio.run(ask())
    assert (make.made, make.most) == (10, THREADS)


def test_a_refusal_is_told_and_not_kept() -> None:
    def refuse() -> bytes:
        raise NotFound("there is no run x")

    async def ask() -> bytes:
        answers = Answers()
        for _ in range(2):
            with pytest.raises(NotFound):
                await answers.get("a", refuse, max_age=60.0)
        return await answers.get("a", lambda: b"here", max_age=60.0)

    assert asyncio.run(ask()) == b"here"


async def call(app: FastAPI, path: str, gone: asyncio.Event) -> int:
    return int((await answer(app, path, gone))["status"])


async def answer(app: FastAPI, path: str, gone: asyncio.Event) -> Any:
    """What a server does with a request, and how its answer begins; `gone`: who asked closes the connection."""
    sent: list[Any] = []
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        for message in messages:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "headers": []}
    await app({**scope, "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": ""}, receive, send)
    return sent[0]


def test_who_finds_the_server_busy_is_told_when_to_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 0)
    app = FastAPI()

    @app.get("/search")
    async def search(reads: Reads) -> Response:
        return await reads.once(lambda: b"")

    async def ask() -> Any:
        return await answer(app, "/search", asyncio.Event())

    told = asyncio.run(ask())
    assert told["status"] == 503, "what clients take as: not now"
    assert dict(told["headers"])[b"retry-after"] == b"2"


def test_while_everybody_searches_others_find_a_thread_and_who_leaves_is_not_searched_for() -> None:
    make, app = Maker(), FastAPI()

    @app.get("/search")
    async def search(reads: Reads) -> Response:
        return await reads.once(make)

    @app.get("/stop")
    def stop() -> str:
        return "stopped"

    async def ask() -> tuple[int, set[int], int]:
        here, leaves = asyncio.Event(), asyncio.Event()
        begun = [asyncio.create_task(call(app, "/search", here)) for _ in range(SEARCHES)]
        while make.at_once < SEARCHES:
            await asyncio.sleep(0.001)
        waiting = [asyncio.create_task(call(app, "/search", leaves)) for _ in range(60)]
        await asyncio.sleep(0)
        stopped = await asyncio.wait_for(call(app, "/stop", here), 5)
        leaves.set()
        left = set(await asyncio.gather(*waiting))
        last = asyncio.create_task(call(app, "/search", here))
        make.go.set()
        await asyncio.gather(*begun)
        return stopped, left, await last

    assert asyncio.run(ask()) == (200, {LEFT}, 200)
    assert (make.made, make.most) == (SEARCHES + 1, SEARCHES)
