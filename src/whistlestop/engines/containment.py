"""Owning a process tree on Linux: what belongs to an attempt is found, ended and proven gone; nobody else is touched.

Two ways, both used at the end of every attempt. A cgroup holds all descendants whatever they do. Where none may be
created, the tree is walked: descendants of the runner (a subreaper, so that orphans come back to it), and every
process that carries the attempt's mark in its environment.
"""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from whistlestop.channel.layout import ENV_ATTEMPT, ENV_JOB
from whistlestop.engines import cgroups, processes
from whistlestop.engines.attempt_files import Started
from whistlestop.engines.processes import Handle, Process

FORCE = "WHISTLE_CONTAINMENT"  # "walk": do without cgroups
_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 100  # of stopping what still forks, before the kill comes anyway


class Held(NamedTuple):
    """A process that SIGKILL does not end: it hangs in the kernel, or we may not signal it."""

    pid: int
    state: str
    why: str  # "it …"


class Gone(NamedTuple):
    """What ending a tree came to. `held` is empty if and only if nothing is left."""

    ended: int  # processes
    at: float  # Unix time of the proof
    held: tuple[Held, ...] = ()


class Tree:
    """The processes of one attempt, or of one node of it (see seat_of). `root` is the runner (its descendants belong to
    it); `group` a cgroup, if any; `program` the first process, known by its session when the runner is dead and there
    is no cgroup.
    """

    def __init__(
        self,
        attempt_id: str,
        *,
        group: Path | None = None,
        root: int | None = None,
        program: Started | None = None,
    ) -> None:
        self.attempt_id = attempt_id
        self.program = program
        self.group = group
        self.root = root
        self._mark = f"{ENV_JOB if '.' in attempt_id else ENV_ATTEMPT}={attempt_id}".encode()

    @classmethod
    def create(cls, attempt_id: str, *, walk: bool = False) -> "Tree":
        """A tree for the runner that calls: with a cgroup where one may be made."""
        return cls(attempt_id, group=None if walk else cgroups.create(attempt_id), root=os.getpid())

    def enter(self) -> None:
        """Called by the program's process before it becomes the program."""
        if self.group is not None:
            cgroups.enter(self.group)

    def living(self) -> list[Process]:
        """Everything of the tree that lives, by every witness we have. Never the runner or the caller."""
        table = processes.every()
        belongs = set(cgroups.members(self.group)) if self.group is not None else set()
        if self.root is not None:
            belongs |= processes.below([self.root], table)
        if self.program is not None and self.group is None:
            belongs |= _session(self.program, table)
        belongs |= {pid for pid, process in table.items() if process.alive and processes.marked(pid, self._mark)}
        # What a stray has started is ours too, also when it has covered its own environment.
        belongs |= processes.below(belongs, table)
        belongs -= {self.root, os.getpid()}
        return [table[pid] for pid in belongs if pid in table and table[pid].alive]

    def members(self) -> list[Process]:
        """The same for the sampler: cheap where there is a cgroup."""
        if self.group is None:
            return self.living()
        found = (processes.read(pid) for pid in cgroups.members(self.group))
        return [process for process in found if process is not None and process.alive]

    def kill_at_once(self) -> int:
        """The first blow, without waiting: microseconds where there is a cgroup. `end` does the rest."""
        if self.group is None:
            return 0
        count = len(cgroups.members(self.group))
        cgroups.kill(self.group)
        return count

    def end(self, timeout: float = 10.0) -> Gone:
        """Kill everything and return when it is proven gone, or after `timeout` with what is held in the kernel."""
        deadline = time.monotonic() + timeout
        ended: set[int] = set()
        if self.group is not None:
            ended |= set(cgroups.members(self.group))
            cgroups.kill(self.group)
            cgroups.wait_empty(self.group, deadline)
        while True:
            living = self.living()
            if not living:
                # A second look: one pass over /proc is no snapshot.
                living = self.living()
            if not living and (self.group is None or not cgroups.populated(self.group)):
                return Gone(len(ended), time.time())
            if time.monotonic() >= deadline:
                held = tuple(Held(p.pid, p.state, _why_held(p.pid)) for p in living)
                return Gone(max(0, len(ended) - len(held)), time.time(), held)
            ended |= {process.pid for process in self._kill(deadline)}

    def remove(self) -> None:
        """Give the cgroup back. After `end`."""
        if self.group is not None:
            cgroups.remove(self.group)

    def _kill(self, deadline: float) -> list[Process]:
        """One sweep of the walk: stop all that may fork until no new one turns up, then kill, then wait."""
        held: dict[tuple[int, int], Handle] = {}
        try:
            for _ in range(_ROUNDS):
                new = [p for p in self.living() if (p.pid, p.start) not in held]
                handles = [handle for p in new if (handle := Handle.open(p)) is not None]
                for handle in handles:
                    handle.send(signal.SIGSTOP)
                    held[handle.process.pid, handle.process.start] = handle
                if not handles or time.monotonic() >= deadline:
                    break
            for handle in held.values():
                handle.send(signal.SIGKILL)
            # In slices: those that hang must not keep us from looking for new ones.
            processes.wait_all(held.values(), min(deadline, time.monotonic() + 1.0))
            return [handle.process for handle in held.values()]
        finally:
            for handle in held.values():
                handle.close()


def _session(program: Started, table: Mapping[int, Process]) -> set[int]:
    """The program and the members of its session, also when the program itself has ended.

    The kernel gives a number away again only when nobody has it as his session: a leader with another start time
    means that all of ours are gone.
    """
    leader = table.get(program.pid)
    if leader is not None and leader.start != program.start:
        return set()
    return {
        process.pid
        for process in table.values()
        if process.session == program.pid
        and process.start >= program.start
        and processes.user(process.pid) == os.getuid()
    }


def _why_held(pid: int) -> str:
    user = processes.user(pid)
    if os.getuid() not in (0, user):
        return f"it belongs to the user with the id {user}"
    return f"it hangs in the kernel ({processes.stuck_in(pid)})"


def become_subreaper() -> None:
    """Orphans below this process become its children instead of init's."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER was refused")


class Reaper:
    """Takes in the dead children of this process, from any thread, and remembers the exit of those it is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: set[int] = set()
        self._status: dict[int, int] = {}

    def watch(self, pid: int) -> None:
        self._watched.add(pid)

    def reap(self) -> None:
        with self._lock:
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    return
                if pid == 0:
                    return
                if pid in self._watched:
                    self._status[pid] = status

    def status(self, pid: int) -> int | None:
        """The wait status of a watched child that has ended."""
        self.reap()
        return self._status.get(pid)
