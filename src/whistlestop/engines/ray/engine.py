"""Runners on a Ray cluster, as the scheduler sees them. Ray finds the nodes and keeps them for us (a placement group
for each attempt); our agents there start the runners, look at them and end them. All of it is done by a driver in a
process of its own: see process.py, and ADR 0025.
"""

import hashlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from whistlestop.engines import boot
from whistlestop.engines.base import Can, Cluster, JobId, JobState, JobStatus, Notice
from whistlestop.engines.ray.process import DriverProcess
from whistlestop.wire.launch import Launch, http_of

ACTING = 90.0  # seconds for all nodes of an attempt to end, and to prove it


class RayEngine:
    """`settings`: wire/pools.py, RaySettings."""

    def __init__(self, settings: Mapping[str, Any], driver: DriverProcess) -> None:
        self._settings, self._driver = settings, driver
        self.can = Can(prove_end=True, salvage=True, offers=True, tells=True, lease=float(settings.get("lease", 30.0)))

    def hear(self, news: Callable[[Sequence[str]], None]) -> None:
        """See DriverProcess. From now on it is there, and its nodes are made warm."""
        self._driver.hear(news)
        self._driver.begin()

    def launch(self, launch: Launch, secrets: Mapping[str, str]) -> JobId:
        """The secrets stay here: the nodes fetch them."""
        settings = self._settings
        order = {
            "attempt": launch.attempt_id,
            "nodes": launch.nodes,
            "share": len(launch.slots) // launch.nodes,
            "resource": settings.get("resource", ""),
            "labels": settings.get("labels", {}),
            "avoid": launch.avoid,
            "python": settings["python"],
            "boot": Path(boot.__file__).read_text(),
            "ticket": {
                "server": settings.get("url") or http_of(launch.server),
                "token": launch.token,
                "forgets": False,  # the agent looks at what is left, and takes it away when we say so
            },
        }
        self._driver.ask("launch", order=order)
        return JobId(launch.attempt_id)

    def poll(self, jobs: Collection[JobId]) -> Mapping[JobId, JobStatus]:
        answer = self._driver.ask("poll", jobs=list(jobs))
        return {job: _status(answer[job]) for job in jobs}

    def cancel(self, job: JobId) -> None:
        self._driver.ask("cancel", job=job, patience=ACTING)

    def salvage(self, job: JobId) -> None:
        self._driver.ask("salvage", job=job, patience=ACTING)

    def forget(self, job: JobId) -> None:
        self._driver.ask("forget", job=job, patience=ACTING)

    def cluster(self) -> Cluster:
        settings = self._settings
        said = self._driver.ask("cluster", labels=settings.get("labels", {}))
        left = f"{said['leaving']} more are drained" if said["leaving"] else ""
        return Cluster(f"Ray {said['version']}", int(said["nodes"]), left)

    def offers(self) -> int:
        """How many slots its nodes have now."""
        settings = self._settings
        return int(self._driver.ask("offers", resource=settings.get("resource", ""), labels=settings.get("labels", {})))


class Drivers:
    """One for all pools that are on one cluster alike. `data`: where each keeps what it has to know of its attempts;
    `package`: a directory with our package alone."""

    def __init__(self, data: Path, package: Path) -> None:
        self._data, self._package = data, package
        self._made: dict[tuple[str, ...], DriverProcess] = {}

    def of(self, settings: Mapping[str, Any]) -> DriverProcess:
        python = settings.get("driver") or sys.executable
        key = (python, settings["address"], settings["directory"], str(settings.get("warm", 600.0)))
        if key not in self._made:
            # By the cluster and the nodes' directory alone: what is running is found again by other settings, too.
            place = self._data / hashlib.sha256(" ".join(key[1:3]).encode()).hexdigest()[:12]
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            words = [python, "-s", "-P", "-m", "whistlestop.engines.ray.driver", *key[1:3], str(place), key[3]]
            self._made[key] = DriverProcess(words, package=self._package, log=place / "driver.log")
        return self._made[key]

    def close(self) -> None:
        for driver in self._made.values():
            driver.close()


def _status(said: Mapping[str, Any]) -> JobStatus:
    notice = Notice(float(said["leaves_at"]), str(said["why"])) if said.get("leaves_at") is not None else None
    return JobStatus(
        JobState(said["state"]),
        said.get("text", ""),
        nodes=tuple(JobState(each) for each in said.get("nodes", ())),
        notice=notice,
    )
