"""Who has much to catch up with: he hears the present on the way, takes nobody's thread, and gets every line once."""

import asyncio
import json
import threading
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from starlette.concurrency import run_in_threadpool

from whistlestop.server.api import logs as logs_api
from whistlestop.server.api import streams
from whistlestop.server.api.readings import Asked, Readings
from whistlestop.server.services import history, ingest
from whistlestop.server.services.feeds import PAGES, Feeds
from whistlestop.server.services.run_feed import RunFeed
from whistlestop.server.services.seen import Seen
from whistlestop.server.store import events, logs, metrics
from whistlestop.server.store.schema import attempts
from whistlestop.testing.world import World, ended
from whistlestop.wire.api import LogPage
from whistlestop.wire.frames import Data, LogLine, pack_record


def started(here: World) -> str:
    run = here.submit()
    here.settle()
    return run.id


def printed(here: World, run: str, lines: int) -> None:
    """Lines that say their own numbers."""
    attempt = here.attempt(run).id
    with here.context.database.write() as connection:
        first = logs.sizes(connection, [attempt]).get(attempt, 0) + 1
        texts = [f"line {first + number}" for number in range(lines)]
        logs.append(connection, attempt, first, [pack_record(LogLine(1.0, "out", 0, text))[4:] for text in texts])
    here.context.hub.shown(run)


def measured(here: World, run: str) -> None:
    one = np.arange(1, 4)
    with here.context.database.write() as connection:
        metrics.append(connection, here.attempt(run).id, {"loss": metrics.Points(one, one, one * 1.0, one * 0.5)})


def kinds(text: bytes) -> list[str]:
    return [line.removeprefix("event: ") for line in text.decode().splitlines() if line.startswith("event: ")]


