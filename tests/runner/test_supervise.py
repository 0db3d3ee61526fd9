"""An attempt from launch to end, with real programs, some of them with the real SDK inside."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from runner_kit import Kit, until

from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.channel.control import Control
from whistlestop.channel.journal import parse
from whistlestop.channel.layout import Kind, Loop, Word
from whistlestop.runner import progress
from whistlestop.runner.time_limit import TimeLimit
from whistlestop.wire.frames import Order
from whistlestop.wire.launch import Input

FINISH, PAUSE, KILL = (Order(seq=1, stop=level, actor="ann") for level in (1, 2, 3))

LOOP = """
    import time, whistlestop
    with whistlestop.run("one") as run:
        state = {"seen": 0}
        for step in run.steps(total=TOTAL):
            run.log(loss=1.0)
            time.sleep(0.002)
        print("behind the loop")
"""


def loop(kit: Kit, total: int = 10**9, **fields: Any) -> str:
    return kit.python(LOOP.replace("TOTAL", str(total)), **fields)


def training(kit: Kit) -> None:
    until(lambda: kit.peer.progress and kit.peer.progress[-1].step > 3, "steps")


def rungs(kit: Kit) -> list[str]:
    return [event.data["rung"] for event in kit.peer.events() if event.kind == "rung"]


def test_a_program_that_ends_by_itself_is_finished(kit: Kit) -> None:
    kit.launch("/bin/sh", "-c", "echo out; echo err >&2")
    ended = kit.ended()
    assert (ended["reason"], ended["exit_code"], ended["signal"]) == ("finished", 0, None)
    assert (kit.peer.texts("out"), kit.peer.texts("err")) == (["out"], ["err"])
    assert kit.peer.kinds() == ["preparing", "storage_ready", "program_started", "ended"]
    assert kit.peer.tokens[0] == "Bearer token-of-this-attempt"


def test_a_loop_that_finishes_says_so(kit: Kit) -> None:
    loop(kit, total=20)
    ended = kit.ended()
    assert (ended["reason"], ended["last_step"], ended["total"], ended["loop"]) == ("finished", 20, 20, "finished")
    assert {"attached", "training"} <= set(kit.peer.kinds())


def test_a_stop_reaches_the_loop_and_the_code_behind_it_runs(kit: Kit) -> None:
    loop(kit)
    training(kit)
    asked = time.time()
    kit.peer.send(FINISH)
    ended = kit.ended()
    assert (ended["reason"], ended["exit_code"], ended["loop"]) == ("stopped", 0, "stopped")
    assert ended["gone_at"] - asked < 20
    assert "behind the loop" in kit.peer.texts()
    assert rungs(kit) == ["flag"]
    assert any("asked by ann" in text for text in kit.peer.texts("sys"))


def test_a_stop_that_stands_at_the_launch_is_seen_before_the_first_step(kit: Kit) -> None:
    """However long it takes until there is a connection: here there is none before the end."""
    kit.peer.refuse = 503
    job = loop(kit, stop=1, stop_by="ann")
    told = kit.directory(job) / "runner"
    until(lambda: told.exists() and b"ended" in told.read_bytes(), "the end")
    kit.peer.refuse = None
    ended = kit.ended()
    assert (ended["reason"], ended["last_step"], ended["loop"]) == ("stopped", 0, "stopped")
    assert "asked by ann" in next(event for event in kit.peer.events() if event.kind == "order_seen").text


def test_a_pause_leaves_by_its_own_exit_code(kit: Kit) -> None:
    loop(kit)
    training(kit)
    kit.peer.send(PAUSE)
    ended = kit.ended()
    assert (ended["reason"], ended["exit_code"]) == ("paused", 75)
    assert "behind the loop" not in kit.peer.texts()


def test_a_request_is_never_lowered(kit: Kit) -> None:
    loop(kit)
    training(kit)
    kit.peer.send(PAUSE)
    kit.peer.send(Order(seq=2, stop=1, actor="bob"))
    assert kit.ended()["reason"] == "paused"


def test_a_program_without_the_sdk_is_stopped_by_signals(kit: Kit) -> None:
    kit.python("import time; print('up')\ntry: time.sleep(1000)\nexcept KeyboardInterrupt: print('interrupted')")
    until(lambda: "up" in kit.peer.texts(), "the program")
    kit.peer.send(FINISH)
    assert kit.ended()["reason"] == "stopped"
    assert rungs(kit) == ["flag", "interrupt"]
    assert "interrupted" in kit.peer.texts()


def test_a_slow_import_of_the_sdk_is_not_interrupted(kit: Kit) -> None:
    code = """
        import os, time
        from pathlib import Path
        from whistlestop.channel.control import Control
        from whistlestop.channel.layout import Word
        control = Control.open(Path(os.environ["WHISTLE_CHANNEL"]) / "control")
        control[Word.IMPORTED] = 1
        print("importing")
        while not os.path.exists("imported"): time.sleep(0.001)
        control[Word.ATTACHED] = 1
    """
    kit.python(code, ladder={"attach": 0.0})
    until(lambda: "importing" in kit.peer.texts(), "the program")
    kit.peer.send(FINISH)
    until(lambda: rungs(kit), "the ladder")
    (kit.work / "imported").touch()
    assert kit.ended()["reason"] == "stopped"
    assert rungs(kit) == ["flag"]


def test_a_damaged_journal_is_told_of_once(kit: Kit) -> None:
    kit.python("""
        import os, time
        open(os.environ["WHISTLE_CHANNEL"] + "/metrics-7.000000.journal", "wb").write(b"nonsense" * 10)
        time.sleep(1000)
    """)
    notice = until(lambda: [event for event in kit.peer.events() if event.kind == "notice"], "words")[0]
    assert "metrics-7" in notice.text
    kit.peer.send(KILL)
    kit.ended()
    assert kit.peer.kinds().count("notice") == 1


def test_a_program_that_answers_nothing_climbs_to_the_top(kit: Kit) -> None:
    ignore = "for n in (2, 15): signal.signal(n, signal.SIG_IGN)"
    kit.python(
        f"import signal, time\n{ignore}\nprint('up'); time.sleep(1000)", ladder={"interrupt": 0.2, "terminate": 0.2}
    )
    until(lambda: "up" in kit.peer.texts(), "the program")
    kit.peer.send(FINISH)
    ended = kit.ended()
    assert (ended["reason"], ended["signal"]) == ("stop_unanswered", signal.SIGKILL)
    assert rungs(kit) == ["flag", "interrupt", "terminate", "kill"]


def test_a_kill_waits_for_a_save_in_flight(kit: Kit) -> None:
    code = """
        import os, time
        from pathlib import Path
        from whistlestop.channel.control import Control
        from whistlestop.channel.layout import Word
        control = Control.open(Path(os.environ["WHISTLE_CHANNEL"]) / "control")
        control[Word.ATTACHED] = 1
        control[Word.SAVING] = 8
        print("saving")
        while not control[Word.STOP_LEVEL]: time.sleep(0.001)
        time.sleep(0.3)
        print("saved"); control[Word.SAVING] = 0
        time.sleep(1000)
    """
    kit.python(code)
    until(lambda: "saving" in kit.peer.texts(), "the program")
    kit.peer.send(KILL)
    assert kit.ended()["reason"] == "killed"
    assert "saved" in kit.peer.texts()


def test_a_kill_waits_no_longer_than_it_was_told(kit: Kit) -> None:
    code = """
        import os, time
        from pathlib import Path
        from whistlestop.channel.control import Control
        from whistlestop.channel.layout import Word
        control = Control.open(Path(os.environ["WHISTLE_CHANNEL"]) / "control")
        control[Word.ATTACHED] = 1; control[Word.SAVING] = 8
        print("saving"); time.sleep(1000)
    """
    kit.python(code)
    until(lambda: "saving" in kit.peer.texts(), "the program")
    asked = time.time()
    kit.peer.send(Order(seq=1, stop=3, actor="ann", kill_save=0.2))
    assert 0.2 <= kit.ended()["gone_at"] - asked < 15


def test_a_train_phase_at_its_time_limit_is_stopped_and_keeps_its_result(kit: Kit) -> None:
    loop(kit, time_limit=1.5, ladder={"attach": 10})
    ended = kit.ended()
    assert (ended["reason"], ended["loop"]) == ("stopped", "stopped")
    assert [event.data for event in kit.peer.events() if event.kind == "order_seen"]


SAVES_TAKE = """
    import os, time
    from pathlib import Path
    from whistlestop.channel.control import Control
    from whistlestop.channel.layout import Word
    control = Control.open(Path(os.environ["WHISTLE_CHANNEL"]) / "control")
    control.set_seconds(Word.SAVE_SECONDS, {})
    control[Word.ATTACHED] = 1
    while not control[Word.STOP_LEVEL]: time.sleep(0.01)
    print("asked")
