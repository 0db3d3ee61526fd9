"""The runner's kit serves the engines too."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "runner")]

from runner_kit import Kit  # noqa: E402


@pytest.fixture(params=["cgroup", "walk"])
def both(request: pytest.FixtureRequest) -> Iterator[Kit]:
    """Each test on both ways of containment."""
    yield from _kit(walk=request.param == "walk")


@pytest.fixture
def kit() -> Iterator[Kit]:
    yield from _kit(walk=False)


@pytest.fixture
def walking() -> Iterator[Kit]:
    yield from _kit(walk=True)


def _kit(*, walk: bool) -> Iterator[Kit]:
    root = Path(tempfile.mkdtemp(prefix="whistle-"))
    made = Kit(root, walk=walk)
    made.peer.start()
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(root, ignore_errors=True)
