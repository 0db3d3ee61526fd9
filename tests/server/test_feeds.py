"""Any number of dashboards on one run: one reader, the same messages, and nobody waits for the slowest."""

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import numpy as np
import pytest
import sqlalchemy as sa

from whistlestop.client import Client
from whistlestop.server.api import pages
from whistlestop.server.services import feeds as feeds_module
from whistlestop.server.services import history, verbs
from whistlestop.server.services.feeds import Feeds
from whistlestop.server.services.rows_feed import TOPIC, RowsFeed
from whistlestop.server.services.run_feed import ANSWERS, RunFeed
from whistlestop.server.services.seen import Seen
from whistlestop.server.store import events, logs, metrics, runs
from whistlestop.server.store.schema import attempts
from whistlestop.testing.checkpoints import Attempt
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.world import ME, World, world
from whistlestop.wire.api import KillBody
from whistlestop.wire.frames import LogLine, pack_record

PAGE = "run,events,progress,series"  # what a run page follows


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


@pytest.fixture(params=["sqlite", "postgres"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with world(tmp_path, url) as made:
        yield made


def read(
    server: ServerProcess, path: str, begun: Callable[[], None] = lambda: None, **query: str
) -> list[tuple[str, str, Any]]:
    """(kind, id, data) until the stream ends; `begun` is called with the first of them."""
    found, fields = [], {}
    headers = {"Authorization": f"Bearer {server.token}"}
    address = f"{server.url}/api/v1{path}"
    with httpx2.stream("GET", address, params=query, headers=headers, timeout=60) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            fields[name] = value
            if not line and "event" in fields:
                found.append((fields["event"], fields["id"], json.loads(fields["data"])))
                fields = {}
                if len(found) == 1:
                    begun()
    return found


def train(server: ServerProcess, programs: Path, steps: int, **env: str) -> str:
    phase = {"name": "train", "command": [sys.executable, "train.py"], "env": {"STEPS": str(steps), **env}}
    return server.submit(phase, directory=programs).id


def further(client: Client, run: str, least: int) -> bool:
    found = client.run(run)
    return found.progress.step >= least or found.status == "completed"


def test_twenty_dashboards_that_come_at_any_moment_are_told_the_same(
    server: ServerProcess, client: Client, programs: Path
) -> None:
    run = train(server, programs, 120)
    told: list[list[tuple[str, str, Any]]] = []
    threads = []
    for number in range(20):
        thread = threading.Thread(target=lambda: told.append(read(server, f"/runs/{run}/stream", topics=PAGE)))
        thread.start()
        threads.append(thread)
        if number % 5 == 4:
            wanted = number * 5
            until(lambda least=wanted: further(client, run, least), what="the training to go on")  # type: ignore[misc]
    for thread in threads:
        thread.join(60)
    expected = [event.seq for event in client.events(run)]
    assert len(told) == 20
    for messages in told:
        assert messages[-1][0] == "end"
        assert [data["seq"] for kind, _, data in messages if kind == "event"] == expected
        assert [data["status"] for kind, _, data in messages if kind == "run"][-1] == "completed"
        series = [item for kind, _, data in messages if kind == "series" for item in data["series"]]
        assert max(item["step"] for item in series if item["name"] == "loss") == 119


def test_every_dashboard_hears_the_last_words_of_a_run_and_its_end(server: ServerProcess, tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
        "for line in range(3000): print('last words', line)\n"
    )
    go = tmp_path / "go"
    run = server.submit({"name": "t", "kind": "task", "command": [sys.executable, "-c", code, str(go)]}).id
    told: list[list[tuple[str, str, Any]]] = []
    come = threading.Semaphore(0)

    def follow() -> None:
        told.append(read(server, f"/runs/{run}/stream", come.release, topics="run,events,logs"))

    threads = [threading.Thread(target=follow) for _ in range(24)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert come.acquire(timeout=30)
    go.touch()
    for thread in threads:
        thread.join(60)
    expected = server.logs(run)
    assert "last words 2999" in expected
    assert [messages[-1][0] for messages in told] == ["end"] * 24
    for messages in told:
        assert [data["text"] for kind, _, data in messages if kind == "log"] == expected
        assert [data["status"] for kind, _, data in messages if kind == "run"][-1] == "completed"


def test_a_dashboard_that_does_not_read_holds_nobody_up(server: ServerProcess, client: Client, programs: Path) -> None:
    run = train(server, programs, 200, PACE="0.005")
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port)) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        request = f"GET /api/v1/runs/{run}/stream HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer "
        lazy.sendall(f"{request}{server.token}\r\n\r\n".encode())
        messages = read(server, f"/runs/{run}/stream", topics=PAGE)
    assert messages[-1][0] == "end"
    assert [data["seq"] for kind, _, data in messages if kind == "event"] == [e.seq for e in client.events(run)]


def test_a_browser_says_by_query_how_far_it_has_come(server: ServerProcess, programs: Path) -> None:
    run = train(server, programs, 30)
    server.wait(run, "completed")
    whole = read(server, f"/runs/{run}/stream", topics="events,logs")
    rest = read(server, f"/runs/{run}/stream", topics="events,logs", last_event_id=whole[6][1])
    assert rest[:-1] == whole[7:-1]


def test_a_tail_begins_at_the_end_and_knows_how_much_was_before(
    server: ServerProcess, client: Client, programs: Path
) -> None:
    run = train(server, programs, 100, PACE="0.02")
    until(lambda: len(client.logs(run).lines) > 10, what="some lines")
    tailed = [
        data for kind, _, data in read(server, f"/runs/{run}/stream", topics="logs", logs_from="end") if kind == "log"
    ]
    assert tailed[0]["line"] > 10
    whole = client.logs(run).lines
    assert [line["text"] for line in tailed] == [line.text for line in whole[tailed[0]["line"] - 1 :]]
    headers = {"Authorization": f"Bearer {server.token}"}
    sizes = httpx2.get(f"{server.url}/api/v1/runs/{run}/logs/size", headers=headers).json()
    assert sizes == [{"attempt": 1, "phase": "train", "lines": len(whole), "dropped": 0}]


class Counting:
    """How often the store was asked."""

    def __init__(self, feed: RunFeed) -> None:
        self.looks, self.done, self._look = 0, 0, feed.look
        feed.look = self  # type: ignore[method-assign,assignment]

    def __call__(self) -> Any:
        self.looks += 1
        try:
            return self._look()
        finally:
            self.done += 1


def test_fifty_clients_cost_one_look_a_change_and_share_its_bytes(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_module, "PACE", 0.0)
    run = here.submit()
    topics = frozenset({"run", "events", "progress"})

    async def client(feed: RunFeed, texts: list[bytes]) -> None:
        seen, looked = Seen(), 0
        while len(texts) < 3:
            assert await feed.beyond(looked, 10)
            since, looked = looked, feed.version
            page = await feed.fresh_events(seen)
            while page.more:
                page = await feed.fresh_events(page.seen)
            seen = page.seen
            texts.append(feed.fresh_states(topics, seen, since))

    async def follow() -> tuple[int, list[list[bytes]]]:
        feeds = Feeds(here.context)
        async with feeds.join(run.id, RunFeed, topics) as feed:
            counting = Counting(feed)
            told: list[list[bytes]] = [[] for _ in range(50)]
            tasks = [asyncio.create_task(client(feed, texts)) for texts in told]
            for change in (1, 2):
                while not all(len(texts) == change for texts in told):
                    await asyncio.sleep(0.001)
                with here.context.database.write() as connection:
                    events.add(connection, run.id, "notice", f"change {change}", at=here.context.clock())
                here.context.hub.shown(run.id)
            await asyncio.gather(*tasks)
            return counting.looks, told

    looks, told = asyncio.run(follow())
    assert looks <= 4
    for index in range(3):
        assert len({id(texts[index]) for texts in told}) == 1


def test_events_beyond_what_a_feed_keeps_are_read_from_the_store_once_each(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whistlestop.server.services.run_feed.KEPT", 3)
    monkeypatch.setattr("whistlestop.server.services.run_feed.PAGE", 4)
    run = here.submit()

    async def follow() -> list[int]:
        numbers: list[int] = []
        feeds = Feeds(here.context)
        async with feeds.join(run.id, RunFeed, ("events",)) as feed:
            assert await feed.beyond(0, 10)
            with here.context.database.write() as connection:
                added = [events.add(connection, run.id, "notice", str(n), at=1.0) for n in range(11)]
            here.context.hub.shown(run.id)
            seen = Seen()
            while seen.event < added[-1]:
                page = await feed.fresh_events(seen)
                seen = page.seen
                lines = page.text.decode().splitlines()
                numbers += [json.loads(line[6:])["seq"] for line in lines if line.startswith("data: ")]
                await asyncio.sleep(0.001)
        return numbers

    with here.context.database.read() as connection:
        before = [row.seq for row in events.of_run(connection, run.id)]
    numbers = asyncio.run(follow())
    assert numbers[: len(before)] == before
    assert numbers == sorted(set(numbers))
    assert len(numbers) == len(before) + 11


def grow(here: World, run: str, points: int, *, lines: int = 0) -> None:
    """Points of one series, and log lines, of the newest attempt."""
    attempt = here.attempt(run).id
    numbers = np.arange(1, points + 1, dtype=np.int64)
    with here.context.database.write() as connection:
        known = metrics.newest_records(connection, run).get(attempt, 0)
        found = metrics.Points(numbers + known, numbers + known, np.full(points, 1.0), np.full(points, 0.5))
        metrics.append(connection, attempt, {"loss": found})
        if lines:
            first = logs.sizes(connection, [attempt]).get(attempt, 0) + 1
            texts = [f"line {first + number}" for number in range(lines)]
            logs.append(connection, attempt, first, [pack_record(LogLine(1.0, "out", 0, text))[4:] for text in texts])
    here.context.hub.shown(run)


def test_the_history_of_a_run_comes_in_pages_and_few_of_them_are_kept(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whistlestop.server.services.run_feed.LINES", 10)
    monkeypatch.setattr("whistlestop.server.services.run_feed.POINTS", 100)
    run = here.submit()
    here.settle()
    grow(here, run.id, 950, lines=300)

    async def follow(read: str) -> list[bytes]:
        pages: list[bytes] = []
        async with Feeds(here.context).join(run.id, RunFeed, ("logs", "metrics")) as feed:
            seen, more = Seen(), True
            while more:
                page = await getattr(feed, read)(seen)
                pages.append(page.text)
                seen, more = page.seen, page.more
            assert len(feed._memory) <= ANSWERS
        return pages

    printed = asyncio.run(follow("fresh_logs"))
    assert [page.count(b"event: log\n") for page in printed] == [10] * 30
    measured = [json.loads(page.split(b"data: ")[1]) for page in asyncio.run(follow("fresh_points"))]
    steps = [[point[0] for point in page["series"][0]["points"]] for page in measured]
    assert max(map(len, steps)) <= 100
    assert [step for page in steps for step in page] == list(range(1, 951))


def test_who_joins_for_the_series_is_told_them_though_the_run_stands_still(here: World) -> None:
    run = here.submit()
    here.settle()

    async def newest(feed: RunFeed) -> int:
        version, text = 0, b""
        while b"event: series" not in text:
            assert await feed.beyond(version, 5), "nobody has looked"
            text, version = feed.fresh_states(frozenset({"series"}), Seen(), version), feed.version
        return int(json.loads(text.split(b"data: ")[1])["series"][0]["step"])

    async def follow() -> tuple[int, int]:
        feeds = Feeds(here.context)
        async with feeds.join(run.id, RunFeed, ("run",)) as feed:
            assert await feed.beyond(0, 5)
            grow(here, run.id, 3)
            async with feeds.join(run.id, RunFeed, ("series",)) as same:
                first = await newest(same)
            looks = Counting(feed)
            grow(here, run.id, 4)
            while not looks.done:  # nobody wanted the series at this look
                await asyncio.sleep(0.001)
            async with feeds.join(run.id, RunFeed, ("series",)) as same:
                second = first
                while second == first:
                    version = same.version
                    second = await newest(same)
                    if second == first:
                        assert await same.beyond(version, 5), "only the old value"
        return first, second

    assert asyncio.run(follow()) == (3, 7)


def test_who_opens_the_page_later_is_told_how_long_the_run_takes_now(here: World) -> None:
    run = here.submit()
    attempt = Attempt(here, run)
    attempt.at(40)
    topics = frozenset({"run"})

    async def told(feed: RunFeed) -> Any:
        assert await feed.beyond(0, 5)
        text = feed.fresh_states(topics, Seen(), 0)
        return json.loads(text.split(b"data: ")[1].split(b"\n")[0])

    async def follow() -> None:
        feeds = Feeds(here.context)
        async with feeds.join(run.id, RunFeed, topics) as feed:
            before = await told(feed)
            here.now += 100  # and nothing changes
            version = feed.version
            async with feeds.join(run.id, RunFeed, topics) as same:
                after = await told(same)
            assert feed.version == version, "who was there before need not hear it again"
        assert after["elapsed_s"] == before["elapsed_s"] + 100
        assert after["phases"][0]["at_risk"]["seconds"] == before["phases"][0]["at_risk"]["seconds"] + 100

    asyncio.run(follow())


def test_a_look_costs_a_few_queries_however_many_attempts_there_were(here: World) -> None:
    run = here.submit()
    here.settle()
    grow(here, run.id, 5, lines=5)
    attempt = here.attempt(run.id)
    with here.context.database.write() as connection:
        others = [
            {**attempt._mapping, "id": f"a-{number}", "number": number, "token_hash": f"t-{number}", "state": "failed"}
            for number in range(2, 302)
        ]
        connection.execute(attempts.insert(), others)
        for other in others[::2]:
            logs.append(connection, other["id"], 1, [pack_record(LogLine(1.0, "out", 0, "once"))[4:]])
    asked: list[str] = []
    with here.context.database.read() as connection:
        whole = history.log_page(connection, run.id, limit=1000)
        measured, _ = history.fresh_points(connection, run.id, {})
        sa.event.listen(connection, "before_cursor_execute", lambda *given: asked.append(given[2]))
        assert history.log_page(connection, run.id, after=whole.cursor).lines == []
        assert history.fresh_points(connection, run.id, measured[-1].cursor) == ([], False)
    assert len(whole.lines) == 155
    assert len(asked) <= 8


def test_a_list_whose_first_look_fails_is_told_no_place_to_go_on_from(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: sa.Connection) -> int:
        raise OSError("the disk does not answer")

    monkeypatch.setattr(events, "newest", fail)

    async def follow() -> bytes:
        told = pages._follow(here.context, Feeds(here.context), lambda: True, None)
        return b"".join([text async for text in told])

    assert b"id:" not in asyncio.run(follow())


def test_a_deletion_between_two_changes_is_not_lost_to_a_list(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = here.submit(), here.submit()
    verbs.kill(here.context, first.id, KillBody(), ME)
    here.settle()
    deleted_since = runs.deleted_since

    def meanwhile(connection: sa.Connection, seq: int, limit: int = 500) -> Any:
        monkeypatch.setattr(runs, "deleted_since", deleted_since)
        found = deleted_since(connection, seq, limit)
        verbs.delete(here.context, first.id, ME)
        verbs.set_note(here.context, second.id, "changed after it", ME)
        return found

    async def follow() -> bytes:
        told = b""
        async with Feeds(here.context).join(TOPIC, RowsFeed, ("rows",)) as feed:
            assert await feed.beyond(0, 5)
            seen, version = feed.newest, feed.version
            monkeypatch.setattr(runs, "deleted_since", meanwhile)
            here.context.hub.shown(second.id)
            while b"changed after it" not in told:
                assert await feed.beyond(version, 5)
                assert not feed.over
                version = feed.version
                text, seen, _ = await feed.fresh(seen)
                told += text
        return told

    assert b"event: gone" in asyncio.run(follow())
