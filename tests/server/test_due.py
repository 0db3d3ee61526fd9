"""When runs are looked at: what is suspected at once, what is suspected again and again ever less often, all others in
their turn."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from whistlestop.server.scheduler import watching
from whistlestop.server.scheduler.watching import Watching
from whistlestop.server.services import diagnosing
from whistlestop.server.services.context import Context
from whistlestop.testing.wait import until
from whistlestop.testing.world import World, world


class Looks:
    """In place of the diagnosis: which runs were looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: Counter[str] = Counter()
        self.ended: list[str] = []
        self.running: list[str] = []
        self.released: list[str] = []
        self.failing: dict[str, int] = {}  # how often yet
        self.lasts = 0.0
        self.now = 1000.0
        self.hold = threading.Event()
        self.hold.set()
        monkeypatch.setattr(diagnosing, "look", self._look)
        monkeypatch.setattr(diagnosing, "due", lambda context: (list(self.ended), list(self.running)))
        monkeypatch.setattr(diagnosing, "release", self._release)

    def _release(self, context: Context, run_id: str) -> None:
        self.released.append(run_id)
        self.ended.remove(run_id)

    def _look(self, context: Context, run_id: str) -> None:
        self.hold.wait(20)
        self.made[run_id] += 1
        self.now += self.lasts
        if self.failing.get(run_id, 0) > 0:
            self.failing[run_id] -= 1
            raise RuntimeError("it can't be judged")
        self.ended = [each for each in self.ended if each != run_id]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    for name, seconds in (("TICK", 0.02), ("AGAIN", 0.05), ("EVERY", 0.4)):
        monkeypatch.setattr(watching, name, seconds)
    return Looks(monkeypatch)


@pytest.fixture
def watcher(here: World, looks: Looks) -> Iterator[Watching]:
    made = Watching(here.context)
    made.start()
    yield made
    looks.hold.set()
    made.stop()


def test_what_is_suspected_is_looked_at_though_nobody_runs(watcher: Watching, looks: Looks) -> None:
    watcher.suspect("r1", True)
    until(lambda: looks.made["r1"] == 1, within=20, what="a look")


def test_a_run_that_gives_cause_with_every_batch_is_looked_at_ever_less_often(watcher: Watching, looks: Looks) -> None:
    looks.running = ["nan"]
    began = time.monotonic()
    while looks.made["nan"] < 5:
        watcher.suspect("nan", False)
        time.sleep(0.001)
        assert time.monotonic() - began < 30
    assert time.monotonic() - began > 0.05 + 0.1 + 0.2 + 0.4 - 0.05


def test_all_that_run_come_to_their_turn_beside_one_that_is_always_suspected(watcher: Watching, looks: Looks) -> None:
    looks.running = [f"r{number}" for number in range(30)]

    def all_looked_at() -> bool:
        watcher.suspect("r0", False)
        return all(looks.made[run_id] >= 2 for run_id in looks.running)

    until(all_looked_at, within=30, what="everybody's second look")


def test_an_end_is_looked_at_in_the_next_round_and_what_fails_again_and_again_is_let_go(
    watcher: Watching, looks: Looks
) -> None:
    looks.failing = {"broken": 1000, "shaken": watching.TRIES - 1}
    looks.ended = ["broken", "shaken", "r1"]
    until(lambda: not looks.ended, within=20, what="all to be looked at, or let go")
    assert looks.released == ["broken"], "the database was away for a moment: that lets nobody go"
    assert looks.made == {"broken": watching.TRIES, "shaken": watching.TRIES, "r1": 1}


def test_failures_count_only_where_none_goes_well_in_between(here: World, looks: Looks) -> None:
    watcher = Watching(here.context, clock=lambda: looks.now)
    for _ in range(3):
        looks.failing, looks.ended = {"r1": watching.TRIES - 1}, ["r1"]
        for _ in range(watching.TRIES):
            watcher._round()
        assert looks.ended == []
    assert looks.released == []


def test_many_that_end_together_do_not_keep_one_waiting_that_is_held(here: World, looks: Looks) -> None:
    watcher = Watching(here.context, clock=lambda: looks.now)
    looks.ended, looks.lasts = [f"r{number}" for number in range(1000)], 1.0
    watcher._round()
    looks.ended.insert(0, "held")
    watcher._round()
    assert looks.made == {"r0": 1, "held": 1}


def test_stopping_waits_for_the_look_under_way_alone(watcher: Watching, looks: Looks) -> None:
    looks.hold.clear()
    with watcher._wake:  # all in one go
        for number in range(5):
            watcher.suspect(f"r{number}", True)
    until(lambda: not watcher._suspected, within=20, what="the looks to begin")
    ends = threading.Thread(target=watcher.stop)
    ends.start()
    until(lambda: watcher._stopping, within=20, what="the stop")
    looks.hold.set()
    ends.join(20)
    assert not ends.is_alive()
    assert looks.made.total() == 1
