"""The kill drill in its short form; `make soak` runs it in full."""

from pathlib import Path

import pytest

from whistlestop.testing.kill_drill import drill
from whistlestop.testing.server import ServerProcess

ROUNDS = 7


@pytest.mark.drill
@pytest.mark.parametrize("containment", ["cgroup", "walk"])
def test_kills_at_random_moments_leave_nothing_and_touch_nobody(
    data: Path, monkeypatch: pytest.MonkeyPatch, containment: str
) -> None:
    if containment == "walk":
        monkeypatch.setenv("WHISTLE_CONTAINMENT", "walk")
    with ServerProcess(data, slots=1) as server:
        report = drill(server, ROUNDS, seed=3)
    assert report.rounds == ROUNDS
