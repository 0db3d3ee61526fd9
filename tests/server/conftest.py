from pathlib import Path

import pytest

from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess


@pytest.fixture
def programs() -> Path:
    return Path(__file__).parent / "programs"


@pytest.fixture
def client(server: ServerProcess) -> Client:
    return server.client()
