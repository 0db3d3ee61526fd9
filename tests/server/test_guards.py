"""Guards on a real server, with real programs that go wrong."""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.api import EventView, RunView

PROGRAM = Path(__file__).parent / "programs" / "guarded.py"


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


def train(
    server: ServerProcess, directory: Path, *guards: dict[str, Any], env: dict[str, Any] | None = None, **more: Any
) -> RunView:
    phase = {
        "name": "train",
        "command": [sys.executable, str(PROGRAM)],
        "env": {name: str(value) for name, value in (env or {}).items()},
        "checkpoint": {"every": "5 steps", "keep": 20},
        "guards": list(guards),
        **more,
    }
    return server.submit(phase, name="guarded", directory=directory)


def acts(client: Client, run: RunView) -> list[EventView]:
    return [event for event in client.events(run.id, limit=500) if event.kind == "guard"]


def trained(directory: Path, rank: int = 0) -> dict[int, list[int]]:
    """By attempt: the batches it trained on."""
    found: dict[int, list[int]] = defaultdict(list)
    for line in (directory / f"trained-{rank}").read_text().splitlines():
        attempt, _, batch = map(int, line.split())
        found[attempt].append(batch)
    return found


def test_a_nan_on_another_rank_is_rolled_back_behind_its_data_and_at_last_the_phase_stops_for_it(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    # Batch 23 first; after the roll-back batch 40, and then one more: the guard may act twice.
    env = {"BAD": "23,40,55", "BAD_RANK": 1, "LENGTH": 1000, "PACE": 0.03}
    guard = {"when": "non_finite", "do": "roll_back", "times": 2}
    run = train(server, tmp_path, guard, env=env, ranks=2, slots=2)
    view = server.wait(run.id)

    assert view.status == "completed", view.reason
    phase = view.phases[0]
    assert [(each.reason, each.resumed_from) for each in phase.attempts] == [
        ("guarded", None),
        ("guarded", 20),
        ("stopped", phase.attempts[2].resumed_from),
    ]
    (decisive,) = [each for each in phase.stop_reasons if each.decisive]
    assert decisive.reason == "non_finite_metric"
    assert "as often as it may" in decisive.text

    told = acts(client, run)
    assert [event.data["do"] for event in told] == ["roll_back", "roll_back", "stop"]
    assert {event.actor for event in told} == {"guard"}
    assert told[0].data["to"] == 20
    assert told[0].data["skip"] == [[20, 24]]

    # What was passed over was trained on by nobody after that, on either rank.
    for rank in (0, 1):
        seen = trained(tmp_path, rank)
        assert set(range(20, 24)).isdisjoint(seen[2])
        assert seen[2][0] == 24
        skipped = set(range(*told[1].data["skip"][0]))
        assert 40 in skipped
        assert skipped.isdisjoint(seen[3])

    # No checkpoint from behind a NaN counts as good.
    kept = client.checkpoints(run.id)
    bad = {1: 23, 2: 40 - 4}  # by attempt: the step of the NaN
    for each in kept:
        if each.attempt in bad:
            assert each.healthy == (each.step < bad[each.attempt]), each
    newest = next(each for each in kept if each.newest)
    assert newest.healthy
    assert newest.step < told[2].data["step"]


def test_a_nan_kills_the_run_where_the_spec_says_so_and_whistle_show_says_why(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    run = train(server, tmp_path, {"when": "non_finite", "do": "kill"}, env={"BAD": "12", "LENGTH": 100_000})
    view = server.wait(run.id)
    assert (view.status, view.reason) == ("killed", "killed by guard: non_finite")
    (finding,) = [each for each in view.phases[0].findings if each.cause == "non_finite"]
    assert (finding.metric, finding.step, finding.weight) == ("loss", 12, "fatal")
    (told,) = acts(client, run)
    assert "the run is killed" in told.text
    assert [event.data["cause"] for event in client.events(run.id) if event.kind == "finding"] == ["non_finite"]


def test_a_guard_in_dry_mode_and_one_that_tells_do_nothing_else(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    guards = ({"when": "non_finite", "do": "kill", "dry": True}, {"when": "non_finite", "do": "notify"})
    run = train(server, tmp_path, *guards, env={"BAD": "5", "LENGTH": 100_000})
    until(lambda: len(acts(client, run)) == 2, within=60, what="both guards to say something")
    client.stop(run.id)
    view = server.wait(run.id)
    assert view.status == "completed"
    assert [len(view.phases), len(view.phases[0].attempts)] == [1, 1]
    dry, notice = acts(client, run)
    assert "in dry mode, or else: the run is killed" in dry.text
    assert dry.data["dry"] is True
    assert notice.data["do"] == "notify"
    assert [each.data["cause"] for each in client.events(run.id) if each.kind == "finding"] == ["non_finite"]


def test_a_run_that_goes_wrong_again_and_again_is_started_again_as_often_as_it_may_and_then_fails(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    guard = {"when": "non_finite", "do": "restart", "times": 1}
    run = train(server, tmp_path, guard, env={"BAD": "8", "LENGTH": 100_000}, retries=5)
    view = server.wait(run.id)
    assert view.status == "failed"
    assert [each.reason for each in view.phases[0].attempts] == ["guarded", "guarded"]
    assert [event.data["do"] for event in acts(client, run)] == ["restart", "fail"]
    assert "started again 1 time, as often as it may" in (view.reason or "")
    assert view.cause == "a metric is no longer a number"


def test_a_program_that_hangs_is_started_again_from_its_checkpoint_and_finishes(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    env = {"BAD": "31", "HALT": 1, "LENGTH": 60, "PACE": 0.02, "WHISTLE_STUCK_AFTER": 2}
    run = train(server, tmp_path, {"when": "stuck", "do": "restart"}, env=env)
    view = server.wait(run.id)
    assert view.status == "completed", view.reason
    assert [each.reason for each in view.phases[0].attempts] == ["guarded", "finished"]
    assert view.phases[0].attempts[1].resumed_from == 30
    (told,) = acts(client, run)
    assert (told.data["do"], told.data["cause"]) == ("restart", "stuck")
    assert trained(tmp_path)[2] == list(range(30, 60))

    def over() -> list[str]:
        kinds = [event.kind for event in client.events(run.id, limit=500)]
        return kinds if "finding_over" in kinds else []

    kinds = until(over, what="the finding to be over")
    assert kinds.index("stuck") < kinds.index("finding") < kinds.index("guard") < kinds.index("finding_over")


def test_a_program_without_memory_is_not_started_again_whatever_retries_are_left(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    words = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15 GiB"
    )
    run = train(server, tmp_path, {"when": "oom", "do": "fail"}, env={"BAD": "3", "DIE": words}, retries=3)
    view = server.wait(run.id)
    assert (view.status, len(view.phases[0].attempts)) == ("failed", 1)
    assert view.cause == "the accelerator ran out of memory"
    assert "fails and is not tried again" in (view.reason or "")
    assert [event.data["cause"] for event in acts(client, run)] == ["device_memory"]


def test_the_guard_of_a_run_acts_once_though_the_server_is_killed_in_between(start_server: Any, tmp_path: Path) -> None:
    server: ServerProcess = start_server(slots=1)
    client = server.client()
    guard = {"when": "non_finite", "do": "roll_back", "times": 3}
    run = train(server, tmp_path, guard, env={"BAD": "12", "LENGTH": 100, "PACE": 0.03})
    until(lambda: acts(client, run), within=60, what="the guard to act")
    server.kill()
    server.start()
    view = server.wait(run.id)
    assert view.status == "completed"
    client = server.client()
    assert [event.data["do"] for event in acts(client, run)] == ["roll_back"]
    assert [each.reason for each in view.phases[0].attempts] == ["guarded", "finished"]
    assert sorted({batch for seen in trained(tmp_path).values() for batch in seen}) == list(range(100))
    assert set(range(10, 13)).isdisjoint(trained(tmp_path)[2])
