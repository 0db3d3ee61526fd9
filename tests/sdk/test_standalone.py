"""The same script, complete by itself: no runner, no server."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sdk.conftest import unhurried

import whistlestop
from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.domain.errors import BadRequest, NotFound, Refused

TRAIN = """
import whistlestop
state = {"sum": 0}
with whistlestop.run("demo", every="10 steps") as run:
    run.track(state=state)
    for step in run.steps(total=TOTAL):
        state["sum"] += step
        if step == TELL:
            print("reached", flush=True)
    print("behind", int(run.should_stop), state["sum"], flush=True)
"""
ENDLESS = TRAIN.replace("TOTAL", "None").replace("TELL", "25")


def store_of(directory: Path, name: str = "demo") -> CheckpointStore:
    return CheckpointStore(directory / "whistle-checkpoints" / name)


def train(total: int, *, stop_at: int | None = None, **options: Any) -> tuple[list[int], dict[str, int]]:
    state = {"sum": 0}
    seen: list[int] = []
    with whistlestop.run("demo", **options) as run:
        run.track(state=state)
        for step in unhurried(run, run.steps(total)):
            seen.append(int(step))
            state["sum"] += step
            if step == stop_at:
                run.finish()
    return seen, state


def test_a_training_runs_to_its_end_and_leaves_its_last_checkpoint(alone: Path) -> None:
    seen, state = train(25, every="10 steps")
    assert seen == list(range(25))
    store = store_of(alone)
    assert [each.step for each in store.list("run-001")] == [25, 20, 10]
    assert state == {"sum": sum(range(25))}


def test_only_as_many_as_asked_are_kept(alone: Path) -> None:
    train(50, every=5, keep=2)
    assert [each.step for each in store_of(alone).list("run-001")] == [50, 45]


def test_after_an_end_the_next_start_is_a_new_training(alone: Path) -> None:
    train(10)
    seen, _ = train(10)
    assert seen == list(range(10))
    assert [each.step for each in store_of(alone).list("run-002")] == [10]


def test_a_crash_goes_on_from_the_last_checkpoint(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    state = {"sum": 0}

    def crash() -> None:
        with whistlestop.run("demo", every=10) as run:
            run.track(state=state)
            for step in unhurried(run, run.steps(100)):
                state["sum"] += step
                if step == 37:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crash()
    seen, state = train(100)
    assert seen == list(range(30, 100))
    assert state == {"sum": sum(range(100))}
    assert "going on at step 30" in capfd.readouterr().err


def test_a_damaged_newest_checkpoint_costs_only_itself(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train(100, every=10, stop_at=34)
    newest = store_of(alone).list("run-001")[0]
    assert newest.step == 35
    (newest.path / "parts" / "state.pickle").write_bytes(b"damaged")
    seen, state = train(100)
    assert seen[0] == 30
    assert state == {"sum": sum(range(100))}
    assert "set aside" in capfd.readouterr().err


def test_when_no_checkpoint_can_be_used_it_never_starts_at_step_0(alone: Path) -> None:
    train(100, stop_at=34)
    for each in store_of(alone).list("run-001"):
        (each.path / "parts" / "state.pickle").unlink()
    with pytest.raises(whistlestop.RestoreFailed, match="none of the 1"):
        train(100)
    assert len(store_of(alone).list("run-001")) == 1


def test_a_part_that_does_not_load_stops_the_start_and_is_named(alone: Path) -> None:
    train(100, stop_at=34)

    def load(state: object) -> None:
        raise ValueError("wrong shape")

    with whistlestop.run("demo") as run:
        run.saves(save=dict, load=load, name="state")
        with pytest.raises(whistlestop.RestoreFailed, match=r"state could not be restored.*wrong shape"):
            run.steps(100)


def test_a_part_that_the_checkpoint_does_not_have_stops_the_start(alone: Path) -> None:
    train(100, stop_at=34)
    with whistlestop.run("demo") as run:
        run.track(model={})
        with pytest.raises(whistlestop.RestoreFailed, match="model is tracked"):
            run.steps(100)


def test_restore_gives_the_step_the_path_and_untracked_parts(alone: Path) -> None:
    train(100, stop_at=34)
    with whistlestop.run("demo") as run:
        restored = run.restore()
        assert restored is not None
        assert (restored.step, restored.state) == (35, {"state": {"sum": sum(range(35))}})
        assert (restored.path / "manifest.json").exists()
        assert list(run.steps(37)) == [35, 36]


def test_resume_may_be_refused_or_demanded(alone: Path) -> None:
    with pytest.raises(whistlestop.RestoreFailed, match="must"):
        train(5, resume="must")
    train(100, stop_at=3)
    assert train(5, resume="never")[0] == [0, 1, 2, 3, 4]
    with pytest.raises(BadRequest):
        whistlestop.run(resume="perhaps")


def test_two_processes_of_one_name_do_not_share_a_training(program: Callable[..., Any], alone: Path) -> None:
    train(100, stop_at=3)
    first = program(
        """
        import sys, whistlestop
        with whistlestop.run("demo") as run:
            run.track(state={})
            for step in run.steps(100):
                print(int(step), flush=True)
                sys.stdin.read()
        """
    )
    assert first.line() == "4"
    with pytest.raises(Refused, match="another process is training"):
        train(5)
    first.process.kill()
    first.process.wait()
    assert train(6)[0] == [4, 5]


def test_a_save_that_fails_is_a_warning_and_training_goes_on(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (alone / "blocked").write_text("a file where the directory should be")
    seen, _ = train(20, every=5, checkpoints=alone / "blocked")
    assert seen == list(range(20))
    assert "could not be saved" in capfd.readouterr().err


def test_a_state_that_can_not_be_saved_is_a_warning(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with whistlestop.run("demo", every=5) as run:
        run.track(state={"lock": threading.Lock()})
        assert len(list(run.steps(12))) == 12
    assert "could not be saved" in capfd.readouterr().err
    assert store_of(alone).list("run-001") == []


def test_files_and_directories_are_saved_as_they_are(alone: Path) -> None:
    (alone / "export").mkdir()
    (alone / "export" / "a.bin").write_bytes(b"a")
    with whistlestop.run("demo") as run:
        for step in run.steps(3):
            if step == 1:
                saved = run.save(files={"export": alone / "export", "one.bin": alone / "export" / "a.bin"})
                assert saved is not None
                assert saved.step == 2
                checkpoint = saved.checkpoint()
                assert checkpoint is not None
                assert sorted(checkpoint.files) == ["export/a.bin", "one.bin"]
    assert [each.step for each in store_of(alone).list("run-001")] == [3, 2]


def test_a_break_is_the_end_of_this_training(alone: Path) -> None:
    with whistlestop.run("demo") as run:
        for step in run.steps():
            if step == 4:
                break
    assert [each.step for each in store_of(alone).list("run-001")] == [4]
    assert train(2)[0] == [0, 1]


def test_misuse_is_told_before_the_loop(alone: Path) -> None:
    with whistlestop.run("demo") as run:
        run.track(a={})
        with pytest.raises(BadRequest, match="twice"):
            run.track(a={})
        for _ in run.steps(1):
            pass
        with pytest.raises(BadRequest, match="one loop"):
            run.steps(1)
        with pytest.raises(BadRequest, match="too late"):
            run.track(b={})
    with pytest.raises(BadRequest):
        whistlestop.run(every="now and then")


def test_time_decides_when_to_save(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("whistlestop.sdk.looping._time", lambda: clock[0])
    monkeypatch.setattr("whistlestop.sdk.training.time.time", lambda: clock[0])
    with whistlestop.run("demo", every="1 minute", keep=10) as run:
        for _ in unhurried(run, run.steps(10)):
            clock[0] += 25.0
    assert [each.step for each in store_of(alone).list("run-001")] == [10, 9, 6, 3]


def test_handlers_are_put_back_and_other_threads_set_none(alone: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    train(3)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(train(3)[0]))
    thread.start()
    thread.join()
    assert results == [[0, 1, 2]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_the_loop_with_a_checkpoint_and_runs_what_is_behind(
    program: Callable[..., Any], tmp_path: Path, number: signal.Signals
) -> None:
    child = program(ENDLESS)
    assert child.line() == "reached"
    child.send(number)
    assert child.end() == 0, child.stderr
    word, _, total = child.stdout.split()
    newest, _ = store_of(tmp_path).newest("run-001")
    assert newest is not None
    assert word == "behind"
    assert int(total) == sum(range(newest.step))
    assert "stopped at step" in child.stderr
    again = program(ENDLESS.replace("TELL", "25").replace("== 25", f">= {newest.step}"))
    assert again.line() == "reached"
    again.send(number)
    assert again.end() == 0
    assert f"going on at step {newest.step}" in again.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once(program: Callable[..., Any], number: signal.Signals) -> None:
    child = program(
        """
        import time, whistlestop
        with whistlestop.run("demo") as run:
            for step in run.steps():
                print("inside", flush=True)
                while True:
                    if run.should_stop:
                        print("flag", flush=True)
                    time.sleep(0.01)
        """
    )
    assert child.line() == "inside"
    child.send(number)
    assert child.line() == "flag"
    child.send(number)
    code = child.end()
    if number == signal.SIGTERM:
        assert code == -signal.SIGTERM
    else:
        assert code in (-signal.SIGINT, 130)
        assert "KeyboardInterrupt" in child.stderr


def test_the_users_own_handler_is_still_called_and_is_there_again_afterwards(
    program: Callable[..., Any],
) -> None:
    child = program(
        """
        import signal, whistlestop
        calls = []
        def mine(number, frame): calls.append(number)
        signal.signal(signal.SIGTERM, mine)
        with whistlestop.run("demo") as run:
            for step in run.steps():
                if step == 0:
                    print("inside", flush=True)
        print(calls == [signal.SIGTERM], signal.getsignal(signal.SIGTERM) is mine, flush=True)
        """
    )
    assert child.line() == "inside"
    child.send(signal.SIGTERM)
    assert child.end() == 0, child.stderr
    assert child.stdout.split() == ["True", "True"]


def test_behind_the_loop_ctrl_c_is_the_users_again(program: Callable[..., Any]) -> None:
    child = program(
        """
        import time, whistlestop
        with whistlestop.run("demo") as run:
            for step in run.steps(3):
                pass
            print("behind", flush=True)
            time.sleep(60)
        """
    )
    assert child.line() == "behind"
    child.send(signal.SIGINT)
    assert child.end() in (-signal.SIGINT, 130)


def test_a_forked_worker_can_be_terminated_and_writes_no_checkpoint(
    program: Callable[..., Any], tmp_path: Path
) -> None:
    child = program(
        """
        import os, signal, time, whistlestop
        with whistlestop.run("demo") as run:
            for step in run.steps(2):
                worker = os.fork()
                if worker == 0:
                    time.sleep(60)
                    os._exit(0)
                os.kill(worker, signal.SIGTERM)
                print(os.WTERMSIG(os.waitpid(worker, 0)[1]), flush=True)
        """
    )
    assert child.end() == 0, child.stderr
    assert child.stdout.split() == ["15", "15"]
    assert [each.step for each in store_of(tmp_path).list("run-001")] == [2]


def test_a_channel_that_can_not_be_opened_is_a_warning(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHISTLE_CHANNEL", str(alone / "missing"))
    seen, _ = train(3)
    assert seen == [0, 1, 2]
    assert capfd.readouterr().err.count("channel can't be used") == 1


def test_without_a_with_block_it_works_too(program: Callable[..., Any], tmp_path: Path) -> None:
    child = program(
        """
        import whistlestop
        run = whistlestop.run("demo")
        for step in run.steps(5):
            run.log(loss=1.0)
        """
    )
    assert child.end() == 0, child.stderr
    assert [each.step for each in store_of(tmp_path).list("run-001")] == [5]
    assert (tmp_path / "whistle-checkpoints" / "demo" / "run-001" / "finished").exists()


def test_inputs_are_found_by_the_phases_name(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHISTLE_INPUT_TRAIN_TEXT", str(alone))
    assert whistlestop.input("train-text") == alone
    assert whistlestop.run("demo").input("Train-Text") == alone
    with pytest.raises(NotFound, match="there is no input from phase 'other'"):
        whistlestop.input("other")


def test_importing_loads_no_third_party_module_and_little_else() -> None:
    script = (
        "import sys, time; before = set(sys.modules); begun = time.perf_counter()\n"
        "import whistlestop\n"
        "spent = time.perf_counter() - begun\n"
        "print(spent, len(set(sys.modules) - before))\n"
        "whistlestop.run; whistlestop.input; import whistlestop.sdk.run\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(names - set(sys.stdlib_module_names) - {'whistlestop'}))\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    spent, rest = child.stdout.splitlines()
    assert int(spent.split()[1]) < 8  # a count, not a time: the machine may be busy
    assert rest == "[]"
