"""What Slurm says of jobs and of nodes, and what it comes to for us. Pure: the commands are in slurm.py."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from whistlestop.domain.reasons import EndReason
from whistlestop.engines.base import JobState, JobStatus
from whistlestop.engines.slurm_words import ended_words, pending_words

FIELDS = ("JobID", "Name", "State", "NodeList", "PreemptTime", "RestartCnt", "Reason")  # the last may hold anything
FORMAT = ",".join(f"{field}:|" for field in FIELDS)
RECALLED = ("JobID", "JobName", "State", "NodeList")  # by sacct, of jobs that squeue has forgotten
_WAITS = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
# Completing: Slurm is not yet sure that nothing is left on the nodes, so we are not.
_LIVES = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})
_NODE_LOST = frozenset({"NODE_FAIL", "BOOT_FAIL"})
_TAKEN_BACK = frozenset({"PREEMPTED", "CANCELLED", "TIMEOUT", "DEADLINE", "REVOKED"})
_DOWN = ("down", "fail", "unknown", "power", "reboot", "perfctrs")  # what a node's state begins with
_WORKS = ("idle", "mixed", "allocated", "completing", "planned", "reserved")
_STUCK = "kill task failed"  # a node's reason: Slurm has given up on ending what is there
_RANGES = re.compile(r"([^\[\],]*)(?:\[([^\]]*)\])?([^\[\],]*)(?:,|$)")


@dataclass(frozen=True)
class Job:
    id: str
    name: str
    state: str  # one word
    hosts: str  # as Slurm writes them: n[1-2]
    preempted: bool = False
    restarts: int = 0
    reason: str = ""
    by: str = ""  # whoever cancelled it, where Slurm says so

    @property
    def is_over(self) -> bool:
        return self.state not in _WAITS and self.state not in _LIVES

    @property
    def is_ours(self) -> bool:
        """We have not asked for a second start: whoever did has ended the attempt by it."""
        return self.restarts == 0


def read_queue(answer: str) -> list[Job]:
    """The oldest first."""
    found = []
    for line in answer.splitlines():
        number, name, state, hosts, preempted, restarts, reason = (line.split("|") + [""] * len(FIELDS))[: len(FIELDS)]
        if restarts.isdigit():  # else it is somebody's who has our separator in its name
            said = preempted not in ("N/A", "")
            found.append(Job(number, name, state, hosts, said, int(restarts), reason.strip()))
    return sorted(found, key=_number)


def read_accounts(answer: str) -> list[Job]:
    """Of `sacct --parsable2`."""
    found = []
    for line in answer.splitlines():
        number, name, said, hosts = (line.split("|") + [""] * len(RECALLED))[: len(RECALLED)]
        state, _, more = said.partition(" ")  # CANCELLED by 1000
        found.append(Job(number, name, state.rstrip("+"), hosts, by=more.removeprefix("by ")))
    return sorted(found, key=_number)


def read_nodes(answer: str) -> set[str]:
    """Of `sinfo` with name, state and reason: those of which nobody can say that nothing is left there."""
    found = set()
    for line in answer.splitlines():
        name, state, why = [*line.strip().split("|", 2), "", ""][:3]
        if state.endswith("*") or state.startswith(_DOWN) or _STUCK in why.lower():
            found.add(name)
    return found


def usable(answer: str) -> tuple[list[str], list[str]]:
    """Of the same: nodes that take jobs now or later, and the others, each with its state and why."""
    found: dict[str, str] = {}  # a node may be in several partitions
    for line in answer.splitlines():
        name, state, why = [*line.strip().split("|", 2), "", ""][:3]
        works = state.rstrip("+") in _WORKS
        found[name] = "" if works else f"{name} ({state}{'' if why in ('', 'none') else f', {why}'})"
    return [name for name, words in found.items() if not words], [words for words in found.values() if words]


def status(job: Job | None, doubtful: Collection[str] = ()) -> JobStatus:
    """`doubtful`: names of nodes, as of `read_nodes`."""
    if job is None:
        return JobStatus(JobState.UNKNOWN)
    if not job.is_ours and not job.is_over:
        words = f"Slurm job {job.id} was requeued by somebody: that ends this attempt, and the next one is ours"
        return JobStatus(JobState.DEAD, words, reclaimed=True)
    if job.state in _WAITS:
        return JobStatus(JobState.PENDING, f"Slurm job {job.id}: {pending_words(job.reason)}")
    if job.state in _LIVES:
        return JobStatus(JobState.RUNNING, f"Slurm job {job.id} on {job.hosts}")
    words = f"Slurm says of job {job.id}: {ended_words(job.state, job.reason, job.by)}"
    if job.state == "COMPLETED":
        return JobStatus(JobState.ENDED, words)
    hosts = expand(job.hosts)
    lost = [host in doubtful for host in hosts]
    if job.state in _NODE_LOST and not any(lost):
        lost = [True] * max(1, len(hosts))  # one of them is back by now, and nobody says which
    taken = job.state in _TAKEN_BACK or job.preempted
    out_of_memory = job.state == "OUT_OF_MEMORY"
    return JobStatus(
        JobState.LOST if any(lost) else JobState.DEAD,
        words,
        reclaimed=taken,
        nodes=tuple(JobState.LOST if each else JobState.DEAD for each in lost) if len(lost) > 1 else (),
        reason=EndReason.OUT_OF_MEMORY if out_of_memory else None,
    )


def to_ask_about(jobs: Iterable[Job]) -> list[str]:
    """Hosts of those that are over, and not in good order: whether they are clean has to be asked."""
    asked = {host for job in jobs if job.is_over and job.state != "COMPLETED" for host in expand(job.hosts)}
    return sorted(asked)


def newest(jobs: Sequence[Job]) -> Mapping[str, Job]:
    """Of each name, out of those that are given with the oldest first: the newest of those that are over, unless one
    lives. Should Slurm have taken a job twice, it is the one that has begun, and the first of those."""
    found: dict[str, Job] = {}
    for job in jobs:
        before = found.get(job.name)
        if before is None or _rank(job) > _rank(before) or (before.is_over and job.is_over):
            found[job.name] = job
    return found


def superfluous(jobs: Sequence[Job]) -> list[Job]:
    """Taken twice: a submission that seemed to have failed had not, and was made again. One is enough. Of those that
    have begun none is named: only the server knows which it has let have the attempt (services/starts.py), and the one
    that it has refused leaves by itself."""
    chosen = newest(jobs)
    return [job for job in jobs if _rank(job) == 1 and job != chosen[job.name]]


def _rank(job: Job) -> int:
    return 2 if job.state in _LIVES else int(not job.is_over)


def expand(hosts: str) -> list[str]:
    """n[1-2,07-09],login as names, in Slurm's order."""
    found: list[str] = []
    for match in _RANGES.finditer(hosts.strip()):
        before, ranges, after = match.groups()
        if not match[0].strip(","):
            continue
        found += [f"{before}{each}{after}" for each in _numbers(ranges)] if ranges else [before + after]
    return [host for host in found if host not in ("(null)", "None assigned")]


def _numbers(ranges: str) -> list[str]:
    found = []
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        if last and first.isdigit() and last.isdigit():
            found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        else:
            found.append(each)
    return found


def _number(job: Job) -> int:
    digits = re.match(r"\d+", job.id)
    return int(digits[0]) if digits else 0
