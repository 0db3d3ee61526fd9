"""Runners on a Slurm cluster. Slurm finds the nodes, starts a task on each, and ends and proves what is there; retries
are ours: nothing is requeued.

A job is known by its name, which is the attempt's id: what was submitted and not noted down is found again. Works with
accounting and without: only what squeue has forgotten is looked for there.
"""

import contextlib
import logging
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from whistlestop.domain.errors import EngineUnreachable, Refused
from whistlestop.engines import boot, slurm_jobs
from whistlestop.engines.base import Can, Cluster, JobId, JobStatus
from whistlestop.engines.slurm_jobs import FORMAT, RECALLED, Job
from whistlestop.engines.slurm_words import trouble_words
from whistlestop.wire.launch import Launch, Ticket, http_of

log = logging.getLogger(__name__)
NAME = "whistle-"
TIMEOUT = 20.0  # seconds for one command: a controller that is away keeps them waiting
CANCEL_SECONDS, CANCEL_AGAIN, LOOK_EVERY = 60.0, 5.0, 0.2  # until a cancelled job is proven to be gone
MOST_NAMES = 1000
NO_ACCOUNTS = 600.0  # seconds until sacct is tried again where there was none
USUAL_GRACE = 30.0  # seconds between SIGTERM and SIGKILL: Slurm's own KillWait
# On a node: Slurm counts on this very start of this job, there.
WITNESS = (
    'test "$(squeue --noheader --jobs="$SLURM_JOB_ID" --states=RUNNING --nodelist="$SLURMD_NODENAME" '
    '--Format="RestartCnt:|")" = "${SLURM_RESTART_COUNT:-0}|"'
)


