"""Charts that many dashboards ask for at once are read once, and stand in nobody's way."""

import asyncio
import threading

import pytest

from whistlestop.domain.errors import NotFound
from whistlestop.server.services.answers import THREADS, Answers


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
        return [await answers.get("a", make, max_age=age) for age in (0.0, 0.0, 60.0)]

    assert asyncio.run(ask()) == [b"1", b"2", b"2"]


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
