"""The seam between the scheduler and what runs runners. Differences are capability flags, never names."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType, Protocol

from whistlestop.domain.reasons import EndReason
from whistlestop.wire.launch import Launch

JobId = NewType("JobId", str)


class JobState(StrEnum):
    UNKNOWN = "unknown"  # the engine has never heard of it, or has nothing left of it
    PENDING = "pending"  # accepted, not started
    RUNNING = "running"  # its runner lives
    ENDED = "ended"  # the runner left in good order: its last words are in its journal
    DEAD = "dead"  # the runner died without a word; the program may still live
    LOST = "lost"  # so has its host, by the cluster's word: nobody can look there


@dataclass(frozen=True)
class Notice:
    """The cluster says beforehand that it takes a node back."""

    at: float  # Unix time by which everything has to be gone; 0: nobody said when
    text: str  # for people


@dataclass(frozen=True)
class JobStatus:
    state: JobState
    text: str = ""  # for people: what a pending one waits for, what a dead one died of
    reclaimed: bool = False  # of a dead one: its capacity was taken back
    notice: Notice | None = None  # of a running one: its capacity goes
    reason: EndReason | None = None  # of a dead one: what it died of, where the cluster proves more than that
    nodes: tuple[JobState, ...] = ()  # each node's, where an attempt has several; empty: all are like the job

    def of(self, node: int) -> JobState:
        return self.nodes[node] if node < len(self.nodes) else self.state


@dataclass(frozen=True)
class Can:
    """What an engine can promise."""

    prove_end: bool  # DEAD and ENDED are proof that the runner is gone; without it a lease has to run out
    salvage: bool  # `salvage` works: a dead runner's tree is ended and its journals are shipped
    offers: bool = False  # it tells how many slots there are: see Offering
    tells: bool = False  # it tells how its cluster is: see Telling
    lease: float = 0.0  # seconds after which a runner that reaches neither server nor cluster has ended by itself


@dataclass(frozen=True)
class Cluster:
    """That it can be reached, and what it has for a pool now."""

    version: str
    nodes: int  # that can be used: they answer, and are not to go
    text: str = ""  # for people: what is in the way of more


class Telling(Protocol):
    def cluster(self) -> Cluster:
        """Raise EngineUnreachable, in words that say what to do about it."""


class Offering(Protocol):
    def offers(self) -> int:
        """Slots that the pool's nodes have now, free or not."""


class Engine(Protocol):
    can: Can

    def launch(self, launch: Launch, secrets: Mapping[str, str]) -> JobId:
        """Hand the attempt over under launch.attempt_id. Launching one that already lives, or has ended, changes
        nothing. Raise EngineUnreachable if it may work later."""

    def poll(self, jobs: Collection[JobId]) -> Mapping[JobId, JobStatus]:
        """All jobs in one question: clusters punish one call per job."""

    def cancel(self, job: JobId) -> None:
        """End the runner and everything below it, without grace. Cancelling a job that is gone is not an error."""

    def salvage(self, job: JobId) -> None:
        """Start a runner for a dead one: it ends what is left of the tree, proves it, ships what was not shipped,
        and reports the end. Does nothing while a runner lives."""

    def forget(self, job: JobId) -> None:
        """Remove what the engine keeps of an ended job. The server has everything it wants."""