"""


def test_the_limit_counts_from_the_launch_and_a_clock_that_is_wrong_does_not_shorten_it(tmp_path: Path) -> None:
    control, now = Control.create(tmp_path / "control"), time.time()
    assert TimeLimit(control, 10.0, now - 11.0).is_due()
    for launched_at in (0.0, now - 5.0, now + 3600.0, now - 86400.0):
        assert not TimeLimit(control, 10.0, launched_at).is_due()
    assert not TimeLimit(control, None, now - 11.0).is_due()


def test_the_last_save_begins_early_enough_to_be_durable_at_the_limit(kit: Kit) -> None:
    kit.python(SAVES_TAKE.format("990.0"), time_limit=1000.0)
    until(lambda: "asked" in kit.peer.texts(), "the stop, long before the limit")


@pytest.mark.parametrize("nonsense", ["-1e9", "float('nan')", "-float('inf')"])
def test_a_program_can_not_put_its_limit_off(kit: Kit, nonsense: str) -> None:
    kit.python(SAVES_TAKE.format(nonsense), time_limit=0.5)
    until(lambda: "asked" in kit.peer.texts(), "the stop")


def test_a_program_without_the_sdk_at_its_time_limit_names_it_as_the_reason(kit: Kit) -> None:
    kit.launch("sleep", "1000", time_limit=0.5, ladder={"attach": 0.0})
    ended = kit.ended()
    assert ended["reason"] == "stopped"
    assert ended["stop_reasons"][0]["reason"] == "time_limit"


@pytest.mark.parametrize(
    ("why", "who"), [("time_limit", "time limit"), ("budget_exhausted", "budget"), ("deadline", "deadline")]
)
def test_a_task_whose_time_is_up_fails_and_says_what_its_time_came_from(kit: Kit, why: str, who: str) -> None:
    kit.launch("sleep", "1000", kind="task", time_limit=0.3, limit_reason=why)
    ended = kit.ended()
    assert ended["reason"] == "time_limit"
    assert f"asked to end by its {who}; " in ended["evidence"]


def test_a_notice_that_the_capacity_goes_makes_the_loop_save_and_leave(kit: Kit) -> None:
    job = loop(kit)
    training(kit)
    os.kill(kit.runner_pid(job), signal.SIGTERM)  # type: ignore[arg-type]
    assert kit.ended()["reason"] == "preempted"


def test_a_program_without_the_sdk_is_preempted_by_the_same_signal(kit: Kit) -> None:
    job = kit.launch("/bin/sh", "-c", "echo up; sleep 1000")
    until(lambda: "up" in kit.peer.texts(), "the program")
    os.kill(kit.runner_pid(job), signal.SIGTERM)
    assert kit.ended()["reason"] == "preempted"


def test_a_command_that_does_not_exist_is_explained(kit: Kit) -> None:
    kit.launch("no-such-command")
    ended = kit.ended()
    assert ended["reason"] == "command_not_found"
    assert "PATH" in ended["evidence"]


def test_a_crash_is_told_with_its_last_error_line(kit: Kit) -> None:
    kit.python("raise RuntimeError('boom')")
    ended = kit.ended()
    assert (ended["reason"], ended["exit_code"]) == ("code_raised", 1)
    assert "RuntimeError: boom" in ended["evidence"]


def test_a_signal_from_elsewhere_is_not_taken_for_ours(kit: Kit) -> None:
    kit.launch("/bin/sh", "-c", "kill -SEGV $$")
    ended = kit.ended()
    assert (ended["reason"], ended["signal"]) == ("signalled", signal.SIGSEGV)


def test_leaving_in_the_middle_of_the_loop_is_not_success(kit: Kit) -> None:
    kit.python("import os, whistlestop\nwith whistlestop.run() as run:\n  for s in run.steps(total=9): os._exit(0)")
    assert kit.ended()["reason"] == "ended_early"


def test_the_environment_is_complete_and_the_users_path_is_kept(kit: Kit) -> None:
    job = kit.launch(
        "/bin/sh",
        "-c",
        "echo $PYTHONPATH $MINE $WHISTLE_RUN $WHISTLE_PHASE $WHISTLE_ATTEMPT_NUMBER $PYTHONUNBUFFERED;"
        "echo $WHISTLE_CHANNEL; pwd",
        env={"PYTHONPATH": "/theirs", "MINE": "yes"},
        sdk_path="/ours",
    )
    kit.ended()
    assert kit.peer.texts() == ["/ours:/theirs yes r-1 train 1 1", str(kit.directory(job)), str(kit.work)]


def test_standard_input_is_empty_and_signals_are_as_usual(kit: Kit) -> None:
    kit.launch("/bin/sh", "-c", "cat; grep -E 'SigIgn|SigBlk' /proc/self/status")
    kit.ended()
    libc_own = 0b11 << 31  # 32 and 33, which some parents leave ignored
    assert [int(line.split()[1], 16) & ~libc_own for line in kit.peer.texts()] == [0, 0]


def test_system_samples_are_shipped(kit: Kit) -> None:
    kit.launch("sleep", "1000")
    until(lambda: "metrics-sys" in kit.peer.streams, "samples")
    records = list(parse(bytes(kit.peer.streams["metrics-sys"])))
    names = next(record.names() for record in records if record.kind == Kind.SHAPE)
    assert {"system/cpu_percent", "system/memory_bytes", "system/processes"} <= set(names)


def save(kit: Kit, step: int, phase: str = "train", attempt: int = 1, **meta: Any) -> Path:
    writer = CheckpointStore(kit.root / "checkpoints").begin(phase, step, attempt, "a-before")
    writer.add_bytes("state", b"weights" * 1000)
    return writer.commit({"metrics": {"loss": 0.5}, **meta}).path


def test_the_newest_verified_checkpoint_is_given_and_damaged_ones_are_set_aside(kit: Kit) -> None:
    good, bad = save(kit, 5), save(kit, 6)
    (bad / "state").write_bytes(b"torn")
    kit.launch("/bin/sh", "-c", "echo $WHISTLE_RESTORE")
    kit.ended()
    assert kit.peer.texts() == [str(good)]
    started = next(event for event in kit.peer.events() if event.kind == "program_started")
    assert started.data["restored_step"] == 5
    aside = [event.data["path"] for event in kit.peer.events() if event.kind == "checkpoint_set_aside"]
    assert str(bad) in aside
    adopted = [event.data for event in kit.peer.events() if event.kind == "checkpoint"]
    assert [(each["step"], each["verified"], each["metrics"]) for each in adopted] == [(5, True, {"loss": 0.5})]


@pytest.mark.parametrize("left", ["damaged", "nothing"])
def test_it_never_starts_from_zero_when_checkpoints_were_committed(kit: Kit, left: str) -> None:
    if left == "damaged":
        (save(kit, 5) / "state").write_bytes(b"torn")
    kit.launch("/bin/sh", "-c", "touch started", must_restore=True)
    assert kit.ended()["reason"] == "checkpoint_unusable"
    assert list(kit.work.iterdir()) == []


def test_a_poisoned_checkpoint_is_not_called_damaged(kit: Kit) -> None:
    good, poisoned = save(kit, 5), save(kit, 6, healthy=False)
    kit.launch("/bin/sh", "-c", "echo $WHISTLE_RESTORE")
    kit.ended()
    assert kit.peer.texts() == [str(good)]
    told = [event for event in kit.peer.events() if event.kind == "checkpoint_set_aside"]
    assert [(event.data["path"], event.data["why"]) for event in told] == [
        (str(poisoned), "a value was not finite before it was saved")
    ]
    assert told[0].text == (
        "The checkpoint of step 6 is passed over: a value was not finite before it was saved. "
        "To go on from it all the same: whistle continue r-1 --step 6"
    )


def test_where_every_checkpoint_is_poisoned_it_is_said_how_to_go_on_all_the_same(kit: Kit) -> None:
    paths = [save(kit, step, healthy=False) for step in (5, 6)]
    kit.launch("/bin/sh", "-c", "touch started", must_restore=True)
    ended = kit.ended()
    assert ended["reason"] == "checkpoint_unusable"
    assert "a value was not finite before they were saved" in ended["evidence"]
    assert "whistle continue r-1 --step 6" in ended["evidence"]
    assert "damaged" not in ended["evidence"]
    assert [ended["evidence"].count(str(path)) for path in paths] == [1, 1]
    assert list(kit.work.iterdir()) == []


def test_damaged_and_poisoned_checkpoints_are_told_apart_each_once(kit: Kit) -> None:
    torn, poisoned = save(kit, 5), save(kit, 6, healthy=False)
    (torn / "state").write_bytes(b"torn")
    kit.launch("/bin/sh", "-c", "touch started", must_restore=True)
    said = kit.ended()["evidence"]
    assert said.count(str(torn)) == said.count(str(poisoned)) == 1
    assert "has 4 bytes instead of" in said
    assert "a value was not finite before it was saved" in said


def test_the_loop_is_part_of_the_progress(tmp_path: Path) -> None:
    control = Control.create(tmp_path / "control")
    control[Word.LOOP] = Loop.FINISHED
    said = progress.read(control, task=False, started=True, stopping=False, ending=False)
    assert said.loop == Loop.FINISHED
    control[Word.LOOP] = 77
    assert progress.read(control, task=False, started=True, stopping=False, ending=False).loop == 0
    control.close()


def test_inputs_of_earlier_phases_are_given_by_name(kit: Kit) -> None:
    path, elsewhere = save(kit, 5, "pre-train"), save(kit, 7, "other")
    kit.launch(
        "/bin/sh",
        "-c",
        "echo $WHISTLE_INPUT_PRE_TRAIN $WHISTLE_INPUT_FAR",
        inputs=[Input(phase="pre-train"), Input(phase="far", path=str(elsewhere))],
    )
    kit.ended()
    assert kit.peer.texts() == [f"{path} {elsewhere}"]


def test_checkpoints_of_the_program_are_verified_before_the_end_and_old_ones_go(kit: Kit) -> None:
    code = """
        import os, time
        from pathlib import Path
        from whistlestop.blobs import staged
        from whistlestop.channel.journal import JournalWriter
        from whistlestop.testing.slots import lay
        journal = JournalWriter(Path(os.environ["WHISTLE_CHANNEL"]), "events-0")
        slot = Path(os.environ["WHISTLE_STAGE"], "slot-0")
        for step in range(1, 6):
            lay(slot, step, files={"state": b"x" * 100}, id=os.environ["WHISTLE_ATTEMPT"])
            if step < 5: journal.event({"kind": "staged", "dir": str(slot)})
            while step < 5 and not staged.is_free(slot): time.sleep(0.01)
    """
    kit.python(code, checkpoint_keep=2)
    ended = kit.ended()
    assert ended["saved_step"] == 5
    events = kit.peer.events()
    assert [event.data["step"] for event in events if event.kind == "checkpoint"] == [1, 2, 3, 4, 5]
    assert events[-1].kind == "ended"
    kept = CheckpointStore(kit.root / "checkpoints").list("train")
    assert [each.step for each in kept] == [5, 4]


def test_a_bundle_that_can_not_be_read_fails_with_words(kit: Kit) -> None:
    (kit.root / "bundle.tar").write_bytes(b"no tar at all" * 100)
    kit.launch("true", bundle=str(kit.root / "bundle.tar"))
    ended = kit.ended()
    assert ended["reason"] == "prepare_failed"
    assert "bundle" in ended["evidence"]


LOADED_LATE = """
    import sys, time
    from pathlib import Path

    class Late:
        def find_spec(self, name, path=None, target=None):
            if name == "whistlestop.runner.supervise":
                deadline = time.monotonic() + 20
                while not Path("STARTED").exists() and time.monotonic() < deadline:
                    time.sleep(0.01)

    sys.meta_path.insert(0, Late())
