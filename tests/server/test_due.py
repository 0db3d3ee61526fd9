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
        self.hold = threading.Event()
        self.hold.set()
        monkeypatch.setattr(diagnosing, "look", self._look)
        monkeypatch.setattr(diagnosing, "due", lambda context: (list(self.ended), list(self.running)))
        monkeypatch.setattr(diagnosing, "release", lambda context, run_id: self.released.append(run_id))

    def _look(self, context: Context, run_id: str) -> None:
        self.hold.wait(20)
        self.made[run_id] += 1
        self.ended = [each for each in self.ended if each != run_id]
        if run_id == "broken":
            raise RuntimeError("it can't be judged")


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


def test_an_end_is_looked_at_in_the_next_round_and_what_fails_is_let_go(watcher: Watching, looks: Looks) -> None:
    looks.ended = ["broken", "r1"]
    until(lambda: looks.made["r1"] == 1, within=20, what="a look at what ended")
    assert looks.released == ["broken"]


def test_stopping_waits_for_the_look_under_way_alone(watcher: Watching, looks: Looks) -> None:
    looks.hold.clear()
    for number in range(5):
        watcher.suspect(f"r{number}", True)
    ends = threading.Thread(target=watcher.stop)
    ends.start()
    looks.hold.set()
    ends.join(20)
    assert not ends.is_alive()
