"""A storage that is away when an attempt starts, or that has lost something: the run goes on by itself."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from whistlestop.blobs.objects import Objects
from whistlestop.client import Client
from whistlestop.testing.proxy import FaultProxy
from whistlestop.testing.s3 import S3Server
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.api import RunView

ENV = {"STEPS": "120", "PACE": "0.03"}  # time enough to pause it


class Place:
    """A server whose bucket is behind a proxy."""

    def __init__(self, server: ServerProcess, proxy: FaultProxy, objects: Objects, programs: Path) -> None:
        self.server, self.proxy, self.objects, self._programs = server, proxy, objects, programs
        self.client: Client = server.client()

    def paused(self, **checkpoint: object) -> RunView:
        phase = {"name": "train", "command": [sys.executable, "train.py"], "env": ENV, **checkpoint}
        run = self.server.submit(phase, directory=self._programs)
        until(lambda: self.client.run(run.id).phases[0].progress.step > 25, what="some steps")
        self.client.pause(run.id)
        return self.server.wait(run.id, "waiting")


@pytest.fixture
def place(s3: S3Server, programs: Path, tmp_path: Path) -> Iterator[Place]:
    bucket = s3.bucket()
    with FaultProxy(s3.endpoint) as proxy:
        words = ["--checkpoints", f"s3://{bucket}", "--checkpoints-endpoint", proxy.endpoint]
        with ServerProcess(tmp_path / "server", extra=[*words, "--checkpoints-region", "us-east-1"]) as server:
            yield Place(server, proxy, Objects(f"s3://{bucket}", s3.options), programs)


def test_a_run_whose_storage_was_away_completes_from_its_checkpoint_by_itself(place: Place) -> None:
    client, run = place.client, place.paused()
    saved = client.checkpoints(run.id)[0].step
    place.proxy.refuse()
    client.resume(run.id)
    until(lambda: len(client.run(run.id).phases[0].attempts) > 2, within=60, what="a third attempt")
    place.proxy.listen()
    ended = place.server.wait(run.id, within=120)
    assert ended.status == "completed"
    first, away, *_, last = ended.phases[0].attempts
    assert (first.reason, away.reason, last.reason) == ("paused", "storage_away", "finished")
    assert "its checkpoints can't be reached" in (away.text or "")
    assert away.ended_at == away.started_at, "nothing ran, so nothing is charged"
    assert (last.resumed_from, last.last_step) == (saved, 120)
    kinds = [event.kind for event in client.events(run.id)]
    assert "checkpoint_fetched" in kinds, "the program started while it was on its way"
    assert kinds.count("storage_ready") == 2, "of those attempts that could reach it"


def test_a_run_whose_newest_checkpoint_is_damaged_goes_on_from_the_one_before_and_it_costs_no_retry(
    place: Place,
) -> None:
    client, run = place.client, place.paused(checkpoint={"every": "20 steps"})
    newest, older = (client.checkpoint(run.id, each.id) for each in client.checkpoints(run.id)[:2])
    (only,) = {file.sha256 for file in newest.files} - {file.sha256 for file in older.files}
    (name,) = [each.name for each in place.objects.all(run.id) if each.name.endswith(only)]
    place.objects.put(name, b"x" * place.objects.size(name))
    client.resume(run.id)
    ended = place.server.wait(run.id)
    assert ended.status == "completed"
    assert [each.reason for each in ended.phases[0].attempts] == ["paused", "checkpoint_damaged", "finished"]
    assert ended.phases[0].attempts[-1].resumed_from == older.step
    aside = [event for event in client.events(run.id) if event.kind == "checkpoint_set_aside"]
    assert {event.data["path"] for event in aside} == {newest.path}