"""


def test_what_resumes_quickly_starts_before_the_rest_of_its_runner_is_loaded(kit: Kit) -> None:
    save(kit, 1)
    started = time.monotonic()
    patch = LOADED_LATE.replace("STARTED", str(kit.work / "started"))
    process = kit.patched(patch, "/bin/sh", "-c", "touch started; echo $WHISTLE_RESTORE")
    assert kit.ended()["reason"] == "finished"
    assert time.monotonic() - started < 20
    assert kit.peer.texts()[0].endswith("/train/step-000000000001-1")
    process.wait(20)


def test_a_kill_while_preparing_starts_nothing(kit: Kit) -> None:
    os.mkfifo(kit.root / "bundle.tar")  # opening it hangs: a very slow disk
    save(kit, 1)
    kit.peer.order = KILL
    job = kit.launch("/bin/sh", "-c", "touch started", bundle=str(kit.root / "bundle.tar"))
    assert kit.ended()["reason"] == "killed"
    kit.wait_done(job)
    assert list(kit.work.iterdir()) == []


def test_a_log_flood_stays_within_its_limit(kit: Kit) -> None:
    kit.python("for i in range(200_000): print('line', i)", log_limit=100_000)
    kit.ended()
    until(lambda: kit.peer.texts()[-1:] == ["line 199999"], "the last line")
    assert len(kit.peer.streams["logs"]) < 300_000
    dropped = next(event for event in kit.peer.events() if event.kind == "dropped")
    assert dropped.data["lines"] > 190_000
