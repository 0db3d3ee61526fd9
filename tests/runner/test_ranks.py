"""A runner whose program is several ranks: what it says of their end."""

import importlib.util
import sys
import time

import pytest
from runner_kit import Kit, until

from whistlestop.domain.stops import Stop
from whistlestop.testing.missing import missing
from whistlestop.wire.frames import Order

RANKS = """
import os, subprocess, sys
if "RANK" in os.environ:
    import time, whistlestop
    with whistlestop.run() as run:
        run.track(rng=True)
        for step in run.steps():
            time.sleep(0.005)
            if step == 5 and os.environ["RANK"] == os.environ.get("DIES"):
                os.kill(os.getpid(), 9)
else:
    ranks = [
        subprocess.Popen([sys.executable, "-c", SOURCE], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3"})
        for rank in range(3)
    ]
    sys.exit(max(abs(rank.wait()) for rank in ranks))
"""
TRAIN = """
import time, whistlestop
with whistlestop.run() as run:
    run.track(rng=True)
    for step in run.steps():
        time.sleep(0.005)
"""


def ranks(kit: Kit, **env: str) -> None:
    source = RANKS.replace("SOURCE", repr(RANKS.replace("SOURCE", "''")))
    kit.python(source, env=env)


def test_a_rank_that_died_is_named_in_the_reason(kit: Kit) -> None:
    ranks(kit, DIES="2")
    ended = kit.ended()
    assert ended["reason"] == "code_raised"
    assert "rank 2 died first" in ended["evidence"]


@pytest.mark.parametrize("reason", ["paused", "preempted"])
def test_all_ranks_leave_together_and_the_checkpoint_holds_each(kit: Kit, reason: str) -> None:
    ranks(kit)
    until(lambda: "training" in kit.peer.kinds(), "the loop")
    orders = {
        "paused": Order(seq=1, stop=Stop.PAUSE),
        "preempted": Order(seq=1, preempt_deadline=time.time() + 20, preempt_why="it goes"),
    }
    kit.peer.send(orders[reason])
    ended = kit.ended()
    assert ended["reason"] == reason
    assert ended["saved_step"] == ended["last_step"] > 0


def test_torchrun_is_paused_though_it_takes_that_for_a_failure(kit: Kit) -> None:
    if importlib.util.find_spec("torch") is None:
        missing("torch is not installed")
    (kit.root / "work").mkdir(exist_ok=True)
    (kit.root / "work" / "train.py").write_text(TRAIN)
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1")
    kit.launch(sys.executable, *torchrun, "--master-port", "0", str(kit.root / "work" / "train.py"))
    until(lambda: "training" in kit.peer.kinds(), "the loop", 120)
    kit.peer.send(Order(seq=1, stop=Stop.PAUSE))
    until(kit.peer.ended, "the end", 60)
    ended = kit.ended()
    assert ended["reason"] == "paused", ended
    assert ended["saved_step"] == ended["last_step"] > 0
