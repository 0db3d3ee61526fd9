"""Scripts in processes of their own, forked from one that has loaded what they all need: loading it takes seconds."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# Only the parent comes back to its loop. A child leaves it and ends as any other interpreter does.
_LOOP = """
import json as _json, os as _os, sys as _sys
exec(_sys.argv[1])
while _line := _sys.stdin.readline():
    _order = _json.loads(_line)
    _child = _os.fork()
    if not _child:
        break
    print(_child, flush=True)
    print(_os.waitstatus_to_exitcode(_os.waitpid(_child, 0)[1]), flush=True)
else:
    raise SystemExit
_files = [_os.open(_os.devnull, _os.O_RDONLY)]
_files += [_os.open(_order[_name], _os.O_WRONLY | _os.O_CREAT | _os.O_APPEND) for _name in ("out", "err")]
for _number, _file in enumerate(_files):
    _os.dup2(_file, _number)
    _os.close(_file)
_os.chdir(_order["cwd"])
_os.environ.clear()
_os.environ.update(_order["env"])
_sys.argv = ["-c", *_order["args"]]
exec(compile(_order["script"], "<script>", "exec"))
"""


class Forks:
    """`loaded` is what the first process runs, as "import torch". It must start no threads."""

    def __init__(self, loaded: str, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._output = Path(tempfile.mkdtemp(prefix="whistle-forks-"))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOOP, loaded],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._env,
            text=True,
        )

    def run(
        self, script: str, *args: str, cwd: Path, env: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """One after another. `env` is all that the script gets, and by default what the first process got."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        out, err = (self._output / name for name in ("out", "err"))
        for path in (out, err):
            path.unlink(missing_ok=True)
        order = {"script": script, "args": args, "cwd": str(cwd), "env": dict(self._env if env is None else env)}
        self._process.stdin.write(json.dumps({**order, "out": str(out), "err": str(err)}) + "\n")
        self._process.stdin.flush()
        child = self._process.stdout.readline()
        try:
            code = self._process.stdout.readline()
        except BaseException:  # the test took too long
            os.kill(int(child), signal.SIGKILL)
            self._process.stdout.readline()
            raise
        if not code:
            raise AssertionError(f"the process that is forked has ended, with {self._process.wait()}")
        said = [path.read_text() if path.exists() else "" for path in (out, err)]
        return subprocess.CompletedProcess(_words(args), int(code), *said)

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._output, ignore_errors=True)


def _words(args: Sequence[str]) -> list[str]:
    return [os.fspath(sys.executable), "-c", "...", *args]
