"""The examples run by themselves, and go on exactly where they were stopped."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import whistlestop
from whistlestop.blobs.checkpoints import CheckpointStore

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("whistle-checkpoints", "out"))
    return tmp_path / "examples"


def environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WHISTLE_")}
    clean.pop("RANK", None)
    return {**clean, "OPENBLAS_NUM_THREADS": "1", **more}


def run(script: str, directory: Path, **more: str) -> str:
    child = subprocess.run(
        [sys.executable, script], cwd=directory, env=environment(**more), capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    return child.stdout


def newest(directory: Path, name: str) -> Path:
    found, _ = CheckpointStore(directory / "whistle-checkpoints" / name).newest("run-001")
    assert found is not None
    return found.path


def test_the_network_resumes_bit_by_bit(here: Path) -> None:
    whole, parted = here / "mlp", here / "mlp-parted"
    shutil.copytree(whole, parted)
    run("train.py", whole, STEPS="400")
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
            " runpy.run_path('train.py', run_name='__main__')",
        ],
        cwd=parted,
        env=environment(STEPS="400"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline().startswith("step 250")
    child.send_signal(signal.SIGINT)
    child.stdout.read()
    assert child.wait() == 0
    child.stdout.close()
    run("train.py", parted, STEPS="400")
    paths = [newest(directory, "mlp") for directory in (whole, parted)]
    assert [path.name[:17] for path in paths] == ["step-000000000400"] * 2
    one, other = (whistlestop.load(path)["weights"] for path in paths)
    assert all(numpy.array_equal(one[name], other[name]) for name in one)


def test_the_pipeline_makes_its_report(here: Path) -> None:
    directory = here / "pipeline"
    for script in ("tabular.py", "text.py"):
        run(script, directory, STEPS="20")
    inputs = {
        f"WHISTLE_INPUT_{name.upper()}": str(newest(directory, name).relative_to(directory))
        for name in ("tabular", "text")
    }
    run("synthesis.py", directory, ROWS="100", LETTERS="200", **inputs)
    run("report.py", directory)
    assert "Synthetic data" in (directory / "out" / "report.md").read_text()
    assert (directory / "out" / "age.svg").read_text().startswith("<svg")
    assert len((directory / "out" / "synthetic.csv").read_text().splitlines()) == 101


@pytest.mark.parametrize("name", ["mlp", "pipeline"])
def test_the_specs_of_the_examples_are_valid(name: str) -> None:
    from whistlestop.wire.spec_file import parse_spec

    spec = parse_spec((EXAMPLES / name / "whistle.yaml").read_text())
    assert [phase.name for phase in spec.phases] == (
        ["train"] if name == "mlp" else ["tabular", "text", "synthesis", "report"]
    )
