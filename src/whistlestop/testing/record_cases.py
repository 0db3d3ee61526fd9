"""`python -m whistlestop.testing.record_cases --out tests/cases`: runs every planned case on a real server and writes
down what a diagnosis gets to see of it."""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from whistlestop.channel.control import Control, ControlUnusable
from whistlestop.channel.layout import CONTROL_FILE
from whistlestop.diagnosis.evidence import Evidence
from whistlestop.diagnosis.recording import cut
from whistlestop.domain.states import RUN_ENDED
from whistlestop.runner import progress
from whistlestop.server.services import evidence
from whistlestop.server.services.context import Context
from whistlestop.server.services.hub import Hub
from whistlestop.server.services.settings import Settings
from whistlestop.server.services.vault import Vault
from whistlestop.server.store import events, phases, runs
from whistlestop.server.store.database import Database
from whistlestop.testing import case_library, case_plans
from whistlestop.testing.case_library import Case
from whistlestop.testing.case_plans import Plan
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.frames import Progress

SLOTS = 96
WITHIN = 240.0  # seconds for one case, but for those that are parked
EVERY = 50  # cases after which what there is is written
MEANWHILE = 5  # cases at once, but for those that only wait


class Recorder:
    """A server, and the eyes of a diagnosis beside it."""

    def __init__(self, server: ServerProcess, programs: Path, scratch: Path) -> None:
        self._server, self._programs, self._scratch = server, programs, scratch
        self._settings = Settings(data=server.data)
        self._database = Database(self._settings.database_url)
        self._vault = Vault.open(server.data / "key")
        self._client = server.client()
        self.hidden = {
            str(scratch): "/scratch",
            str(programs): "/home/user/project",
            str(server.data): "/var/lib/whistlestop",
            sys.prefix: "/home/user/venv",
            sys.base_prefix: "/usr",
            socket.gethostname(): "host-1",
        }

    def record(self, plan: Plan) -> Case:
        seen = self.look(plan)
        if plan.cut:
            seen = cut(seen, _moment(seen, plan.cut))
        small = case_library.small(seen, {**self.hidden, **_neutral(plan)})
        return Case(plan.name, plan.kind, plan.label, plan.split, small, plan.replayed)

    def pace(self, plan: Plan) -> Mapping[str, Any]:
        """Of a whole training: when each of its steps was made."""
        seen = self.look(plan)
        series = max(seen.series, key=lambda series: len(series.steps))
        once = len(seen.ends) == 1
        begin = seen.place.loop_started_at if once else series.times[0]
        again = {"resumed_step": seen.place.resumed_step, "resumed_at": round(seen.place.loop_started_at - begin, 4)}
        return {
            **({} if once else again),
            "name": plan.name,
            "kind": plan.kind,
            "total": plan.case["steps"],
            "steps": [step + 1 for step in series.steps],
            "times": [at - begin for at in series.times],
        }

    def look(self, plan: Plan) -> Evidence:
        """Run it, do what is planned to it, and gather at the planned time."""
        place = self._scratch / plan.name.replace("/", "-")
        place.mkdir(parents=True)
        env = {"CASE": json.dumps(dict(plan.case)), "SCRATCH": str(place), "MEETING": str(place)}
        env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        phase = {"name": "train", "command": ["python", "train.py"], "env": env, **plan.phase}
        run = self._server.submit(phase, name=plan.name.replace("/", "-"), directory=self._programs).id
        try:
            return self._watch(plan, run)
        finally:
            with contextlib.suppress(Exception):
                self._client.kill(run, grace_s=0)
            for disk in ("disk", "readonly"):
                if os.path.ismount(place / disk):
                    subprocess.run(["umount", "-l", str(place / disk)], check=False)
            shutil.rmtree(place, ignore_errors=True)

    def _watch(self, plan: Plan, run: str) -> Evidence:
        if plan.act:
            until(lambda: self._step(run) >= plan.at or self._ended(run), within=WITHIN, what=f"{plan.name}: its step")
            self._act(plan, run)
        if plan.park:
            until(lambda: self._still(run) > plan.park, within=WITHIN + 2 * plan.park, what=f"{plan.name}: no step")
            return self._gather(run)
        until(lambda: self._ended(run), within=WITHIN, what=f"{plan.name} to end")
        return self._gather(run)

    def _act(self, plan: Plan, run: str) -> None:
        if plan.act.startswith("SIG"):
            os.kill(self._pid(run), signal.Signals[plan.act])
        elif plan.act == "stop":
            self._client.stop(run)
        else:
            self._client.pause(run)
            until(lambda: self._state(run) == "waiting", within=WITHIN, what=f"{plan.name} to be paused")
            self._client.resume(run)

    def _gather(self, run: str) -> Evidence:
        hub = Hub()
        with self._database.read() as connection:
            row, [phase] = runs.get(connection, run), phases.of_runs(connection, [run])[run]
            newest = phases.newest_attempts(connection, [run])[phase.id]
            said = self._said(newest.id) if newest.ended_at is None else None
            if said is not None:
                hub.progress[newest.id] = said
            context = Context(self._settings, self._database, hub, self._vault, time.time)
            return evidence.gather(context, connection, row, phase)

    def _said(self, attempt: str) -> Progress | None:
        """What the runner reads, and tells the server."""
        for path in (self._settings.attempts / attempt).rglob(CONTROL_FILE):
            with contextlib.suppress(ControlUnusable, OSError):
                control = Control.open(path)
                try:
                    return progress.read(control, task=False, started=True, stopping=False, ending=False)
                finally:
                    control.close()
        return None

    def _now(self, run: str) -> Progress | None:
        with self._database.read() as connection:
            found = phases.live_of_run(connection, run)
        return self._said(found[0].id) if found else None

    def _step(self, run: str) -> int:
        said = self._now(run)
        return said.step if said is not None else -1

    def _still(self, run: str) -> float:
        said = self._now(run)
        return time.time() - said.progress_at if said is not None and said.progress_at else 0.0

    def _state(self, run: str) -> str:
        with self._database.read() as connection:
            return str(runs.get(connection, run).state)

    def _ended(self, run: str) -> bool:
        return self._state(run) in {state.value for state in RUN_ENDED}

    def _pid(self, run: str) -> int:
        return until(lambda: self._told_pid(run), within=WITHIN, what="what its program's number is")

    def _told_pid(self, run: str) -> int:
        """0: the runner's word has not come yet."""
        with self._database.read() as connection:
            told = events.of_run(connection, run, kinds=["program_started"], newest=True)
        return int(told[-1].data["pid"]) if told else 0

    def close(self) -> None:
        self._database.close()


