"""The kill drill in its short form; `make soak` runs it in full."""

from pathlib import Path

import pytest

from whistlestop.testing.kill_drill import drill
from whistlestop.testing.server import ServerProcess


@pytest.mark.drill
@pytest.mark.parametrize("containment", ["cgroup", "walk"])
def test_kills_at_random_moments_leave_nothing_and_touch_nobody(
    data: Path, monkeypatch: pytest.MonkeyPatch, containment: str
) -> None:
    if containment == "walk":
        monkeypatch.setenv("WHISTLE_CONTAINMENT", "walk")
    with ServerProcess(data, slots=1) as server:
        report = drill(server, 14, seed=3)
    assert report.rounds == 14
