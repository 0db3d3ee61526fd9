"""Stops at random moments; in full: `python -m whistlestop.testing.stop_drill --stops 500`."""

from pathlib import Path

import pytest

from whistlestop.testing.stop_drill import drill


@pytest.mark.drill
def test_no_stop_is_ignored_whatever_the_program_is_doing(tmp_path: Path) -> None:
    assert drill(tmp_path, 30, seed=5).stops == 30
