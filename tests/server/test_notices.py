"""A pool that says that its capacity goes, on a real server."""

import json
import sys
from pathlib import Path

from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

LOOP = """
import time, whistlestop
with whistlestop.run() as run:
    state = {"steps": 0}
    run.track(state=state)
    for step in run.steps():
        state["steps"] += 1
        time.sleep(0.005)
"""
POOLS = """
pools:
- {{name: local, slots: 0}}
- {{name: spot, market: spot, slots: 1, price: 0.1, notices: {{file: "{notice}"}}}}
- {{name: safe, slots: 1, price: 1, hosts: [{{name: rack-7, slots: 1}}]}}
"""


def test_a_run_leaves_a_pool_that_gives_notice_and_goes_on_at_the_same_step(tmp_path: Path) -> None:
    notice = tmp_path / "notice"
    with ServerProcess(tmp_path / "server", slots=1) as server, server.client() as client:
        client.apply_pools(POOLS.format(notice=notice))
        run = server.submit({"name": "train", "command": [sys.executable, "-c", LOOP]}, directory=tmp_path).id
        until(lambda: client.run(run).phases[0].progress.step > 5, what="steps")
        notice.write_text(json.dumps({"in_seconds": 20, "text": "the rack is switched off"}))
        until(lambda: len(client.run(run).phases[0].attempts) == 2, what="the next attempt")
        events = {event.kind: event for event in client.events(run)}
        until(lambda: "training" in [event.kind for event in client.events(run) if event.attempt == 2], what="its loop")
        first, second = client.run(run).phases[0].attempts
        client.kill(run)
        server.wait(run)
        started = [event for event in client.events(run) if event.kind == "program_started"][-1]
        assert server.complaints() == []
    assert (first.pool, first.reason, second.pool, second.host) == ("spot", "preempted", "safe", "rack-7")
    assert events["notice"].text.startswith("the rack is switched off, in ")
    assert "the rack is switched off; the program left at its next step" in events["ended"].text
    assert f"from the checkpoint at step {first.last_step}" in started.text
