"""A pause anywhere in Lightning's loops, with every kind of loader: the resumed run is the uninterrupted one."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from whistlestop.testing.example_program import quiet_environment
from whistlestop.testing.missing import missing

PROGRAM = Path(__file__).parent / "programs_lightning.py"


@pytest.mark.long
def test_wherever_lightning_is_paused_it_comes_to_the_same_bits(tmp_path: Path) -> None:
    for name in ("lightning", "torchdata"):
        if importlib.util.find_spec(name) is None:
            missing(f"{name} is not installed")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        env=quiet_environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert told.pop("forgotten") == "call trainer.fit(..., ckpt_path=whistle.ckpt_path)"
    assert len(told) == 11
    assert {name: text for name, text in told.items() if text != "same"} == {}
