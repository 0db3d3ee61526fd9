"""Stacks of an attempt's processes, from outside: py-spy reads their memory. They are neither stopped nor asked, so it
works on one that hangs with Python's lock held, and on one that is stopped."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whistlestop.engines import processes
from whistlestop.engines.containment import Tree
from whistlestop.engines.processes import Handle, Process
from whistlestop.runner import answers

FRAMES = 30  # of one thread, the innermost
THREADS = 12  # of one process
PROCESSES = 32
SIZE = 60 << 10  # characters of all frames together: an event has to stay small
ONE_SECONDS, ALL_SECONDS = 5.0, 20.0
_LONGEST = 200  # characters of a frame
_LIBRARY = re.compile(r"(?:^|/)(?:site-packages|dist-packages|lib/python3\.\d+t?)/|^<frozen ")
_OWN = str(Path(__file__).parent.parent) + os.sep
_STATES = {"T": "stopped", "t": "traced", "D": "hangs in the kernel", "R": "runs", "S": "sleeps", "I": "idle"}
_COLLECTIVE = re.compile(
    r"all_?reduce|all_?gather|all_?to_?all|reduce_scatter|broadcast|barrier|distributed_c10d|_engine_run_backward|"
    r"synchronize|block_until_ready|collective|horovod|nccl|gloo|Group\.wait",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Stack:
    """One thread. `frames`: "file:line function", the innermost first; none where it could not be read."""

    rank: int | None
    pid: int
    process: str  # its command
    thread: str
    state: str
    frames: tuple[str, ...] = ()
    inner: int = 0  # frames of libraries inside the innermost one of the program's own

    def data(self) -> dict[str, Any]:
        told = {"rank": self.rank, "pid": self.pid, "process": self.process, "thread": self.thread}
        return {**told, "state": self.state, "frames": list(self.frames)}

    @property
    def in_collective(self) -> bool:
        """It waits for others, as far as its frames tell."""
        return any(_COLLECTIVE.search(frame) for frame in self.frames)

    @property
    def held(self) -> bool:
        """Not by itself: somebody has stopped it, or the kernel does not let it go on."""
        return self.state.startswith((_STATES["T"], _STATES["D"], _STATES["t"]))

    def where(self) -> str:
        """For a sentence: waits in Queue.get (loader.py:88)."""
        does = f"is {_STATES['T']}" if self.state == _STATES["T"] else self.state if self.held else "is"
        if not self.frames:
            return does if self.held else f"{self.state}; where can't be told"
        own = self.frames[self.inner] if self.inner < len(self.frames) else self.frames[-1]
        place, _, name = own.partition(" ")
        if self.in_collective and not self.held:
            does = "waits for others"
        if self.inner:
            name = self.frames[min(self.inner, len(self.frames)) - 1].partition(" ")[2]
            does = "waits" if does == "is" else does
        return f"{does} in {name} ({Path(place).name})"


class Spy:
    """`directory` is the attempt's, `root` that of its code; `hide` blanks out secrets. One at a time; `stop` from
    another thread ends it soon."""

    def __init__(
        self, tree: Tree, directory: Path, *, root: str = "", hide: Callable[[str], str] = lambda text: text
    ) -> None:
        self._tree, self._directory, self._hide = tree, directory, hide
        self._root = root.rstrip("/") + "/" if root else ""
        self._program = find()
        self._running: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._taking = threading.Lock()
        self.trouble = ""  # why frames are missing

    def take(self, ranks: Mapping[int, int]) -> list[Stack]:
        """Of every Python process of the tree and of none beside it; those of `ranks` (pid -> rank) first, and the
        main thread of each before its others."""
        with self._taking:
            return self._take(ranks)

    def _take(self, ranks: Mapping[int, int]) -> list[Stack]:
        self.trouble = "" if self._program else "py-spy is not installed beside the runner"
        deadline, found, size = time.monotonic() + ALL_SECONDS, list[Stack](), 0
        living = sorted(self._tree.living(), key=lambda each: (ranks.get(each.pid, 1 << 30), each.pid))
        for process in living[:PROCESSES]:
            if self._stopped or time.monotonic() > deadline:
                break
            for stack in self._of(process, ranks.get(process.pid)):
                size += sum(map(len, stack.frames)) + len(stack.process) + 100
                if size > SIZE:
                    return found
                found.append(stack)
        return found

    def stop(self) -> None:
        self._stopped = True
        running = self._running
        if running is not None:
            running.kill()

    def _of(self, process: Process, rank: int | None) -> list[Stack]:
        handle = Handle.open(process)
        if handle is None:
            return []
        try:
            command, state = self._hide(_command(process.pid))[:_LONGEST], _state(process)
            if "py-spy" in command.partition(" ")[0]:
                return []
            threads = self._threads(process.pid) if self._program and _is_python(process.pid) else []
            if not threads and rank is not None:
                threads = answers.ask(handle, self._directory, rank)
            if handle.ended():
                return []  # its number may be another's by now
        finally:
            handle.close()
        found = []
        for thread in threads[:THREADS]:
            frames = [_frame(each, self._root) for each in thread["frames"]]
            inner = next((at for at, each in enumerate(thread["frames"]) if not _is_library(each)), 0)
            told = tuple(self._hide(frame)[:_LONGEST] for frame in frames[:FRAMES])
            found.append(Stack(rank, process.pid, command, str(thread.get("thread_name") or "?"), state, told, inner))
        plain = Stack(rank, process.pid, command, "", state)
        return found or ([plain] if rank is not None or plain.held else [])

    def _threads(self, pid: int) -> list[dict[str, Any]]:
        """The main one first; [] if it can't be read."""
        command = [self._program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
        try:
            self._running = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            with self._running as running:
                try:
                    out, error = running.communicate(timeout=ONE_SECONDS)
                except subprocess.TimeoutExpired:
                    running.kill()
                    raise
            threads = json.loads(out) if out.strip() else []
        except (OSError, ValueError, subprocess.TimeoutExpired) as problem:
            self.trouble = f"py-spy: {problem}"
            return []
        finally:
            self._running = None
        if not threads:
            self.trouble = "py-spy: " + error.decode(errors="replace").strip().partition("\n")[0]
        whole = [each for each in threads if isinstance(each, dict) and each.get("frames")]
        return sorted(
            whole, key=lambda each: each.get("thread_name") != "MainThread" and each.get("os_thread_id") != pid
        )


def find() -> str:
    """py-spy of the runner's own environment, or of the host; empty if there is none."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy") or ""


def decisive(stacks: Sequence[Stack], ranks: Sequence[int]) -> Stack | None:
    """Of ranks that are equally far, the one that the others wait for: that is held, that is in no collective while
    others are, that stands where no other does. None: nobody can tell."""
    mains = {stack.rank: stack for stack in reversed(stacks) if stack.rank in ranks}
    if len(mains) == 1:
        return next(iter(mains.values()))
    chosen = list(mains.values())
    for late in (
        [each for each in chosen if each.held],
        [each for each in chosen if not each.in_collective],
        [each for each in chosen if sum(other.frames[:3] == each.frames[:3] for other in chosen) == 1],
    ):
        if 0 < len(late) < len(chosen):
            return late[0]
    return None


def _is_library(frame: Mapping[str, Any]) -> bool:
    path = str(frame.get("filename") or "")
    return path.startswith(_OWN) or _LIBRARY.search(path) is not None


def _frame(frame: Mapping[str, Any], root: str) -> str:
    path = str(frame.get("filename") or "?")
    if root and path.startswith(root):
        path = path.removeprefix(root)
    elif match := list(_LIBRARY.finditer(path)):
        path = path[match[-1].end() :] or path
    elif path.startswith(_OWN):
        path = f"whistlestop/{path.removeprefix(_OWN)}"
    return f"{path}:{frame.get('line') or 0} {frame.get('name') or '?'}"


def _state(process: Process) -> str:
    words = _STATES.get(process.state, process.state)
    return f"{words} ({processes.stuck_in(process.pid)})"[:_LONGEST] if process.state == "D" else words


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).decode(errors="replace").split("\0")
    except OSError:
        return ""
    return " ".join([Path(words[0]).name, *words[1:]]).strip()


def _is_python(pid: int) -> bool:
    try:
        if "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
            return True
        with open(f"/proc/{pid}/maps") as file:
            return any("libpython" in line for line in file)
    except OSError:
        return False
