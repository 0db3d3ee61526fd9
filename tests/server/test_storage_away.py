"""A storage that is away when an attempt starts: the run waits for it, and goes on from its checkpoint by itself."""

import sys
from pathlib import Path

from whistlestop.testing.proxy import FaultProxy
from whistlestop.testing.s3 import S3Server
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until


def test_a_run_whose_storage_was_away_completes_from_its_checkpoint_by_itself(
    s3: S3Server, programs: Path, tmp_path: Path
) -> None:
    with FaultProxy(s3.endpoint) as proxy:
        words = ["--checkpoints", f"s3://{s3.bucket()}", "--checkpoints-endpoint", proxy.endpoint]
        with ServerProcess(tmp_path / "server", extra=[*words, "--checkpoints-region", "us-east-1"]) as server:
            client = server.client()
            phase = {"name": "train", "command": [sys.executable, "train.py"], "env": {"STEPS": "60"}}
            run = server.submit(phase, directory=programs)
            until(lambda: client.run(run.id).phases[0].progress.step > 3, what="some steps")
            client.pause(run.id)
            server.wait(run.id, "waiting")
            saved = client.checkpoints(run.id)[0].step
            proxy.refuse()
            client.resume(run.id)
            until(lambda: len(client.run(run.id).phases[0].attempts) > 2, within=60, what="a third attempt")
            proxy.listen()
            ended = server.wait(run.id, within=120)
            assert ended.status == "completed"
            first, away, *_, last = ended.phases[0].attempts
            assert (first.reason, away.reason, last.reason) == ("paused", "storage_away", "finished")
            assert "its checkpoints can't be reached" in (away.text or "")
            assert away.ended_at == away.started_at, "nothing ran, so nothing is charged"
            assert (last.resumed_from, last.last_step) == (saved, 60)
            kinds = [event.kind for event in client.events(run.id)]
            assert "checkpoint_fetched" in kinds, "the program started while it was on its way"
            assert kinds.count("storage_ready") == 2, "of those attempts that could reach it"
