"""A runner that reaches nobody leaves in time; one that is heard of goes on."""

import asyncio
import sys
import time
from pathlib import Path

import pytest
from runner_kit import Kit, until

from whistlestop.domain.lease import MARGIN, leave_seconds
from whistlestop.runner.lease import Keeping, Lease, succeeds
from whistlestop.runner.notices import Kind, Notice


def test_a_lease_is_over_when_nobody_was_heard_for_as_long() -> None:
    lease = Lease(30, at=100)
    assert not lease.is_over(129.9)
    lease.renew(110)
    assert not lease.is_over(139.9)
    assert lease.is_over(140)


def test_a_renewal_that_comes_late_does_not_shorten_it() -> None:
    lease = Lease(30, at=100)
    lease.renew(120)
    lease.renew(110)
    assert not lease.is_over(149)


def test_the_cluster_is_asked_only_after_half_of_it_and_not_again_and_again() -> None:
    lease = Lease(30, at=100)
    times = [100 + tenth / 10 for tenth in range(400)]
    assert [at for at in times if lease.should_ask(at)] == [115, 118, 121, 124, 127]


def test_an_answer_of_the_cluster_counts_from_its_question() -> None:
    lease = Lease(30, at=100)
    assert lease.should_ask(115)
    lease.renew(115)
    assert not lease.should_ask(129.9)
    assert lease.should_ask(130)
    assert lease.is_over(145)


def test_everything_is_over_before_the_server_may_go_on() -> None:
    assert 0 < leave_seconds() < MARGIN


class Clock:
    at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.mark.parametrize(("witness", "goes_on"), [("true", True), ("false", False), ("no-such-command", False)])
def test_while_the_server_is_away_the_witness_decides(witness: str, goes_on: bool) -> None:
    clock, taken = Clock(), list[Notice]()
    keeping: Keeping

    async def days() -> None:
        nonlocal keeping
        keeping = Keeping(30, [witness], heard=lambda: 100.0, take=taken.append, clock=clock)
        for _ in range(100):
            clock.at += 15
            keeping.look()
            if keeping._asking is not None:
                await keeping._asking

    asyncio.run(days())
    assert keeping.over is not goes_on
    assert len(taken) == (0 if goes_on else 1)
    if taken:
        assert taken[0].kind is Kind.FINAL
        assert "Neither the server nor the cluster has answered for 30 s" in taken[0].text


def test_a_witness_that_hangs_says_nothing_and_is_ended_with_what_it_started(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    began = time.monotonic()
    assert not succeeds(["sh", "-c", f"(sleep 1.5; touch {alive}) & wait"], within=0.5)
    with pytest.raises(AssertionError):
        until(alive.exists, timeout=2.0 - (time.monotonic() - began))


STEPS = """
import time, whistlestop
with whistlestop.run() as run:
    state = {"steps": 0}
    run.track(state=state)
    for step in run.steps(total=100000):
        state["steps"] += 1
        time.sleep(0.01)
"""


def test_a_runner_that_reaches_nobody_saves_and_ends_its_program(kit: Kit) -> None:
    job = kit.launch(sys.executable, "-c", STEPS, lease=2.0, witness=["false"])
    until(lambda: any(each.step > 5 for each in kit.peer.progress), "steps")
    kit.peer.stop()
    until(lambda: not kit.alive(job), "the end of the program")
    kit.peer.start()
    ended = kit.ended()
    assert ended["reason"] == "preempted"
    assert ended["saved_step"] == ended["last_step"]
    assert "Neither the server nor the cluster" in ended["evidence"]


def test_a_runner_whose_cluster_counts_on_it_goes_on_without_the_server(kit: Kit, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    witness = ["sh", "-c", f"echo asked >>{asked}"]
    job = kit.launch(sys.executable, "-c", STEPS, lease=4.0, witness=witness)
    until(lambda: any(each.step > 5 for each in kit.peer.progress), "steps")
    assert not asked.exists()
    kit.peer.stop()
    until(lambda: asked.exists() and asked.read_text().count("asked") >= 3, "more than a lease")
    assert kit.alive(job)
    kit.peer.start()
    connected = len(kit.peer.hellos)
    until(lambda: len(kit.peer.hellos) > connected or kit.peer.progress[-1].at > time.time() - 1, "it to be back")
    assert "ended" not in kit.peer.kinds()


def test_a_runner_that_hears_the_server_renews_its_lease(kit: Kit) -> None:
    job = kit.launch("sleep", "1000", lease=2.0, witness=["false"], sample_every=1000.0)
    until(lambda: "program_started" in kit.peer.kinds(), "the program")
    seen = len(kit.peer.progress)
    until(lambda: len(kit.peer.progress) > seen + 10, "two leases' renewals")
    assert kit.alive(job)
    assert "ended" not in kit.peer.kinds()
