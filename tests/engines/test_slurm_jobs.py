"""What Slurm says, and what it comes to. The words are as Slurm 22.05 prints them."""

import pytest

from whistlestop.domain.reasons import EndReason
from whistlestop.engines.base import JobState
from whistlestop.engines.slurm_jobs import (
    Job,
    expand,
    newest,
    read_accounts,
    read_nodes,
    read_queue,
    status,
    superfluous,
    to_ask_about,
    usable,
)


def line(state: str, *, hosts: str = "n1", preempted: str = "N/A", restarts: int = 0, reason: str = "None") -> str:
    return f"7|whistle-a|{state}|{hosts}|{preempted}|{restarts}|{reason}   \n"


def job(state: str, **said: object) -> Job:
    return read_queue(line(state, **said))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "comes_to"),
    [
        ("PENDING", JobState.PENDING),
        ("CONFIGURING", JobState.PENDING),
        ("RUNNING", JobState.RUNNING),
        ("SUSPENDED", JobState.RUNNING),
        ("COMPLETING", JobState.RUNNING),  # the nodes are not proven clean yet
        ("COMPLETED", JobState.ENDED),
        ("FAILED", JobState.DEAD),
        ("CANCELLED", JobState.DEAD),
        ("NODE_FAIL", JobState.LOST),
    ],
)
def test_what_a_job_is(state: str, comes_to: JobState) -> None:
    assert status(job(state)).state is comes_to


@pytest.mark.parametrize(
    ("state", "reclaimed", "words"),
    [
        ("PREEMPTED", True, "a job of higher priority took its nodes (preempted)"),
        ("CANCELLED", True, "it was cancelled (scancel) (cancelled)"),
        ("TIMEOUT", True, "its time limit in Slurm was up (timeout)"),
        ("FAILED", False, "what Slurm started there ended with an error (failed)"),
        ("NODE_FAIL", False, "a node of it has failed (node fail)"),
    ],
)
def test_what_ended_a_job_is_told_apart(state: str, reclaimed: bool, words: str) -> None:
    found = status(job(state))
    assert found.reclaimed is reclaimed
    assert found.text == f"Slurm says of job 7: {words}"


def test_lack_of_memory_is_a_reason_of_its_own() -> None:
    assert status(job("OUT_OF_MEMORY")).reason is EndReason.OUT_OF_MEMORY


def test_one_that_failed_after_it_was_preempted_was_preempted() -> None:
    assert status(job("FAILED", preempted="2026-11-18T10:28:00")).reclaimed


def test_of_several_nodes_only_the_one_that_is_down_is_lost() -> None:
    found = status(job("NODE_FAIL", hosts="n[1-3]"), doubtful={"n2"})
    assert found.nodes == (JobState.DEAD, JobState.LOST, JobState.DEAD)
    assert found.state is JobState.LOST


def test_a_node_that_is_back_by_now_can_not_be_told_from_the_others() -> None:
    assert status(job("NODE_FAIL", hosts="n[1-2]")).nodes == (JobState.LOST, JobState.LOST)


def test_an_end_on_a_node_that_does_not_answer_is_not_proven() -> None:
    assert status(job("CANCELLED"), doubtful={"n1"}).state is JobState.LOST


def test_a_job_that_somebody_requeued_is_over_and_never_ours_again() -> None:
    for state in ("PENDING", "RUNNING", "COMPLETING"):
        found = status(job(state, restarts=1))
        assert (found.state, found.reclaimed) == (JobState.DEAD, True)
        assert "requeued by somebody" in found.text


def test_a_pending_one_says_why_in_words() -> None:
    assert status(job("PENDING", hosts="", reason="Resources")).text == "Slurm job 7: the nodes that it needs are busy"


@pytest.mark.parametrize(
    ("states", "counts", "ends"),
    [
        (["FAILED", "CANCELLED"], 1, []),
        (["FAILED", "PENDING"], 1, []),
        (["PENDING", "FAILED"], 0, []),
        (["PENDING", "PENDING"], 0, [1]),
        (["PENDING", "RUNNING"], 1, [0]),
        (["RUNNING", "PENDING", "FAILED"], 0, [1]),
        (["FAILED", "RUNNING", "RUNNING"], 1, []),  # the server may have let the second have the attempt
        (["RUNNING", "COMPLETING", "PENDING"], 0, [2]),
    ],
)
def test_of_jobs_that_slurm_took_twice_the_one_that_has_begun_counts_and_those_that_wait_end(
    states: list[str], counts: int, ends: list[int]
) -> None:
    said = [f"{number}|whistle-a|{state}|n1|N/A|0|None\n" for number, state in enumerate(states, 9)]
    jobs = read_queue("".join([*said, "3|whistle-b|RUNNING|n1|N/A|0|None\n"]))
    assert newest(jobs)["whistle-a"].id == str(9 + counts)
    assert [int(job.id) - 9 for job in superfluous(jobs)] == ends


def test_a_job_of_somebody_with_a_strange_name_confuses_nobody() -> None:
    assert [each.name for each in read_queue("8|a|b|RUNNING|n1|N/A|0|None\n" + line("RUNNING"))] == ["whistle-a"]


def test_accounts_say_who_cancelled_it() -> None:
    (found,) = read_accounts("7|whistle-a|CANCELLED by 1000|n[1-2]\n")
    assert "by user 1000" in status(found).text
    assert status(found).state is JobState.DEAD


def test_nodes_of_which_nobody_knows_whether_they_are_clean() -> None:
    said = (
        "n1|idle|none\nn2|down*|Not responding\nn3|drained|Kill task failed\nn4|drained|new disk\nn5|allocated*|none\n"
    )
    assert read_nodes(said) == {"n2", "n3", "n5"}


def test_nodes_that_can_be_used_and_what_is_with_the_others() -> None:
    said = (
        "n1|idle|none\nn1|idle|none\nn2|down*|Not responding\nn3|mixed|none\nn4|drained|new disk\nn5|allocated*|none\n"
    )
    nodes, unfit = usable(said)
    assert nodes == ["n1", "n3"]
    assert unfit == ["n2 (down*, Not responding)", "n4 (drained, new disk)", "n5 (allocated*)"]


def test_only_the_hosts_of_bad_ends_are_asked_about() -> None:
    assert to_ask_about([job("RUNNING"), job("COMPLETED"), job("NODE_FAIL", hosts="n[2-3]")]) == ["n2", "n3"]


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[1,07-09],login", ["n1", "n07", "n08", "n09", "login"]),
        ("r[1-2]-ib,x", ["r1-ib", "r2-ib", "x"]),
        ("", []),
        ("(null)", []),
    ],
)
def test_a_list_of_hosts_as_slurm_writes_it(hosts: str, names: list[str]) -> None:
    assert expand(hosts) == names
