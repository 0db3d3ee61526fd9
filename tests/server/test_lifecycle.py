"""The whole life of runs, with real programs under a real server."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from whistlestop.client import Client
from whistlestop.domain.errors import NoCheckpoint, NotATrainPhase, NotFound, PhaseEnded, RunActive, RunEnded
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.watchers import alive_with


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


@pytest.fixture
def one_slot(server: ServerProcess, client: Client) -> Iterator[ServerProcess]:
    client.set_pool("local", slots=1)
    yield server
    client.set_pool("local", slots=2)


@pytest.fixture
def dear(one_slot: ServerProcess, client: Client) -> Iterator[ServerProcess]:
    """A credit a second."""
    (before,) = [pool.price for pool in client.pools() if pool.name == "local"]
    client.set_pool("local", price=3600)
    yield one_slot
    client.set_pool("local", price=before)


def train(name: str = "train", steps: int = 100_000, **extra: Any) -> dict[str, Any]:
    env = {"STEPS": str(steps), **extra.pop("env", {})}
    return {"name": name, "command": [sys.executable, "train.py"], "env": env, **extra}


def task(name: str, *command: str, **extra: Any) -> dict[str, Any]:
    return {"name": name, "kind": "task", "command": list(command) or ["true"], **extra}


def steps_done(client: Client, run: str, phase: int = 0) -> int:
    return client.run(run).phases[phase].progress.step


def trains(client: Client, run: str, more_than: int = 3, phase: int = 0) -> None:
    until(lambda: steps_done(client, run, phase) > more_than, what=f"more than {more_than} steps")


def test_a_stopped_phase_keeps_its_result_and_the_pipeline_goes_on(
    server: ServerProcess, client: Client, programs: Path
) -> None:
    use = task("synthesis", sys.executable, "use.py", "train")
    run = server.submit(train(), use, directory=programs)
    trains(client, run.id)
    answer = client.stop(run.id, note="good enough")
    assert answer.changed
    ended = server.wait(run.id)
    first = ended.phases[0]
    assert ended.status == "completed"
    assert [(item.reason, item.decisive) for item in first.stop_reasons] == [("manually_stopped", True)]
    assert first.status == "completed"
    newest = client.checkpoints(run.id)[0]
    assert newest.step == first.attempts[-1].last_step
    assert any(newest.path in text for text in server.logs(run.id) if newest.path)
    assert ended.note == "good enough"


def test_a_stop_for_a_phase_that_has_not_begun_is_applied_when_it_begins(
    server: ServerProcess, client: Client, programs: Path
) -> None:
    run = server.submit(train("first"), train("second"), task("report"), directory=programs)
    trains(client, run.id)
    answer = client.stop(run.id, phase="second")
    assert "as soon as it does" in answer.text
    assert client.run(run.id).phases[1].stop_requested
    assert client.run(run.id).phases[0].status == "running"
    client.stop(run.id, phase="first")
    ended = server.wait(run.id)
    assert [phase.status for phase in ended.phases] == ["completed"] * 3
    assert ended.phases[1].stop_reasons[0].reason == "manually_stopped"
    assert (ended.phases[1].attempts[0].last_step or 0) <= 2
    assert [item.phase for item in client.checkpoints(run.id)].count("second") == 1


def test_a_stop_that_makes_no_sense_is_refused_with_a_sentence_of_its_own(
    server: ServerProcess, client: Client, programs: Path
) -> None:
    run = server.submit(train(steps=5), task("slow", "sleep", "600"), directory=programs)
    until(lambda: client.run(run.id).phases[1].status == "running", what="the task to run")
    with pytest.raises(NotATrainPhase, match="is a task"):
        client.stop(run.id, phase="slow")
    with pytest.raises(PhaseEnded, match="has already completed"):
        client.stop(run.id, phase="train")
    with pytest.raises(NotFound, match="no phase trian"):
        client.stop(run.id, phase="trian")
    client.kill(run.id)
    server.wait(run.id, "killed")
    with pytest.raises(RunEnded, match="was killed"):
        client.stop(run.id, phase="train")


def test_asking_twice_is_the_same_as_asking_once(server: ServerProcess, client: Client, programs: Path) -> None:
    run = server.submit(train(env={"PACE": "0.05"}), directory=programs)
    trains(client, run.id)
    assert client.pause(run.id).changed
    assert not client.pause(run.id).changed
    server.wait(run.id, "waiting")
    assert not client.pause(run.id).changed
    assert client.kill(run.id).changed
    server.wait(run.id, "killed")
    with pytest.raises(RunEnded, match="was killed"):
        client.kill(run.id)


def test_pause_saves_and_frees_the_slots_and_resume_goes_on_at_that_step(
    one_slot: ServerProcess, client: Client, programs: Path
) -> None:
    server = one_slot
    run = server.submit(train(), directory=programs)
    waiting = server.submit(task("other"), name="other")
    trains(client, run.id)
    assert client.run(waiting.id).status == "queued"
    client.pause(run.id)
    paused = server.wait(run.id, "waiting")
    assert paused.phases[0].status == "pending"
    assert not alive_with(f"WHISTLE_RUN={run.id}")
    assert server.wait(waiting.id).status == "completed", "the slot was not freed"
    saved = client.checkpoints(run.id)[0].step
    assert saved == paused.phases[0].attempts[0].last_step
    client.resume(run.id)
    trains(client, run.id, saved + 3)
    client.stop(run.id)
    ended = server.wait(run.id)
    assert ended.phases[0].attempts[1].resumed_from == saved
    weights = client.metrics(run.id, ["weight"]).series[0].points
    assert [step for step, _, _ in weights] == list(range(len(weights)))
    assert [value for _, value, _ in weights] == [float(step + 1) for step in range(len(weights))]


def test_pause_from_the_latest_checkpoint_says_what_is_lost_and_needs_one(
    server: ServerProcess, client: Client, programs: Path
) -> None:
    bare = server.submit(train(), directory=programs, name="bare")
    trains(client, bare.id)
    with pytest.raises(NoCheckpoint, match="would lose all"):
        client.pause(bare.id, checkpoint="latest")
    client.kill(bare.id)
    saves = server.submit(train(checkpoint={"every": "5 steps"}), directory=programs, name="saves")
    until(lambda: client.checkpoints(saves.id), what="a checkpoint")
    assert "steps since the checkpoint at step" in client.pause(saves.id, checkpoint="latest").text
    server.wait(saves.id, "waiting")
    newest = client.checkpoints(saves.id)[0].step
    client.resume(saves.id)
    until(lambda: len(client.run(saves.id).phases[0].attempts) == 2, what="the second attempt")
    until(lambda: client.run(saves.id).phases[0].attempts[1].resumed_from == newest, what="the checkpoint")


def test_a_paused_program_without_checkpoint_is_not_silently_started_again(
    server: ServerProcess, client: Client
) -> None:
    phase = {"name": "main", "command": ["sleep", "600"], "grace": {"attach": "0s", "interrupt": "5s"}}
    run = server.submit(phase)
    server.wait(run.id, "running")
    client.pause(run.id)
    server.wait(run.id, "waiting")
    with pytest.raises(NoCheckpoint, match="start at step 0"):
        client.resume(run.id)
    assert client.resume(run.id, from_start=True).changed
    until(lambda: len(client.run(run.id).phases[0].attempts) == 2, what="the second attempt")


def test_a_queued_run_can_be_paused_resumed_and_killed(one_slot: ServerProcess, client: Client) -> None:
    server = one_slot
    server.submit(task("long", "sleep", "600"), name="long")
    queued = server.submit(task("next"), name="next")
    assert client.run(queued.id).queue is not None
    client.pause(queued.id)
    server.wait(queued.id, "waiting")
    client.resume(queued.id)
    assert server.wait(queued.id, "queued").status == "queued"
    client.kill(queued.id)
    killed = server.wait(queued.id, "killed")
    assert killed.credits.used == 0


def test_a_kill_is_proven_recorded_and_leaves_history(server: ServerProcess, client: Client, programs: Path) -> None:
    run = server.submit(train(checkpoint={"every": "5 steps"}), directory=programs)
    until(lambda: client.checkpoints(run.id), what="a checkpoint")
    client.kill(run.id, note="wrong data")
    killed = server.wait(run.id, "killed")
    assert not alive_with(f"WHISTLE_RUN={run.id}")
    attempt = killed.phases[0].attempts[0]
    assert (attempt.status, attempt.reason) == ("aborted", "killed")
    assert killed.note == "wrong data"
    kinds = {event.kind: event for event in client.events(run.id)}
    assert kinds["kill_requested"].actor == "local"
    assert kinds["kill_requested"].at <= kinds["run_killed"].at
    assert any("proven gone" in text for text in server.logs(run.id))
    assert client.metrics(run.id, ["loss"]).series[0].points
    assert client.checkpoints(run.id), "a run killed by mistake can be continued"
    with pytest.raises(RunEnded):
        client.resume(run.id)


def test_cancel_discards_the_checkpoints(server: ServerProcess, client: Client, programs: Path) -> None:
    run = server.submit(train(checkpoint={"every": "5 steps"}), directory=programs)
    until(lambda: client.checkpoints(run.id), what="a checkpoint")
    path = Path(client.checkpoints(run.id)[0].path or "")
    client.cancel(run.id)
    server.wait(run.id, "killed")
    assert client.checkpoints(run.id) == []
    until(lambda: not path.exists(), what="the files to be gone")
    with pytest.raises(NoCheckpoint):
        client.continue_run(run.id)


def test_only_ended_runs_are_deleted_and_then_with_all_they_stored(
    server: ServerProcess, client: Client, programs: Path
) -> None:
    run = server.submit(train(), directory=programs)
    trains(client, run.id)
    with pytest.raises(RunActive, match="kill it first"):
        client.delete(run.id)
    client.stop(run.id)
    server.wait(run.id)
    (attempt,) = client.run(run.id).phases[0].attempts
    directories = [server.data / "runs" / run.id, server.data / "attempts" / attempt.id]
    assert directories[0].exists()
    client.delete(run.id)
    with pytest.raises(NotFound):
        client.run(run.id)
    until(lambda: not any(path.exists() for path in directories), what="the files to be gone")


def test_a_killed_run_is_continued_as_a_new_one_with_its_lineage(
    server: ServerProcess, client: Client, programs: Path
) -> None:
    run = server.submit(train(checkpoint={"every": "5 steps"}), task("report"), directory=programs)
    until(lambda: client.checkpoints(run.id), what="a checkpoint")
    client.kill(run.id)
    server.wait(run.id, "killed")
    step = client.checkpoints(run.id)[0].step
    child = client.continue_run(run.id, sets=[f"phases.0.env.STEPS={step + 5}"])
    assert child.parent is not None
    assert (child.parent.run, child.parent.step) == (run.id, step)
    ended = server.wait(child.id)
    assert ended.status == "completed", ended.reason
    assert ended.phases[0].attempts[0].resumed_from == step
    assert ended.phases[0].attempts[0].last_step == step + 5
    with pytest.raises(NoCheckpoint, match="no checkpoint at step 1"):
        client.continue_run(run.id, step=1)


def test_continuing_a_later_phase_takes_over_what_earlier_ones_made(
    server: ServerProcess, client: Client, programs: Path
) -> None:
    use = task("use", sys.executable, "use.py", "first")
    run = server.submit(train("first", steps=5), train("second", steps=5), use, directory=programs)
    server.wait(run.id, "completed")
    child = client.continue_run(run.id, sets=["phases.second.env.STEPS=9"])
    ended = server.wait(child.id)
    assert ended.status == "completed", ended.reason
    assert [len(phase.attempts) for phase in ended.phases] == [0, 1, 1]
    assert ended.phases[1].attempts[0].resumed_from == 5


def test_rerun_is_independent_and_keeps_the_exact_configuration(
    server: ServerProcess, client: Client, programs: Path
) -> None:
    run = server.submit(train(steps=5), directory=programs)
    server.wait(run.id, "completed")
    again = client.rerun(run.id, sets=["phases.0.env.STEPS=7"])
    ended = server.wait(again.id, "completed")
    assert ended.phases[0].attempts[0].last_step == 7
    assert ended.spec is not None
    assert "7" in ended.spec
    first = client.run(run.id)
    assert first.spec is not None
    assert first.spec != ended.spec


def test_a_failing_program_is_retried_as_the_spec_says_and_resumes(
    server: ServerProcess, client: Client, programs: Path, tmp_path: Path
) -> None:
    shutil.copytree(programs, tmp_path / "code")
    phase = train(steps=20, retries=1, checkpoint={"every": "5 steps"}, env={"FAIL_AT": "12"})
    run = server.submit(phase, directory=tmp_path / "code")
    ended = server.wait(run.id)
    assert ended.status == "completed", ended.reason
    first, second = ended.phases[0].attempts
    assert (first.status, first.reason) == ("failed", "code_raised")
    assert "the loss went away" in (first.text or "")
    assert second.resumed_from == 10
    assert [point[0] for point in client.metrics(run.id, ["loss"]).series[0].points] == list(range(20))


def test_without_retries_the_run_fails_and_names_the_cause(server: ServerProcess, client: Client) -> None:
    run = server.submit(task("bad", "bash", "-c", "echo about to break; exit 3"), task("never"))
    ended = server.wait(run.id)
    assert ended.status == "failed"
    assert "bad" in (ended.reason or "")
    assert [phase.status for phase in ended.phases] == ["failed", "skipped"]
    assert ended.phases[0].attempts[0].exit_code == 3


def test_a_command_that_does_not_exist_fails_at_once_with_words(server: ServerProcess) -> None:
    run = server.submit(task("bad", "no-such-program-anywhere", retries=3))
    ended = server.wait(run.id)
    assert ended.phases[0].attempts[0].reason == "command_not_found"
    assert len(ended.phases[0].attempts) == 1
    assert "no-such-program-anywhere" in (ended.reason or "")


def test_a_program_that_ignores_the_stop_climbs_the_ladder_in_sight(server: ServerProcess, client: Client) -> None:
    script = "trap '' INT TERM; echo up; while true; do sleep 0.05; done"
    grace = {"flag": "0s", "attach": "0s", "interrupt": 0.3, "terminate": 0.3}
    run = server.submit({"name": "main", "command": ["bash", "-c", script], "grace": grace})
    until(lambda: "up" in server.logs(run.id), what="the program")
    client.stop(run.id)
    ended = server.wait(run.id)
    rungs = [event.data["rung"] for event in client.events(run.id) if event.kind == "rung"]
    assert rungs == ["flag", "interrupt", "terminate", "kill"]
    assert ended.phases[0].attempts[0].reason == "stop_unanswered"


def test_a_time_limit_stops_training_with_its_result(server: ServerProcess, client: Client, programs: Path) -> None:
    run = server.submit(train(time_limit="3s"), directory=programs)
    ended = server.wait(run.id)
    assert ended.status == "completed", ended.reason
    assert ended.phases[0].stop_reasons[0].reason == "time_limit"
    assert client.checkpoints(run.id)


def test_a_budget_stops_training_with_its_result_and_is_not_overrun(
    dear: ServerProcess, client: Client, programs: Path
) -> None:
    server = dear
    run = server.submit(train(), directory=programs, budget=4)
    ended = server.wait(run.id)
    assert ended.phases[0].stop_reasons[0].reason == "budget_exhausted"
    assert client.checkpoints(run.id)
    assert 1 < ended.credits.used <= 4


def test_a_run_killed_after_a_fifth_has_used_a_fifth_and_saved_the_rest(
    dear: ServerProcess, client: Client, programs: Path
) -> None:
    run = dear.submit(train(steps=1000), directory=programs)

    def fifth() -> bool:
        cost = client.run(run.id).credits
        return cost.estimated is not None and cost.used > cost.estimated / 5

    until(fifth, what="a fifth of it to be used")
    client.kill(run.id)
    ended = dear.wait(run.id, "killed").credits
    assert ended.estimated is not None
    assert ended.saved is not None
    assert ended.used + ended.saved == pytest.approx(ended.estimated)
    assert ended.estimated / 5 < ended.used < ended.estimated
    again = client.run(run.id).credits
    assert again.used == ended.used, "the meter stands"
    assert sum(again.kinds.values()) == pytest.approx(ended.used)
    assert {"starting", "productive", "stopping"} <= set(again.kinds)


def test_the_ledger_adds_up_over_attempts(start_server: Callable[..., ServerProcess], programs: Path) -> None:
    server = start_server(slots=1, extra=["--price", "3600"])  # a credit a second
    client = server.client()
    run = server.submit(train(), directory=programs)
    trains(client, run.id)
    client.pause(run.id)
    server.wait(run.id, "waiting")
    paid = client.run(run.id).credits.used
    assert client.run(run.id).credits.used == paid, "the meter runs on while it waits"
    client.resume(run.id)
    until(lambda: len(client.run(run.id).phases[0].attempts) == 2, what="the second attempt")
    trains(client, run.id, client.checkpoints(run.id)[0].step + 20)
    client.kill(run.id)
    ended = server.wait(run.id, "killed")
    attempts = ended.phases[0].attempts
    assert ended.credits.used == pytest.approx(sum(attempt.credits for attempt in attempts))
    assert ended.credits.used == pytest.approx(ended.elapsed_s, abs=0.01)
    assert ended.credits.saved is not None
    assert ended.credits.saved > 0


def test_the_queue_is_served_by_priority_then_first_come_and_says_what_it_waits_for(
    one_slot: ServerProcess, client: Client
) -> None:
    server = one_slot
    blocker = server.submit(task("block", "sleep", "600"), name="blocker")
    server.wait(blocker.id, "running")
    low = [server.submit(task("t"), name=f"low{index}") for index in range(2)]
    high = server.submit(task("t"), name="high", priority=10)
    order = [view.name for view in client.queue()]
    assert order == ["high", "low0", "low1"]
    place = client.run(low[1].id).queue
    assert place is not None
    assert (place.position, place.waits_for) == (3, "1 slot of pool local: 0 of 1 free, behind 2 others")
    client.kill(blocker.id)
    ends = [server.wait(run.id, "completed").started_at or "" for run in (high, *low)]
    assert ends == sorted(ends)


def test_a_phase_that_can_never_fit_is_refused_at_submit(server: ServerProcess) -> None:
    from whistlestop.domain.errors import NeverFits

    with pytest.raises(NeverFits, match="asks for 64 slots"):
        server.submit(task("wide", slots=64))


def test_startup_stages_are_visible(server: ServerProcess, client: Client, programs: Path) -> None:
    run = server.submit(train(), directory=programs)
    trains(client, run.id)
    assert client.run(run.id).phases[0].attempts[0].stage == "training"
    until(lambda: "training" in server.events(run.id), what="the runner's word")
    stages = ["submitted", "placed", "preparing", "program_started", "training"]
    assert [kind for kind in server.events(run.id) if kind in stages] == stages


def test_many_runs_are_killed_and_deleted_by_filter(server: ServerProcess, client: Client) -> None:
    made = [server.submit(task("t", "sleep", "600"), name=f"bulk{index}") for index in range(6)]
    other = server.submit(task("t", "sleep", "600"), name="other")
    done = client.bulk("kill", search="bulk")
    assert [item.ok for item in done.items] == [True] * 6
    for run in made:
        server.wait(run.id, "killed")
    assert client.run(other.id).status in ("queued", "starting", "running")
    done = client.bulk("delete", search="bulk")
    assert all(item.ok for item in done.items)
    refused = client.bulk("delete", runs=[other.id, "nobody"])
    assert [(item.ok, item.code) for item in refused.items] == [(False, "run_active"), (False, "not_found")]


def test_the_submitted_code_is_what_every_attempt_runs(server: ServerProcess, client: Client, tmp_path: Path) -> None:
    from whistlestop.client.bundle import make_bundle

    (tmp_path / "main.py").write_text("print('first edition')\n")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "big.log").write_text("x" * 1000)
    with make_bundle(tmp_path) as bundle:
        client.upload_bundle(bundle.hash, bundle.path)
    digest = bundle.hash
    (tmp_path / "main.py").write_text("print('second edition')\n")
    text = f"name: code\ncommand: [{sys.executable}, main.py]\nkind: task\n"
    run = client.submit(text, bundle=digest)
    server.wait(run.id, "completed")
    again = client.rerun(run.id)
    server.wait(again.id, "completed")
    for each in (run, again):
        assert "first edition" in server.logs(each.id)


def test_secrets_reach_the_program_and_nobody_else(start_server: Callable[..., ServerProcess]) -> None:
    from whistlestop.domain.errors import SpecInvalid

    server = start_server()
    client = server.client()

    told = "import os, whistlestop\nwith whistlestop.run() as run:\n  run.summary['key'] = os.environ['KEY']"
    phase = task("t", "bash", "-c", f'test ${{#KEY}} = 19 && echo "key is $KEY" && {sys.executable} -c "{told}"')
    phase["env"] = {"KEY": {"secret": "API_KEY"}}
    with pytest.raises(SpecInvalid, match="API_KEY"):
        server.submit(phase)
    client.set_secret("API_KEY", "hunter2-very-secret")
    run = server.submit(phase)
    assert server.wait(run.id).status == "completed"
    assert "key is ***" in server.logs(run.id)
    # What the program itself wrote goes with the attempt's directory, once the server has everything.
    until(lambda: not list((server.data / "attempts").iterdir()), what="the attempt to be forgotten")
    for path in server.data.rglob("*"):
        if path.is_file():
            assert b"hunter2-very-secret" not in path.read_bytes(), path
    shown = client.run(run.id).model_dump_json() + "".join(e.model_dump_json() for e in client.events(run.id))
    assert "hunter2" not in shown


def test_workflows_are_saved_with_versions_and_submitted_by_name(server: ServerProcess, client: Client) -> None:
    first = client.save_workflow("flow", "name: flow\ncommand: echo one\nkind: task\n")
    second = client.save_workflow("flow", "name: flow\ncommand: echo two\nkind: task\n")
    assert (first.version, second.version) == (1, 2)
    for reference, word in (("flow", "two"), ("flow@1", "one")):
        run = client.submit(workflow=reference)
        server.wait(run.id, "completed")
        assert word in server.logs(run.id)
    with pytest.raises(NotFound, match="no workflow flow@9"):
        client.submit(workflow="flow@9")