class SlurmEngine:
    """`settings`: wire/pools.py, SlurmSettings."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self.can = Can(prove_end=True, salvage=False, tells=True, lease=float(settings.get("lease", 30.0)))
        self._guard = threading.Lock()  # one that asks whether a job is there, and submits it if not, at a time
        self._grace: float | None = None
        self._accounts_at = 0.0  # by time.monotonic(): when sacct may be asked

    def launch(self, launch: Launch, secrets: Mapping[str, str]) -> JobId:
        """The secrets stay here: the nodes fetch them. An sbatch that we gave up may be carried out all the same, even
        after we have looked for its job: then there are two. The next poll cancels one that has not begun; should both
        have begun by then, the server lets only the first one have the attempt (services/starts.py)."""
        job = JobId(launch.attempt_id)
        with self._guard:
            if job not in self._queued([job]):  # what was over long ago nobody launches again
                self._run("sbatch", *self._options(launch), text=self._script(launch), refused=True)
        return job

    def poll(self, jobs: Collection[JobId]) -> Mapping[JobId, JobStatus]:
        found = self._find(jobs, once=True)
        doubtful = self._doubtful(found.values())
        return {job: slurm_jobs.status(found.get(job), doubtful) for job in jobs}

    def cancel(self, job: JobId) -> None:
        """Returns when nothing of it is left, or when Slurm takes too long to say so. All that Slurm has of this name
        at once, should it have taken it twice: one that takes long to end must not keep the others alive."""
        end, again_at = time.monotonic() + CANCEL_SECONDS, 0.0
        while (left := self._left(job)) and time.monotonic() < end:
            if time.monotonic() >= again_at:
                # The steps first, and without grace: once a job is cancelled, its step waits for KillWait.
                with contextlib.suppress(EngineUnreachable):  # one has none yet
                    self._run("scancel", "--signal=KILL", *(f"{each}.0" for each in left))
                self._run("scancel", *left)
                again_at = time.monotonic() + CANCEL_AGAIN
            time.sleep(LOOK_EVERY)

    def salvage(self, job: JobId) -> None:
        """Its node is others' by now."""

    def forget(self, job: JobId) -> None:
        """Slurm forgets by itself; but not what somebody has requeued."""
        found = self._queued([job]).get(job)
        if found is not None and not found.is_ours and not found.is_over:
            self._run("scancel", found.id)

    def cluster(self) -> Cluster:
        name = self._settings.get("partition") or ""
        try:
            version = self._run("sinfo", "--version").strip()
            asked = ["--noheader", "--Node", "--format=%N|%T|%E", *([f"--partition={name}"] if name else [])]
            nodes, unfit = slurm_jobs.usable(self._run("sinfo", *asked))
        except EngineUnreachable as error:
            raise EngineUnreachable(f"{error.text.rstrip('.')}. {_REACH}") from error
        if not nodes and not unfit:
            text = f"there is no node in a partition {name}: sinfo shows which there are" if name else "it has no nodes"
        else:
            text = f"not usable: {', '.join(unfit)}" if unfit else ""
        return Cluster(version.replace("slurm-wlm", "Slurm").replace("slurm ", "Slurm "), len(nodes), text)

    def _find(self, jobs: Collection[JobId], *, once: bool = False) -> Mapping[JobId, Job]:
        """All of them in one question. What squeue has forgotten, minutes after its end, the accounts may know."""
        found = dict(self._queued(jobs, once=once))
        if missing := [job for job in jobs if job not in found]:
            found |= self._recalled(missing)
        return found

    def _queued(self, jobs: Collection[JobId], *, once: bool = False) -> Mapping[JobId, Job]:
        """`once`: what Slurm has taken twice is cancelled but for one, see launch."""
        all_of_them = self._all()
        found = _by_job(slurm_jobs.newest(all_of_them))
        names = {f"{NAME}{job}" for job in jobs}
        for twice in slurm_jobs.superfluous([each for each in all_of_them if each.name in names]) if once else ():
            log.warning("Slurm has taken %s twice: job %s is cancelled", twice.name, twice.id)
            with contextlib.suppress(EngineUnreachable):  # the next poll tries it again
                self._run("scancel", twice.id)
        return {job: found[job] for job in jobs if job in found}

    def _all(self) -> list[Job]:
        """Of this user: that is the same for thousands, and costs the controller less than their names."""
        answer = self._run("squeue", "--noheader", "--me", "--states=all", f"--Format={FORMAT}")
        return slurm_jobs.read_queue(answer)

    def _left(self, job: JobId) -> list[str]:
        return [each.id for each in self._all() if each.name == f"{NAME}{job}" and not each.is_over]

    def _recalled(self, jobs: Collection[JobId]) -> Mapping[JobId, Job]:
        if time.monotonic() < self._accounts_at:
            return {}
        names = ",".join(f"{NAME}{job}" for job in list(jobs)[:MOST_NAMES])  # on one command line
        asked = ("--noheader", "--allocations", "--parsable2", "--starttime=now-30days", f"--name={names}")
        try:
            answer = self._run("sacct", *asked, f"--format={','.join(RECALLED)}")
        except EngineUnreachable:  # this cluster keeps no accounts, or they are away
            self._accounts_at = time.monotonic() + NO_ACCOUNTS
            return {}
        return _by_job(slurm_jobs.newest(slurm_jobs.read_accounts(answer)))

    def _doubtful(self, found: Collection[Job]) -> set[str]:
        hosts = slurm_jobs.to_ask_about(found)
        if not hosts:
            return set()
        answer = self._run("sinfo", "--noheader", "--Node", f"--nodes={','.join(hosts)}", "--format=%N|%T|%E")
        return slurm_jobs.read_nodes(answer)

    def _grace_seconds(self) -> float:
        """Between the SIGTERM of a preemption and the end; where the partition gives none, as for every SIGTERM."""
        if self._grace is None:
            name = self._settings.get("partition") or ""
            try:
                said = self._run("scontrol", "--oneliner", "show", "partition", *([name] if name else []))
            except EngineUnreachable:
                return USUAL_GRACE  # sbatch says what is wrong
            lines = [line for line in said.splitlines() if name or " Default=YES" in line]
            given = re.search(r"\bGraceTime=(\d+)", lines[0]) if lines else None
            wait = re.search(r"^KillWait\s*=\s*(\d+)", self._run("scontrol", "show", "config"), re.MULTILINE)
            usual = float(wait[1]) if wait else USUAL_GRACE
            self._grace = float(given[1]) if given and int(given[1]) else usual
        return self._grace

    def _options(self, launch: Launch) -> list[str]:
        settings, share = self._settings, len(launch.slots) // launch.nodes
        options = [
            "--parsable",
            f"--job-name={NAME}{launch.attempt_id}",
            f"--comment=whistlestop {launch.run_name} {launch.phase}",
            f"--nodes={launch.nodes}",
            "--ntasks-per-node=1",
            "--no-requeue",
            "--export=NONE",
            "--output=/dev/null",
            "--chdir=/",
        ]
        gpus = settings.get("resource") == "gpu"
        options.append(f"--gpus-per-node={share}" if gpus else f"--cpus-per-task={share}")
        options += [f"--{name}={settings[name]}" for name in _NAMED if settings.get(name)]
        if settings.get("time"):
            options += [f"--time={settings['time']}", f"--signal=USR2@{self._ahead():.0f}"]
        if launch.avoid:
            options.append(f"--exclude={','.join(launch.avoid)}")
        return [*options, *settings.get("options", ())]

    def _script(self, launch: Launch) -> str:
        """Code and ticket go through the environment: a command line may be read by everybody on the node."""
        ticket = Ticket(
            server=self._settings.get("url") or http_of(launch.server),
            token=launch.token,
            root=self._settings["directory"],
            witness=["/bin/sh", "-c", WITNESS],
            grace=self._grace_seconds(),
            ahead=self._ahead(),
        )
        variables = {
            "WHISTLE_TICKET": msgspec.json.encode(ticket).decode(),
            "WHISTLE_BOOT": Path(boot.__file__).read_text(),
        }
        run = "import os; exec(compile(os.environ['WHISTLE_BOOT'], 'boot', 'exec'))"
        python = shlex.join([*shlex.split(self._settings["python"]), "-c", run])
        prolog = self._settings.get("prolog", "")
        return "\n".join(
            [
                "#!/bin/bash -l",
                'export WHISTLE_BEFORE="$(env)"' if prolog else "",
                *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
                prolog,
                # From Slurm 22.05 on srun does not take it over from the job by itself: the step would get one.
                'if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"; fi',
                f"exec srun --export=ALL --kill-on-bad-exit=0 --wait=0 --output=none --error=none {python}",
                "",
            ]
        )

    def _ahead(self) -> float:
        """Seconds before the end of its time at which a runner is told. Slurm is early by up to a minute."""
        return float(self._settings.get("notice") or 0.0)

    def _run(self, *command: str, text: str = "", refused: bool = False) -> str:
        env = {**os.environ, **({"SLURM_CONF": self._settings["conf"]} if self._settings.get("conf") else {})}
        try:
            done = subprocess.run(command, input=text, env=env, capture_output=True, text=True, timeout=TIMEOUT)
        except FileNotFoundError as error:
            raise EngineUnreachable(f"{command[0]} is not installed on the server's machine.") from error
        except subprocess.TimeoutExpired as error:
            raise EngineUnreachable(f"Slurm does not answer: {command[0]} has taken {TIMEOUT:.0f} s.") from error
        except OSError as error:
            raise EngineUnreachable(f"Slurm does not answer: {command[0]}: {error}.") from error
        if done.returncode == 0:
            return done.stdout
        said = trouble_words(done.stderr or done.stdout)
        if refused and not any(words in done.stderr for words in _PASSES):
            raise Refused(f"Slurm does not take it: {said}")
        raise EngineUnreachable(f"{command[0]}: {said}")


def _by_job(found: Mapping[str, Job]) -> Mapping[JobId, Job]:
    return {JobId(name.removeprefix(NAME)): job for name, job in found.items()}


_REACH = (
    "Try `scontrol ping` on the server's machine, as the server's user: is slurmctld up, and slurm.conf the cluster's "
    "own? The pool's setting `conf` names another one"
)
_PASSES = ("Unable to contact", "timed out", "try again", "can't be reached")  # what sbatch says of a busy controller
_NAMED = ("partition", "constraint", "account", "qos")
