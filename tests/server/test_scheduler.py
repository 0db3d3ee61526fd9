"""The scheduler's passes against an engine that misbehaves."""

from pathlib import Path

import pytest

from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.domain.errors import BadRequest, NoCheckpoint, NotFound
from whistlestop.engines.base import JobState
from whistlestop.server.services import accounts, bundles, ingest, submit, verbs
from whistlestop.server.store import checkpoints, events, phases, runs
from whistlestop.testing.checkpoints import write_checkpoint
from whistlestop.testing.wait import until
from whistlestop.testing.world import ME, World, ended, unreachable
from whistlestop.wire.api import BulkBody, ContinueBody, KillBody, PauseBody, ResumeBody, Submit
from whistlestop.wire.frames import Data


def add_checkpoint(here: World, run: str, path: Path, step: int = 5, name: str | None = None) -> None:
    with here.context.database.write() as connection:
        checkpoints.add(
            connection, id=name or f"c-{step}-{run}", run_id=run, phase="main", step=step, attempt=1, path=str(path),
            bytes=1, committed_at=1.0, verified=True, metrics={},
        )  # fmt: skip


def end(here: World, run: str, reason: str) -> None:
    attempt = here.attempt(run)
    ingest.store(here.context, attempt, [Data("runner", 0, ended(reason))])
    here.engine.says[attempt.id] = JobState.ENDED
    here.settle()


def test_a_kill_wins_over_a_launch_that_never_works_and_costs_nothing(here: World) -> None:
    here.engine.broken = unreachable()
    run = here.submit()
    here.settle()
    verbs.kill(here.context, run.id, KillBody(), ME)
    here.now += 60
    here.tick()
    assert here.run_state(run.id) == "killed"
    attempt = here.attempt(run.id)
    assert attempt.ended_at == attempt.started_at, "what never ran is charged"


def test_a_launch_that_does_not_come_up_is_counted_and_given_up(here: World) -> None:
    here.engine.broken = unreachable()
    run = here.submit()
    here.settle()
    for _ in range(200):
        here.now += 120
        here.tick()
        if here.run_state(run.id) == "failed":
            break
    assert here.run_state(run.id) == "failed"
    with here.context.database.read() as connection:
        made = phases.attempts_of_runs(connection, [run.id])[run.id]
    assert {row.reason for row in made} == {"launch_failed"}
    assert len(made) == 10


def test_one_attempt_that_can_not_be_launched_does_not_hold_up_the_others(here: World) -> None:
    here.engine.broken = RuntimeError("a mistake of ours")
    bad = here.submit()
    here.settle()
    here.engine.broken = None
    good = here.submit()
    here.settle()
    assert here.attempt(good.id).id in here.engine.launched
    assert here.attempt(bad.id).reason == "launch_failed"


def test_an_attempt_that_once_spoke_is_never_launched_a_second_time(here: World) -> None:
    run = here.submit()
    here.settle()
    attempt = here.attempt(run.id)
    with here.context.database.write() as connection:
        phases.update_attempt(connection, attempt.id, seen_at=here.now)
    here.engine.says[attempt.id] = JobState.UNKNOWN
    here.tick()
    assert here.engine.launched.count(attempt.id) == 1
    with here.context.database.read() as connection:
        first = phases.attempt(connection, attempt.id)
    assert first is not None
    assert (first.state, first.reason) == ("lost", "runner_lost")


def test_no_attempt_ends_before_it_began_also_if_the_clock_was_set_back(here: World) -> None:
    run = here.submit()
    here.settle()
    attempt = here.attempt(run.id)
    with here.context.database.write() as connection:
        phases.update_attempt(connection, attempt.id, seen_at=here.now)
    del here.engine.says[attempt.id]
    here.now -= 5
    here.passes.check_everything()
    assert here.attempt(run.id).ended_at == attempt.started_at


def test_a_kill_goes_past_a_runner_that_does_not_carry_it_out_but_not_before_the_specs_grace(here: World) -> None:
    from whistlestop.testing.wait import until

    run = here.submit("name: x\ncommand: 'true'\ngrace: {kill_save: 10m}\n")
    here.settle()
    verbs.kill(here.context, run.id, KillBody(), ME)
    here.now += 300
    here.tick()
    assert here.engine.cancelled == []
    here.now += 330
    here.tick()
    until(lambda: here.engine.cancelled == [here.attempt(run.id).id], what="the engine's cancel")


def test_attention_is_kept_while_a_sibling_runs_and_nothing_is_started_meanwhile(here: World) -> None:
    text = "name: x\nphases:\n- {name: a, command: 'true', needs: []}\n- {name: b, command: 'true', needs: []}\n"
    run = here.submit(text)
    here.settle()
    with here.context.database.read() as connection:
        first, second = phases.attempts_of_runs(connection, [run.id])[run.id]
    ingest.store(here.context, first, [Data("runner", 0, ended("checkpoint_unusable"))])
    here.settle()
    assert here.run_state(run.id) in ("starting", "running")
    assert len(here.engine.launched) == 2
    ingest.store(here.context, second, [Data("runner", 0, ended("finished"))])
    here.settle()
    assert here.run_state(run.id) == "waiting"