def _neutral(plan: Plan) -> dict[str, str]:
    """A name that the library has given to a fault tells what is to be found out."""
    names = {
        f"/scratch/{plan.name.replace('/', '-')}": "/scratch/run",
        plan.name.replace("/", "-"): "run",
        "other_faults.py": "pipeline.py",
        "faults.py": "pipeline.py",
        r"getattr(faults(), CASE[\"fault\"])(CASE)": "train_step(batch)",
        r"getattr(faults(), CASE[\"fault\"])(CASE, run)": "train_step(batch, run)",
    }
    return names | ({plan.case["fault"]: "train_step"} if "fault" in plan.case else {})


def _moment(seen: Evidence, part: float) -> float:
    """When this part of its points had been logged."""
    times = sorted(at for series in seen.series if series.kind == "program" for at in series.times)
    odd = [series.odd.at for series in seen.series if series.odd is not None]
    times = times or odd
    return max([times[min(len(times) - 1, int(part * len(times)))], *(at + 0.001 for at in odd)])


def record(out: Path, wanted: Sequence[Plan], *, paces: bool = False) -> tuple[int, list[str]]:
    """How many were recorded, and what went wrong with the others."""
    with tempfile.TemporaryDirectory(prefix="whistle-cases-") as directory:
        home = Path(directory)
        server = ServerProcess(home / "data", slots=SLOTS).start()
        programs = home / "project"
        shutil.copytree(out / "programs", programs, ignore=shutil.ignore_patterns("__pycache__"))
        recorder = Recorder(server, programs, home / "scratch")
        try:
            return _record(out, recorder, wanted, paces)
        finally:
            recorder.close()
            server.close()
            for group in Path("/sys/fs/cgroup/memory").rglob("case-*"):  # of those that ran out of memory
                with contextlib.suppress(OSError):
                    group.rmdir()


def _record(out: Path, recorder: Recorder, wanted: Sequence[Plan], paces: bool) -> tuple[int, list[str]]:
    turns = threading.Semaphore(MEANWHILE)

    def one(plan: Plan) -> Any:
        with contextlib.nullcontext() if plan.park else turns:
            return recorder.pace(plan) if paces else recorder.record(plan)

    found: list[Any] = []
    wrong: list[str] = []
    # Of every label the first ones first; and before all those that are parked: they cost nothing while others run.
    order = sorted(wanted, key=lambda plan: (not plan.park, int(plan.name.rpartition("/")[2]), plan.name))
    with ThreadPoolExecutor(SLOTS) as pool:
        made = {pool.submit(one, plan): plan for plan in order}
        try:
            for number, done in enumerate(as_completed(made), 1):
                try:
                    found.append(done.result())
                except Exception as error:
                    wrong.append(f"{made[done].name}: {error!r}")
                if number % EVERY == 0:
                    _save(out, found, paces)
                    print(f"{number} of {len(made)}", *wrong, sep="\n", file=sys.stderr, flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    _save(out, found, paces)
    return len(found), wrong


def _save(out: Path, found: Sequence[Any], paces: bool) -> None:
    if not paces:
        case_library.save(out / "recorded", found)
        return
    for split in case_plans.SPLITS:
        case_library.save_paces(out / "recorded", split, [each for each in found if f"/{split}/" in each["name"]])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("tests/cases"))
    parser.add_argument("--kind", action="append", default=[], help="a mechanism or a label; may be given again")
    parser.add_argument("--count", type=int, help="of every label and split, at most")
    parser.add_argument("--missing", action="store_true", help="only those that are not recorded yet")
    parser.add_argument("--paces", action="store_true", help="how steps come over time, for forecasts")
    chosen = parser.parse_args()
    wanted = case_plans.paces() if chosen.paces else case_plans.plans(chosen.count, chosen.kind)
    if chosen.missing and not chosen.paces:
        known = {case.name for case in case_library.load(chosen.out / "recorded")}
        wanted = [plan for plan in wanted if plan.name not in known]
    if chosen.paces and chosen.kind:
        wanted = [plan for plan in wanted if plan.kind in chosen.kind]
    if chosen.paces and chosen.count:
        wanted = [plan for plan in wanted if int(plan.name.rpartition("/")[2]) < chosen.count]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # what was started is ended, also then
    began = time.monotonic()
    count, wrong = record(chosen.out, wanted, paces=chosen.paces)
    print(f"{count} recorded in {time.monotonic() - began:.0f} s", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
