"""The server's services and scheduler in this process, over a real database and an engine whose answers a test sets."""

import contextlib
import itertools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from whistlestop.domain.errors import EngineUnreachable
from whistlestop.domain.ids import new_id
from whistlestop.engines.base import Can, JobId, JobState, JobStatus, Notice
from whistlestop.server.scheduler.engines import One
from whistlestop.server.scheduler.passes import Passes
from whistlestop.server.services import submit
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.services.hub import Hub
from whistlestop.server.services.settings import Settings
from whistlestop.server.services.vault import Vault
from whistlestop.server.store import phases, pools
from whistlestop.server.store.database import Database
from whistlestop.server.store.runs import Row
from whistlestop.testing.wait import until
from whistlestop.wire.api import RunView, Submit
from whistlestop.wire.frames import RunnerEvent, pack_record
from whistlestop.wire.launch import Launch

ME = Actor("me", "admin", "t-0")
TRAIN = "name: x\ncommand: 'true'\n"


class Engine:
    """Does nothing, and says of each job what it is told to say."""

    def __init__(self) -> None:
        self.can = Can(prove_end=True, salvage=True)
        self.says: dict[str, JobState | JobStatus] = {}
        self.notices: dict[str, Notice] = {}
        self.launched: list[str] = []
        self.cancelled: list[str] = []
        self.broken: Exception | None = None

    def launch(self, launch: Launch, secrets: Mapping[str, str]) -> JobId:
        if self.broken is not None:
            raise self.broken
        self.launched.append(launch.attempt_id)
        self.says.setdefault(launch.attempt_id, JobState.RUNNING)
        return JobId(launch.attempt_id)

    def poll(self, jobs: Collection[JobId]) -> Mapping[JobId, JobStatus]:
        said = {job: self.says.get(job, JobState.UNKNOWN) for job in jobs}
        return {
            job: each if isinstance(each, JobStatus) else JobStatus(each, notice=self.notices.get(job))
            for job, each in said.items()
        }

    def cancel(self, job: JobId) -> None:
        self.cancelled.append(job)

    def salvage(self, job: JobId) -> None:
        self.says[job] = JobState.RUNNING

    def forget(self, job: JobId) -> None:
        self.says.pop(job, None)


class World:
    def __init__(self, directory: Path, url: str | None = None, **settings: Any) -> None:
        self.now = 1_000_000.0
        directory.mkdir(parents=True, exist_ok=True)
        self.settings = Settings(data=directory, db=url, **settings)
        database = Database(self.settings.database_url)
        database.migrate()
        vault = Vault.open(directory / "key")
        self.context = Context(self.settings, database, Hub(), vault, lambda: self.now)
        self.engine = Engine()
        self.passes = Passes(self.context, One(self.engine), lambda: "http://127.0.0.1:1")
        self.dirty: set[str] = set()
        self.context.hub.connect_scheduler(lambda run_id: self.dirty.add(run_id) if run_id else None)
        with database.write() as connection:
            pools.put(connection, "local", at=self.now, engine="local", slots=2, price=3600.0)
        self._numbers = itertools.count()

    def submit(self, text: str = TRAIN) -> RunView:
        return submit.submit(self.context, Submit(spec=text), ME)

    def settle(self) -> None:
        """What the scheduler does until nothing is left to do."""
        for _ in range(10):
            dirty, self.dirty = self.dirty, set()
            self.passes.settle(sorted(dirty))
            self.passes.place()
            if not self.dirty:
                return

    def tick(self) -> None:
        self.dirty |= self.passes.check_everything()
        self.settle()

    def attempt(self, run: str) -> Row:
        with self.context.database.read() as connection:
            return phases.attempts_of_runs(connection, [run])[run][-1]

    def run_state(self, run: str) -> str:
        with self.context.database.read() as connection:
            return str(phases.facts(connection, [run])[0].state)


def ended(reason: str = "finished", **data: object) -> bytes:
    return pack_record(RunnerEvent(1_000_001.0, "ended", "it ended", {"reason": reason, **data}))


@contextlib.contextmanager
def world(directory: Path, url: str | None = None, **settings: Any) -> Iterator[World]:
    made = World(directory, url, **settings)
    try:
        yield made
    finally:
        # A thread that still reads would give its connection back to nobody.
        until(lambda: made.context.database.in_use() == 0, within=30, what="every reader to be done")
        made.context.database.close()


def unreachable() -> EngineUnreachable:
    return EngineUnreachable(f"no engine today {new_id('x')}")
