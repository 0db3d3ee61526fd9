import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def quick() -> Iterator[Path]:
    """Where syncing costs nothing: for tests that save hundreds of times, and cut the power in thought only."""
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="blobs-test-", dir=memory if memory.is_dir() else None))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
