"""The command line in this process: what it prints where, and how it ends."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from whistlestop.cli.main import main
from whistlestop.testing.server import ServerProcess


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        return dict(json.loads(self.err)["error"])


Whistle = Callable[..., Result]


@pytest.fixture
def whistle(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Whistle:
    """`whistle("ls", "--json")`, in an empty directory, with no server unless a test brings one."""
    for name in ("WHISTLE_URL", "WHISTLE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")  # whatever the terminal around the tests is like
    monkeypatch.setenv("WHISTLE_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("WHISTLE_URL", "http://127.0.0.1:9")
    code_directory = tmp_path / "code"
    code_directory.mkdir()
    monkeypatch.chdir(code_directory)

    def run(*words: str) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main(words)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert isinstance(left.value.code, int)
        return Result(left.value.code, said.out, said.err)

    return run


@pytest.fixture
def served(whistle: Whistle, server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Whistle:
    """The same, with a real server that it finds by its data directory."""
    monkeypatch.delenv("WHISTLE_URL")
    monkeypatch.setenv("WHISTLE_DATA", str(server.data))
    return whistle


def own_process(
    data: Path, cwd: Path, *words: str, env_more: Mapping[str, str] | None = None, **options: Any
) -> "subprocess.Popen[str]":
    """The real command, for signals and terminals."""
    import os

    return subprocess.Popen(
        [sys.executable, "-m", "whistlestop", *words],
        cwd=cwd,
        env={**os.environ, "WHISTLE_DATA": str(data), "NO_COLOR": "1", **(env_more or {})},
        text=True,
        **options,
    )