def test_status_comes_on_the_way_and_the_last_one_after_the_last_line(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whistlestop.server.services.run_feed.LINES", 10)
    run = started(here)
    measured(here, run)
    printed(here, run, 200)
    topics = frozenset({"run", "logs", "progress", "series"})

    async def follow() -> list[str]:
        told: list[str] = []
        over = False
        async for text in streams._follow_run(here.context, Feeds(here.context), lambda: True, run, topics, Seen()):
            told += kinds(text)
            if told.count("log") >= 50 and not over:
                over = True
                ingest.store(here.context, here.attempt(run), [Data("runner", 0, ended())])
                here.settle()
        return told

    told = asyncio.run(follow())
    assert {"run", "progress", "series"} <= set(told[:30]), "while there are lines to catch up with"
    assert told.count("log") == 200
    assert told[-2:] == ["run", "end"], "the last status comes after the last words"


def test_however_many_are_behind_a_stop_finds_a_thread(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = started(here)
    go, lock = threading.Event(), threading.Lock()
    at_once: list[int] = [0, 0]  # now, at most

    def slow(connection: sa.Connection, run_id: str, **given: Any) -> LogPage:
        with lock:
            at_once[0] += 1
            at_once[1] = max(at_once)
        assert go.wait(10)
        with lock:
            at_once[0] -= 1
        return LogPage(lines=[], cursor="")

    monkeypatch.setattr(history, "log_page", slow)

    async def follow() -> None:
        async with Feeds(here.context).join(run, RunFeed, ("logs",)) as feed:
            behind = [asyncio.create_task(feed.fresh_logs(Seen(logs={1: line}))) for line in range(60)]
            while at_once[0] < PAGES:
                await asyncio.sleep(0.001)
            assert await asyncio.wait_for(run_in_threadpool(lambda: "stopped"), 5) == "stopped"
            assert await feed.beyond(0, 5), "nor does the one who looks for all wait behind them"
            go.set()
            await asyncio.gather(*behind)

    asyncio.run(follow())
    assert at_once[1] == PAGES


@pytest.mark.parametrize("revoked", [False, True])
def test_a_whole_log_ends_where_it_ended_when_it_was_asked_for_or_with_the_token(
    here: World, monkeypatch: pytest.MonkeyPatch, revoked: bool
) -> None:
    monkeypatch.setattr(history, "MOST_PRINTED", 30)
    run = started(here)
    printed(here, run, 100)
    good = [True]

    async def download() -> list[str]:
        reads = Asked(None, Readings())  # type: ignore[arg-type]  # who asks for a file is not asked whether he has left
        answer = await logs_api.raw_log(run, here.context, reads, lambda: good[0])
        pieces = []
        async for piece in answer.body_iterator:
            pieces.append(str(piece))
            printed(here, run, 50)  # faster than it is read
            good[0] = not revoked
        return "".join(pieces).splitlines()

    found = asyncio.run(download())
    if revoked:
        assert found[:-1] == [f"line {number}" for number in range(1, 31)]
        assert "cut off" in found[-1]
    else:
        assert found == [f"line {number}" for number in range(1, 101)]


def messages(text: bytes) -> list[tuple[str | None, dict[str, Any]]]:
    """Id, if it has one, and data."""
    found = []
    for block in text.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        found.append((fields.get("id"), json.loads(fields["data"])))
    return found


def many_attempts(here: World, run: str) -> None:
    """A line of each of eighty that ended, and some more of the one that runs."""
    attempt = here.attempt(run)
    others = [
        {**attempt._mapping, "id": f"a-{number}", "number": number, "token_hash": f"t-{number}", "state": "failed"}
        for number in range(2, 82)
    ]
    with here.context.database.write() as connection:
        connection.execute(attempts.insert(), others)
        for other in others:
            logs.append(connection, other["id"], 1, [pack_record(LogLine(1.0, "out", 0, "once"))[4:]])
            events.add(connection, run, "notice", "a start", at=1.0, attempt=other["number"])
        body = [pack_record(LogLine(1.0, "out", 0, f"line {line}"))[4:] for line in range(200)]
        logs.append(connection, attempt.id, 1, body)


@pytest.mark.parametrize(("topic", "number"), [("logs", ("attempt", "line")), ("events", ("seq",))])
def test_the_long_ids_of_many_attempts_are_half_of_a_history_and_a_cut_anywhere_loses_nothing(
    here: World, topic: str, number: tuple[str, ...]
) -> None:
    run = started(here)
    many_attempts(here, run)

    async def read(feed: RunFeed, seen: Seen) -> tuple[list[tuple[str | None, dict[str, Any]]], Seen]:
        text, more = b"", True
        while more:
            page = await (feed.fresh_logs(seen) if topic == "logs" else feed.fresh_events(seen))
            text, seen, more = text + page.text, page.seen, page.more
        return messages(text), seen

    async def follow() -> None:
        async with Feeds(here.context).join(run, RunFeed, (topic,)) as feed:
            assert await feed.beyond(0, 5)
            begin = Seen(0, dict.fromkeys(range(1, 82), 1) if topic == "events" else {})
            whole, end = await read(feed, begin)
            ids = [seen for seen, _ in whole if seen is not None]
            data = [said for _, said in whole]
            assert ids[-1] == str(end), "the last message says where it ended"
            assert sum(map(len, ids)) < 1.2 * sum(len(json.dumps(said)) for said in data) + len(ids[-1])
            for cut in range(0, len(whole), 53):
                heard = [seen for seen, _ in whole[:cut] if seen is not None]
                again, _ = await read(feed, Seen.parse(heard[-1]) if heard else begin)
                known = {tuple(said[name] for name in number) for said in data[:cut]}
                fresh = [said for _, said in again if tuple(said[name] for name in number) not in known]
                assert data[:cut] + fresh == data

    asyncio.run(follow())


def test_of_a_run_of_few_attempts_every_message_says_how_far_one_has_come(here: World) -> None:
    run = started(here)
    printed(here, run, 20)
    topics = frozenset({"run", "progress", "events", "logs"})

    async def follow() -> list[tuple[str | None, dict[str, Any]]]:
        async with Feeds(here.context).join(run, RunFeed, topics) as feed:
            assert await feed.beyond(0, 5)
            text, seen, _ = await streams._histories(feed, topics, Seen())
            return messages(text + feed.fresh_states(topics, seen, 0))

    assert all(seen for seen, _ in asyncio.run(follow()))
