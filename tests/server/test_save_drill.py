"""The drills of saving and of pausing in their short form; `make soak` runs them in full."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from whistlestop.testing import pause_drill
from whistlestop.testing.s3 import S3Server
from whistlestop.testing.save_drill import Drill, local_storage, on_s3
from whistlestop.testing.server import ServerProcess


@pytest.mark.drill
def test_whatever_is_killed_while_it_saves_the_newest_checkpoint_loads(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "server") as server:
        report = Drill(server, lambda run: local_storage(server, run), seed=5).run(5)
    assert report.rounds == 5


@pytest.mark.drill
def test_a_storage_that_fails_and_cuts_loses_nothing(tmp_path: Path, s3: S3Server) -> None:
    with ExitStack() as stack:
        report = on_s3(stack, tmp_path / "server", s3, seed=6).run(8)
    assert report.rounds == 8


@pytest.mark.drill
def test_pausing_again_and_again_leaves_nothing_behind(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "server") as server:
        report = pause_drill.drill(server, 4)
    assert report.steps > 12
