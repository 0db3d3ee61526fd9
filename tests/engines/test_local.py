"""The local engine: the contract, and what is special to processes on this host."""

import os
import signal
import stat
import subprocess
import sys
import textwrap

import msgspec
import pytest
from engine_contract import *  # noqa: F403
from runner_kit import Kit, until

from whistlestop.engines import processes
from whistlestop.engines.attempt_files import BEGAN, memory_of
from whistlestop.engines.base import JobId, JobState
from whistlestop.engines.containment import Tree
from whistlestop.engines.local import LocalEngine
from whistlestop.engines.processes import Handle


def kill_runner(kit: Kit, job: JobId) -> None:
    pid = kit.runner_pid(job)
    os.kill(pid, signal.SIGKILL)
    until(lambda: kit.state(job) is JobState.DEAD, "the runner's death to show")


def test_a_runner_killed_outright_is_dead_and_its_program_is_found(both: Kit) -> None:
    job = both.launch("/bin/sh", "-c", "trap '' PIPE; setsid sleep 1000 & echo up; sleep 1000")
    until(lambda: "up" in both.peer.texts(), "the program")
    kill_runner(both, job)
    both.engine.salvage(job)
    ended = both.ended()
    assert ended["reason"] == "runner_lost"
    assert both.alive(job) == []
    both.wait_done(job)
    assert both.peer.gaps == []


def test_a_salvager_that_dies_is_salvaged_too(kit: Kit) -> None:
    job = kit.launch("sleep", "1000")
    until(lambda: "program_started" in kit.peer.kinds(), "the program")
    first = kit.runner_pid(job)
    kit.peer.stop()
    kill_runner(kit, job)
    kit.engine.salvage(job)
    until(lambda: kit.runner_pid(job) != first, "the salvager")
    until(lambda: not kit.alive(job), "the program's end")
    kill_runner(kit, job)
    kit.engine.salvage(job)
    kit.peer.start()
    assert kit.ended()["reason"] == "runner_lost"
    kit.wait_done(job)
    assert kit.peer.kinds().count("ended") == 1


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_file_that_a_power_cut_made_shorter_than_what_the_server_has_goes_on_behind_it(kit: Kit, cut: int) -> None:
    job = kit.launch("/bin/sh", "-c", "echo up; sleep 1000")
    until(lambda: "up" in kit.peer.texts() and "program_started" in kit.peer.kinds(), "the program")
    kill_runner(kit, job)
    kit.peer.stop()
    for name in ("runner", "logs"):
        path = kit.directory(job) / name
        os.truncate(path, max(0, path.stat().st_size - cut))
    first = kit.runner_pid(job)
    kit.engine.salvage(job)
    until(lambda: kit.runner_pid(job) != first, "the salvager")
    until(lambda: b"runner_lost" in (kit.directory(job) / "runner").read_bytes(), "the end on disk")
    kill_runner(kit, job)  # before it could ask the server
    kit.engine.salvage(job)
    kit.peer.start()
    assert kit.ended()["reason"] == "runner_lost"
    kit.wait_done(job)
    assert kit.peer.gaps == []
    assert kit.peer.kinds().count("ended") == 1
    assert any("the runner died" in text for text in kit.peer.texts("sys"))


def test_zeros_that_a_power_cut_left_are_no_records(kit: Kit) -> None:
    job = kit.launch("sleep", "1000")
    until(lambda: "program_started" in kit.peer.kinds(), "the program")
    kill_runner(kit, job)
    with (kit.directory(job) / "runner").open("ab") as file:
        file.write(bytes(4096))
    kit.engine.salvage(job)
    assert kit.ended()["reason"] == "runner_lost"
    kit.wait_done(job)


def test_an_end_that_was_written_but_not_shipped_is_only_shipped(kit: Kit) -> None:
    job = kit.launch("/bin/sh", "-c", "sleep 0.5; exit 3")
    until(lambda: "program_started" in kit.peer.kinds(), "the program")
    kit.peer.stop()
    until(lambda: b"code_raised" in (kit.directory(job) / "runner").read_bytes(), "the end on disk")
    kill_runner(kit, job)
    kit.engine.salvage(job)
    kit.peer.start()
    assert kit.ended()["reason"] == "code_raised"
    kit.wait_done(job)
    assert kit.peer.kinds().count("ended") == 1


def test_a_launch_that_crashed_before_the_spawn_is_unknown_and_launched_again(kit: Kit) -> None:
    wanted = kit.describe("/bin/sh", "-c", "echo hello")
    directory = kit.root / "attempts" / wanted.attempt_id
    directory.mkdir(parents=True)
    (directory / "launch.json").write_text("{}")
    (directory / "lock").touch()
    job = JobId(wanted.attempt_id)
    assert kit.state(job) is JobState.UNKNOWN
    kit.jobs.append(kit.engine.launch(wanted, {}))
    kit.ended()
    assert kit.peer.texts() == ["hello"]


