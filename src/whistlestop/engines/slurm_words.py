"""What Slurm says, for people who do not know it by heart."""

_PENDING = {
    "None": "it has not been looked at yet",
    "Resources": "the nodes that it needs are busy",
    "Priority": "others are before it in the partition's queue",
    "BeginTime": "it may not begin yet",
    "Dependency": "it depends on another job",
    "JobHeldUser": "somebody holds it back (scontrol release)",
    "JobHeldAdmin": "an administrator holds it back",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is switched off",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows",
    "PartitionTimeLimit": "it asks for more time than the partition allows",
    "BadConstraints": "no node is as the pool's constraint asks for",
    "AssocGrpCpuLimit": "the account has used up its CPUs",
    "AssocGrpGRES": "the account has used up its GPUs",
    "AssocMaxJobsLimit": "the account may not have more jobs at once",
    "QOSMaxJobsPerUserLimit": "the QOS allows no more jobs of this user at once",
    "QOSMaxCpuPerUserLimit": "the QOS allows this user no more CPUs",
    "QOSMaxGRESPerUser": "the QOS allows this user no more GPUs",
    "Licenses": "a licence that it needs is taken",
    "ReqNodeNotAvail": "a node that it needs is not available",
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": (
        "the nodes that it needs are down, drained or reserved"
    ),
}


_ENDED = {
    "COMPLETED": "it has ended",
    "CANCELLED": "it was cancelled (scancel)",
    "PREEMPTED": "a job of higher priority took its nodes",
    "TIMEOUT": "its time limit in Slurm was up",
    "DEADLINE": "its deadline in Slurm was up",
    "OUT_OF_MEMORY": "it used more memory than Slurm had given it",
    "NODE_FAIL": "a node of it has failed",
    "BOOT_FAIL": "a node of it could not be started",
    "FAILED": "what Slurm started there ended with an error",
}
_NO_REASON = ("", "None", "NonZeroExitCode", "RaisedSignal")


def pending_words(reason: str) -> str:
    """Why a job has not begun, in words; Slurm's own where we have none."""
    bare = reason.strip().strip("()")
    name = bare.partition(",")[0]
    return _PENDING.get(bare) or _PENDING.get(name) or bare


def ended_words(state: str, reason: str = "", by: str = "") -> str:
    """How a job has ended, in words and in Slurm's own."""
    words = _ENDED.get(state, "it has ended")
    own = state.lower().replace("_", " ")
    who = f", by user {by}" if by else ""
    why = f", {reason}" if reason not in _NO_REASON and reason.split(":")[0] not in _NO_REASON else ""
    return f"{words}{who} ({own}{why})"


def trouble_words(stderr: str) -> str:
    """The last thing that a command of Slurm's complained of, without its prefixes."""
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    if not lines:
        return "it failed without a word"
    return lines[-1].partition(": error: ")[2] or lines[-1]