def test_a_pause_right_after_a_resume_is_a_pause(here: World) -> None:
    run = here.submit()
    verbs.pause(here.context, run.id, PauseBody(), ME)
    here.settle()
    assert here.run_state(run.id) == "waiting"
    verbs.resume(here.context, run.id, ResumeBody(), ME)
    assert verbs.pause(here.context, run.id, PauseBody(), ME).changed
    here.settle()
    assert here.run_state(run.id) == "waiting"


def test_a_cancel_keeps_what_another_active_run_starts_from(here: World) -> None:
    run = here.submit()
    here.settle()
    storage = CheckpointStore(here.settings.checkpoints(run.id))
    gone, kept = (write_checkpoint(storage, "main", step, 1, "a", {"x": b"1"}) for step in (3, 5))
    for each in (gone, kept):
        add_checkpoint(here, run.id, each.path, each.step, each.id)
    submit.continue_run(here.context, run.id, ContinueBody(step=5), ME)
    verbs.kill(here.context, run.id, KillBody(), ME, discard=True)
    end(here, run.id, "killed")
    until(lambda: not gone.path.exists() and not storage.trashed("main"), what="the other one to be removed")
    assert [each.id for each in storage.list("main")] == [kept.id]
    with here.context.database.read() as connection:
        assert [row.step for row in checkpoints.of_run(connection, run.id)] == [5]


def test_a_bundle_that_is_wanted_again_is_not_swept(here: World) -> None:
    digest = "a" * 64
    here.settings.bundles.mkdir(parents=True)
    bundles.path_of(here.settings, digest).write_bytes(b"x")
    first = submit.submit(here.context, Submit(spec="name: x\ncommand: 'true'\n", bundle=digest), ME)
    verbs.kill(here.context, first.id, KillBody(), ME)
    here.settle()
    verbs.delete(here.context, first.id, ME)
    second = submit.submit(here.context, Submit(spec="name: x\ncommand: 'true'\n", bundle=digest), ME)
    here.passes.sweeper.sweep()
    assert bundles.path_of(here.settings, digest).exists()
    verbs.kill(here.context, second.id, KillBody(), ME)
    here.settle()
    verbs.delete(here.context, second.id, ME)
    here.passes.sweeper.sweep()
    assert not bundles.path_of(here.settings, digest).exists()
    with pytest.raises(NotFound):
        submit.submit(here.context, Submit(spec="name: x\ncommand: 'true'\n", bundle=digest), ME)


def test_a_checkpoint_that_was_removed_meanwhile_is_not_continued_from(here: World, tmp_path: Path) -> None:
    run = here.submit()
    with pytest.raises(NoCheckpoint):
        submit.continue_run(here.context, run.id, ContinueBody(), ME)


def test_a_used_up_budget_keeps_the_checkpoint_as_the_result_and_names_itself_otherwise(
    here: World, tmp_path: Path
) -> None:
    text = "name: x\ncommand: 'true'\nbudget: 10\n"  # a credit a second
    kept, bare = here.submit(text), here.submit(text)
    here.settle()
    here.now += 20
    for run in (kept, bare):
        verbs.pause(here.context, run.id, PauseBody(), ME)
        attempt = here.attempt(run.id)
        gone = ended("paused", gone_at=here.now)
        ingest.store(here.context, attempt, [Data("runner", 0, gone)])
    here.settle()
    add_checkpoint(here, kept.id, tmp_path / "c")
    for run in (kept, bare):
        verbs.resume(here.context, run.id, ResumeBody(from_start=True), ME)
    here.settle()
    assert here.run_state(kept.id) == "completed"
    assert here.run_state(bare.id) == "failed"
    with here.context.database.read() as connection:
        assert "budget" in (runs.get(connection, bare.id).reason or "")
        assert phases.of_runs(connection, [kept.id])[kept.id][0].stop_reasons[0]["reason"] == "budget_exhausted"


def test_names_and_a_filter_together_are_refused(here: World) -> None:
    run = here.submit()
    with pytest.raises(BadRequest, match="either runs or a filter"):
        verbs.bulk(here.context, BulkBody(verb="kill", runs=[run.id], status=["queued"]), ME)


def test_a_revoked_local_token_does_not_come_back(here: World) -> None:
    first = accounts.first_token(here.context)
    other = accounts.create_token(here.context, "other", "admin")
    local = next(token for token in accounts.list_tokens(here.context) if token.name == "local")
    accounts.revoke_token(here.context, local.id, ME)
    second = accounts.first_token(here.context)
    assert first != second
    known = accounts.Doorkeeper(here.context)
    assert known.admit(second).role == known.admit(other.token).role == "admin"
    with pytest.raises(accounts.Unauthenticated):
        known.admit(first)


def test_the_hub_keeps_the_newest_order_for_every_link_of_a_runner(here: World) -> None:
    run = here.submit()
    here.settle()
    attempt = here.attempt(run.id)
    verbs.stop(here.context, run.id, verbs.StopBody(), ME)
    first, second = (here.context.hub.order(attempt.id) for _ in range(2))
    assert first is not None
    assert first == second
    end(here, run.id, "stopped")
    assert here.context.hub.order(attempt.id) is None


def test_events_of_a_run_tell_who_asked_for_what(here: World) -> None:
    run = here.submit()
    verbs.kill(here.context, run.id, KillBody(note="because"), ME)
    here.settle()
    with here.context.database.read() as connection:
        told = {row.kind: row for row in events.of_run(connection, run.id)}
    assert told["kill_requested"].actor == "me"
    assert told["kill_requested"].text == "kill requested: because"
    assert "run_killed" in told
