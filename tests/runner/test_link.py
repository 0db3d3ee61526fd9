"""The link: through restarts, cuts and absences every byte arrives once and in order."""

import asyncio
import random
import time

import pytest
from runner_kit import Kit, until

from whistlestop.channel.journal import parse
from whistlestop.channel.layout import Kind
from whistlestop.engines.base import JobState
from whistlestop.runner import link
from whistlestop.runner.link import Link
from whistlestop.runner.recordfile import RecordFile
from whistlestop.runner.streams import Streams
from whistlestop.wire.frames import Progress

PRINTS = """
    import os, time
    from pathlib import Path
    from whistlestop.channel.journal import JournalWriter
    journal = JournalWriter(Path(os.environ["WHISTLE_CHANNEL"]), "metrics-0")
    for number in range(COUNT):
        print("line", number)
        journal.points(number, float(number), {"loss": float(number)})
        if number % 50 == 0: time.sleep(0.01)
    open("printed", "w").close()
"""


def check_complete(kit: Kit, count: int) -> None:
    assert kit.peer.texts() == [f"line {number}" for number in range(count)]
    steps = [record.point()[0] for record in parse(bytes(kit.peer.streams["metrics-0"])) if record.kind == Kind.POINTS]
    assert steps == list(range(count))
    assert kit.peer.gaps == []


def test_a_server_that_comes_back_on_another_port_misses_nothing(kit: Kit) -> None:
    job = kit.python(PRINTS.replace("COUNT", "5000"))
    until(lambda: len(kit.peer.texts()) > 100, "the first lines")
    first = kit.peer.url
    kit.peer.stop()
    until((kit.work / "printed").exists, "the program to go on without the server")
    assert kit.state(job) is JobState.RUNNING
    kit.peer.start()
    assert kit.peer.url != first
    assert kit.ended()["reason"] == "finished"
    kit.wait_done(job)
    check_complete(kit, 5000)
    assert kit.peer.repeated == 0


@pytest.mark.parametrize("seed", range(4))
def test_random_cuts_lose_nothing_and_double_nothing(kit: Kit, seed: int) -> None:
    chance = random.Random(seed)
    kit.peer.cut_after = lambda: chance.randrange(1, 60_000)
    job = kit.python(PRINTS.replace("COUNT", "3000"))
    kit.ended()
    kit.wait_done(job)
    check_complete(kit, 3000)
    assert len(kit.peer.hellos) > 1


def test_a_run_starts_and_ends_while_the_server_is_away(kit: Kit) -> None:
    kit.peer.stop()
    job = kit.python(PRINTS.replace("COUNT", "100"))
    until((kit.work / "printed").exists, "the program")
    assert kit.state(job) is JobState.RUNNING
    kit.peer.start()
    kit.ended()
    kit.wait_done(job)
    check_complete(kit, 100)


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_a_refusal_is_not_a_goodbye(kit: Kit, status: int) -> None:
    kit.peer.refuse = status
    job = kit.launch("sleep", "1000")
    until(lambda: len(kit.peer.tokens) >= 3, "several tries")
    assert kit.alive(job)
    kit.peer.refuse = None
    until(lambda: "program_started" in kit.peer.kinds(), "the link")


@pytest.mark.parametrize("way", ["http", "close", "bye", "later bye"])
def test_an_attempt_that_is_not_wanted_any_more_ends_itself(kit: Kit, way: str) -> None:
    if way == "http":
        kit.peer.refuse = 410
    elif way == "close":
        kit.peer.close_code = 4410
    elif way == "bye":
        kit.peer.bye = "another attempt has taken over"
    job = kit.launch("/bin/sh", "-c", "setsid sleep 1000 & sleep 1000")
    if way == "later bye":
        until(lambda: "program_started" in kit.peer.kinds(), "the link")
        kit.peer.send_bye("deleted")
    kit.wait_done(job)
    assert kit.alive(job) == []


def test_the_end_does_not_overtake_logs_and_metrics(kit: Kit) -> None:
    kit.peer.stop()
    job = kit.python(
        PRINTS.replace("COUNT", "30000")
        .replace("% 50", "% 5000")
        .replace('"line", number', '"line", "x" * 100, number')
    )
    until((kit.work / "printed").exists, "the program")
    until(lambda: b"ended" in (kit.directory(job) / "runner").read_bytes(), "its end")
    kit.peer.start()
    kit.ended()
    kit.wait_done(job)
    del kit.peer.streams["runner"]
    assert kit.peer.when_ended == {name: len(data) for name, data in kit.peer.streams.items()}
    assert kit.peer.when_ended["logs"] > 2_000_000


def test_a_loop_that_logs_all_the_time_costs_the_server_ten_pieces_a_second(kit: Kit) -> None:
    pace = PRINTS.replace("COUNT", "1000").replace("if number % 50 == 0: time.sleep(0.01)", "time.sleep(0.001)")
    job = kit.python(pace)
    until(lambda: kit.peer.pieces.get("metrics-0"), "the first points")
    began = time.monotonic()
    kit.ended()
    looks = (time.monotonic() - began) / link.LOOK_EVERY
    kit.wait_done(job)
    check_complete(kit, 1000)
    assert kit.peer.pieces["metrics-0"] <= looks + 10  # one for each acknowledgement would be three times as many


def test_what_the_server_can_not_digest_makes_no_storm_and_does_not_hold_back_the_end(kit: Kit) -> None:
    kit.peer.indigestible = "metrics-0"
    job = kit.python(PRINTS.replace("COUNT", "10"))
    assert kit.ended()["reason"] == "finished"
    began, before = time.monotonic(), len(kit.peer.hellos)
    until(lambda: len(kit.peer.hellos) >= before + 5, "more tries")
    assert time.monotonic() - began > 0.6
    assert kit.state(job) is JobState.RUNNING  # not everything is safe
    kit.peer.indigestible = None
    kit.wait_done(job)
    check_complete(kit, 10)


def test_a_sender_that_fails_is_not_silent(kit: Kit) -> None:
    launch = kit.describe("true")
    streams = Streams(kit.root, logs=RecordFile.open(kit.root / "logs"), runner=RecordFile.open(kit.root / "runner"))
    tries = 0

    def progress() -> Progress:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise RuntimeError("a hole")
        return Progress(at=1.0, stage="training")

    async def talk() -> None:
        one = Link(launch, streams, on_order=lambda _: None, on_unwanted=lambda _: None, progress=progress)
        running = asyncio.create_task(one.run())
        async with asyncio.timeout(20):
            while not kit.peer.progress:
                await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(talk())
    assert len(kit.peer.hellos) == 3


def test_a_wait_does_not_swallow_a_cancellation_that_comes_with_its_event() -> None:
    async def race() -> bool:
        event = asyncio.Event()

        async def sender() -> None:
            while True:
                await link._wait(event, 60.0)
                event.clear()

        sending = asyncio.create_task(sender())
        for _ in range(5):
            await asyncio.sleep(0)
        event.set()
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait({sending}, timeout=5.0)
        return sending.cancelled()

    assert asyncio.run(race())


def test_progress_comes_with_a_first_word_and_a_stage(kit: Kit) -> None:
    kit.launch("sleep", "1000", kind="task")
    until(lambda: kit.peer.progress and kit.peer.progress[-1].stage == "training", "progress")
