from collections.abc import Iterator
from pathlib import Path

import pytest

from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.world import World, world


@pytest.fixture
def programs() -> Path:
    return Path(__file__).parent / "programs"


@pytest.fixture
def client(server: ServerProcess) -> Client:
    return server.client()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made
