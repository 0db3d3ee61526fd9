"""Where mirrored points go: the open run, or the runner's channel when the program has no run of its own."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from whistlestop.channel import layout
from whistlestop.channel.control import Control
from whistlestop.channel.journal import JournalWriter
from whistlestop.channel.layout import Word
from whistlestop.sdk.forks import open_runs
from whistlestop.sdk.settings import Settings

try:
    import fcntl
except ImportError:  # Windows: there is no runner
    fcntl = None  # type: ignore[assignment]


class Target(Protocol):
    """A run, as far as mirrors need it."""

    def log(self, **scalars: Any) -> None: ...

    def log_at(self, step: int, scalars: Mapping[str, Any], /) -> None: ...


class Beside:
    """For a program under a runner that has no run: points go to its channel, and nothing else is touched.

    Not a whole run, because a run takes over SIGINT and SIGTERM for its loop: without one they would be lost.
    """

    def __init__(self, channel: Path, rank: int) -> None:
        self.process = os.getpid()
        self._journal = _SharedJournal(channel, layout.metrics_prefix(rank))
        self._counts: dict[str, int] = {}  # points without a step are numbered, each name by itself
        _no_loop_comes(channel)

    def log_at(self, step: int, scalars: Mapping[str, Any], /) -> None:
        self._journal.points(step, time.time(), scalars)
        for name in scalars:
            self._counts[name] = max(step + 1, self._counts.get(name, 0))
        if self._journal.taken:
            say_once("another process logs for this rank: nothing is mirrored here. Give every process its own RANK")

    def log(self, **scalars: Any) -> None:
        steps: dict[int, dict[str, Any]] = {}
        for name, value in scalars.items():
            steps.setdefault(self._counts.get(name, 0), {})[name] = value
        for step, values in steps.items():
            self.log_at(step, values)

    def close(self) -> None:
        self._journal.close()


_beside: Beside | None = None
_said: set[str] = set()


def target() -> Target | None:
    """The open run; the one that is attached, if there are several. None: there is nobody to tell."""
    global _beside
    runs: list[Any] = list(open_runs) if len(open_runs) else []  # walking through a weak set is slow, even if empty
    if runs:
        if _beside is not None:  # the run writes to the same journal from now on
            _beside.close()
            _beside = None
        return max(runs, key=lambda run: run._attachment.attached) if len(runs) > 1 else runs[0]  # type: ignore[no-any-return]
    if _beside is None and os.environ.get(layout.ENV_CHANNEL):
        settings = Settings.read()
        if settings.channel is not None:
            _beside = Beside(settings.channel, settings.rank)
    # A forked child, a loader's worker for one, has no part in what its parent writes.
    return _beside if _beside is not None and _beside.process == os.getpid() else None


def _no_loop_comes(channel: Path) -> None:
    """The program trains already, without a loop of ours: a stop need not wait for one. A run that opens later attaches
    and is waited for again."""
    try:
        control = Control.open(channel / layout.CONTROL_FILE)
        control[Word.IMPORTED] = 0
        control.close()
    except Exception as error:
        say_once(f"the runner's channel can't be used ({error}); nothing is mirrored")


def say_once(text: str) -> None:
    if text in _said:
        return
    _said.add(text)
    try:
        print(f"whistlestop: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):  # closed or missing: there is nobody to tell
        pass


class _SharedJournal(JournalWriter):
    """Keeps other processes out, but not a run that this process opens later: it goes on behind these points.

    The kernel's record locks belong to the process, and end when any handle of the file is closed: so it never is.
    """

    _handles: dict[Path, int] = {}  # noqa: RUF012

    def _hold(self) -> bool:
        if fcntl is None or self.taken:
            return not self.taken
        path = self._directory / f"{self._prefix}.lock"
        if path not in self._handles:
            self._handles[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(self._handles[path], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.taken = True
        except OSError:  # this file system has no locks
            pass
        return not self.taken