def test_the_run_outlives_the_server_and_another_one_finds_it(kit: Kit) -> None:
    code = """
        import sys
        sys.path[:0] = sys.argv[2:]
        from pathlib import Path
        import msgspec
        from whistlestop.engines.local import LocalEngine
        from whistlestop.wire.launch import Launch
        launch = msgspec.json.decode(sys.stdin.buffer.read(), type=Launch)
        LocalEngine(Path(sys.argv[1])).launch(launch, {})
    """
    wanted = kit.describe("sleep", "1000")
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(kit.root / "attempts")],
        input=msgspec.json.encode(wanted),
        check=True,
        start_new_session=True,
    )
    job = JobId(wanted.attempt_id)
    kit.jobs.append(job)
    assert LocalEngine(kit.root / "attempts").poll([job])[job].state is JobState.RUNNING
    until(lambda: "program_started" in kit.peer.kinds(), "the program")
    os.kill(kit.runner_pid(job), signal.SIGHUP)
    os.kill(kit.runner_pid(job), signal.SIGINT)
    assert kit.state(job) is JobState.RUNNING


def test_an_exit_code_is_not_lost_where_the_server_ignores_its_children(kit: Kit) -> None:
    code = """
        import signal, sys
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        from pathlib import Path
        import msgspec
        from whistlestop.engines.local import LocalEngine
        from whistlestop.wire.launch import Launch
        launch = msgspec.json.decode(sys.stdin.buffer.read(), type=Launch)
        LocalEngine(Path(sys.argv[1])).launch(launch, {})
    """
    wanted = kit.describe("/bin/sh", "-c", "exit 3")
    kit.jobs.append(JobId(wanted.attempt_id))
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(kit.root / "attempts")],
        input=msgspec.json.encode(wanted),
        check=True,
        start_new_session=True,
    )
    assert kit.ended()["exit_code"] == 3


def test_ended_runners_leave_no_zombies(kit: Kit) -> None:
    job = kit.launch("true")
    pid = kit.runner_pid(job)
    kit.wait_done(job)
    until(lambda: (kit.state(job), processes.read(pid))[1] is None, "the runner to be reaped")


def test_secrets_reach_the_program_and_not_the_disk(kit: Kit) -> None:
    secret = "correct horse battery staple"
    job = kit.launch("/bin/sh", "-c", 'echo "it is $KEY"; echo ${#KEY}', secrets={"KEY": secret})
    kit.ended()
    kit.wait_done(job)
    assert kit.peer.texts() == ["it is ***", str(len(secret))]
    for path in kit.directory(job).iterdir():
        assert secret.encode() not in path.read_bytes(), path


def test_a_secret_larger_than_a_pipe_gets_through(kit: Kit) -> None:
    kit.launch("/bin/sh", "-c", "echo ${#KEY}", secrets={"KEY": "x" * 100_000})
    kit.ended()
    assert kit.peer.texts() == ["100000"]


def test_the_attempt_directory_is_for_its_owner_alone(kit: Kit) -> None:
    job = kit.launch("sleep", "1000")
    until(lambda: (kit.directory(job) / "control").exists(), "the channel")
    assert stat.S_IMODE(kit.directory(job).stat().st_mode) == 0o700
    assert stat.S_IMODE((kit.directory(job) / "launch.json").stat().st_mode) == 0o600


def test_the_program_inherits_neither_the_lock_nor_anything_else(kit: Kit) -> None:
    kit.launch("/bin/sh", "-c", "ls /proc/$$/fd")
    kit.ended()
    assert set(kit.peer.texts()) <= {"0", "1", "2", "10", "255"}  # shells keep one of their own


def test_cancel_finds_a_runner_that_has_not_said_who_it_is(kit: Kit) -> None:
    job = kit.launch("sleep", "1000")
    until(lambda: kit.alive(job), "the program")
    (kit.directory(job) / BEGAN).rename(kit.directory(job) / "hidden")
    kit.engine.cancel(job)
    (kit.directory(job) / "hidden").rename(kit.directory(job) / BEGAN)
    assert kit.alive(job) == []
    assert kit.state(job) is JobState.DEAD
    kit.engine.cancel(job)


@pytest.mark.parametrize("bad", ["../x", "a/b", ".hidden"])
def test_an_id_can_not_lead_out_of_the_attempts(kit: Kit, bad: str) -> None:
    with pytest.raises(ValueError, match="can't be the id"):
        kit.engine.poll([JobId(bad)])


def test_a_recycled_pid_is_never_signalled() -> None:
    with subprocess.Popen(["sleep", "1000"]) as decoy:
        real = processes.read(decoy.pid)
        assert real is not None
        assert Handle.open(real._replace(start=real.start - 1)) is None
        handle = Handle.open(real)
        assert handle is not None
        handle.send(signal.SIGKILL)
        assert handle.wait(10)
        handle.close()


def test_a_tree_that_never_was_is_proven_gone_at_once() -> None:
    gone = Tree("a-never-was").end()
    assert (gone.ended, gone.held) == (0, ())


def test_what_an_attempt_left_in_memory_goes_with_it(kit: Kit) -> None:
    job = kit.launch("true")
    kit.wait_done(job)
    left = memory_of(job)
    (left / "slot-0").mkdir(parents=True)
    until(lambda: (kit.engine.forget(job), kit.state(job))[1] is JobState.UNKNOWN, "it to be forgotten")
    assert not left.exists()
    left.mkdir()
    kit.engine.forget(job)
    assert not left.exists(), "also where its directory is gone already"
