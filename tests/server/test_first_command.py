"""What `make run` does: the server, the sample pipeline that trains for real, and how to come back."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sample(data: Path) -> Iterator[subprocess.Popen[str]]:
    """The command of the Makefile's `run`, with a port and a directory of this test's own."""
    recipe = (ROOT / "Makefile").read_text().split("\nrun:")[1].split("\n\n")[0]
    assert "whistle up --run examples/pipeline/whistle.yaml" in recipe
    command = [sys.executable, "-m", "whistlestop", "up", "--run", "examples/pipeline/whistle.yaml"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(
        [*command, "--port", "0", "--slots", "1", "--data", str(data)],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
        process.wait(30)
    if process.stdout is not None:
        process.stdout.close()
    ServerProcess(data).close()


def test_the_sample_pipeline_trains_is_stopped_and_completes_and_ctrl_c_says_how_to_come_back(
    sample: subprocess.Popen[str], data: Path
) -> None:
    server = ServerProcess(data)
    until(lambda: (data / "server.json").exists() and (data / "token").exists(), what="the server")
    client = server.client()
    until(lambda: client.runs().runs and client.run("1").phases[0].progress.step > 20, what="training")
    with client:
        assert "as soon as it does" in client.stop("1", phase="text").text
        assert client.run("1").phases[1].status == "pending"
        client.stop("1", phase="tabular")
        ended = server.wait("1")
        assert ended.status == "completed", ended.reason
        assert [phase.status for phase in ended.phases] == ["completed"] * 4
        for phase in ended.phases[:2]:
            assert [(item.reason, item.decisive) for item in phase.stop_reasons] == [("manually_stopped", True)]
        assert (ended.phases[1].attempts[0].last_step or 0) <= 2
        assert list((data / "runs" / ended.id / "work").rglob("synthetic.csv"))
        texts = server.logs("1")
        assert any(text.startswith("wrote ") for text in texts)
    sample.send_signal(signal.SIGINT)
    output, _ = sample.communicate(timeout=60)
    assert sample.returncode == 0
    assert "Whistlestop is up at http://127.0.0.1:" in output
    assert "stop of phase tabular requested" in output
    assert "To come back:" in output
    assert "Warning" not in output
    assert "watch 1" in output
