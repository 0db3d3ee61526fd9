"""Ends: every cause by its own words, the root of a chain, the rank that failed first, and what to do exactly."""

from typing import Any

import pytest

from whistlestop.diagnosis.endings import findings
from whistlestop.diagnosis.evidence import End, Evidence, HostRecord, Line, Place, Series, Told
from whistlestop.diagnosis.findings import Cause, Finding
from whistlestop.testing.error_words import SAID

FRAMES = """\
Traceback (most recent call last):
  File "/srv/run/train.py", line 40, in main
    step(batch)
  File "/env/lib/python3.11/site-packages/library/inner.py", line 3, in call
    return native()
           ^^^^^^^^"""


def lines(text: str, *, rank: int = 0, at: float = 10.0, stream: str = "err") -> list[Line]:
    return [Line(at, stream, rank, each) for each in text.splitlines()]


def ended(
    *said: Line, reason: str = "code_raised", code: int | None = 1, signal: str | None = None, **more: Any
) -> Evidence:
    end = End(1, reason, f"exit code {code}", "node-3", code, signal, 120, 11.0)
    place = Place("ending", 120, 400, started_at=1.0, ended_at=11.0)
    return Evidence(**{"now": 12.0, "status": "failed", "place": place, "ends": (end,), "lines": said, **more})


def only(evidence: Evidence) -> Finding:
    (found,) = findings(evidence)
    return found


@pytest.mark.parametrize(("cause", "said"), [(cause, text) for cause, all_of in SAID.items() for text in all_of])
def test_the_words_of_a_library_are_understood(cause: Cause, said: str) -> None:
    found = only(ended(*lines(f"{FRAMES}\n{said}")))
    assert found.cause is cause
    assert found.evidence[0][:60] == said[:60]
    assert "train.py:40 in main: step(batch)" in " ".join(found.evidence)


@pytest.mark.parametrize("reason", ["finished", "stopped", "paused", "killed", "preempted", "time_limit"])
def test_an_end_that_was_asked_for_has_no_cause(reason: str) -> None:
    assert not findings(ended(*lines(f"{FRAMES}\nKeyError: 'x'"), reason=reason))


def test_a_run_that_has_got_on_since_has_none() -> None:
    past = ended(*lines(f"{FRAMES}\nMemoryError"), attempts=2, place=Place("training", 130, 400, started_at=20.0))
    assert not findings(past)


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("ModuleNotFoundError: No module named 'cv2'", "pip install opencv-python"),
        ("ModuleNotFoundError: No module named 'sklearn.linear_model'", "pip install scikit-learn"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'", "data/train.csv"),
        ("PermissionError: [Errno 13] Permission denied: '/mnt/out/a.bin'", "/mnt/out/a.bin"),
        ("OSError: [Errno 122] Disk quota exceeded: '/home/user/out.bin'", "/home/user/out.bin"),
        ("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='data.example.org', port=443)", "data.example"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "2.00 GiB"),
        ("NameError: name 'los' is not defined", "/srv/run/train.py line 40"),
    ],
)
def test_what_to_do_names_the_package_the_path_or_the_line(text: str, does: str) -> None:
    assert does in only(ended(*lines(f"{FRAMES}\n{text}"))).what_to_do


def test_a_batch_size_that_was_seen_is_halved() -> None:
    said = (
        *lines("Namespace(lr=0.1, batch_size=256)", stream="out"),
        *lines(f"{FRAMES}\nRuntimeError: CUDA out of memory."),
    )
    assert "batch_size 256, try 128" in only(ended(*said)).what_to_do


def test_a_missing_variable_of_the_environment_is_named() -> None:
    text = (
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    key = os.environ["DATA_DIR"]\n'
    )
    text += "  File \"<frozen os>\", line 679, in __getitem__\nKeyError: 'DATA_DIR'"
    found = only(ended(*lines(text)))
    assert (found.cause, "Set DATA_DIR" in found.what_to_do) == (Cause.WRONG_CONFIG, True)


def test_of_direct_causes_the_first_one_counts() -> None:
    link = "\n\nThe above exception was the direct cause of the following exception:\n\n"
    text = f"{FRAMES}\nOSError: [Errno 28] No space left on device{link}{FRAMES}\nRuntimeError: the save failed"
    assert only(ended(*lines(text))).cause is Cause.DISK_FULL


def test_a_cache_that_was_empty_is_not_the_cause_if_the_network_was_away_too() -> None:
    link = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    text = f"{FRAMES}\nFileNotFoundError: [Errno 2] No such file or directory: 'cache/x'{link}{FRAMES}\n"
    assert only(ended(*lines(f"{text}socket.gaierror: [Errno -2] Name or service not known"))).cause is Cause.NETWORK


def test_what_goes_wrong_while_cleaning_up_is_not_the_cause() -> None:
    link = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    text = (
        f"{FRAMES}\nRuntimeError: CUDA out of memory.{link}{FRAMES}\nFileNotFoundError: [Errno 2] No such file: 'tmp'"
    )
    assert only(ended(*lines(text))).cause is Cause.DEVICE_MEMORY


def test_an_exception_that_python_ignores_is_ignored() -> None:
    text = f"{FRAMES}\nKeyError: 'labels'\nException ignored in: <function Pool.__del__ at 0x7f>\n{FRAMES}\n"
    assert only(ended(*lines(f"{text}OSError: [Errno 28] No space left on device"))).cause is Cause.CODE_ERROR


def test_of_a_loader_s_worker_its_own_exception_counts() -> None:
    text = f"{FRAMES}\nRuntimeError: Caught FileNotFoundError in DataLoader worker process 0.\n"
    text += 'Original Traceback (most recent call last):\n  File "/srv/run/data.py", line 9, in load\n    open(path)\n'
    found = only(ended(*lines(f"{text}FileNotFoundError: [Errno 2] No such file or directory: '/data/7.png'")))
    assert found.cause is Cause.MISSING_FILE
    assert "data.py:9" in found.says


def test_the_rank_that_failed_first_is_named_not_those_that_lost_it() -> None:
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:46116"
    said = (
        *lines(f"{FRAMES}\n{lost}", rank=0, at=10.0),
        *lines(f"{FRAMES}\nValueError: could not convert string to float: 'N/A'", rank=3, at=10.2),
        *lines(f"{FRAMES}\n{lost}", rank=1, at=10.1),
    )
    found = only(ended(*said))
    assert (found.cause, found.rank) == (Cause.BAD_DATA, 3)


def test_ranks_are_told_apart_by_their_prefix() -> None:
    marked = "\n".join(f"[rank1]: {line}" for line in f"{FRAMES}\nMemoryError".splitlines())
    other = "\n".join(f"[rank0]: {line}" for line in f"{FRAMES}\nRuntimeError: NCCL error: unhandled".splitlines())
    mixed = [line for pair in zip(marked.splitlines(), other.splitlines(), strict=True) for line in pair]
    found = only(ended(*lines("\n".join(mixed))))
    assert (found.cause, found.rank) == (Cause.HOST_MEMORY, 1)


def test_the_rank_that_the_sdk_saw_die_first_counts() -> None:
    said = (*lines(f"{FRAMES}\nKeyError: 'a'", rank=1), *lines(f"{FRAMES}\nMemoryError", rank=2, at=10.5))
    died = Told(10.0, "program", "", {"kind": "rank_died", "rank": 2})
    assert only(ended(*said, told=(died,))).rank == 2


def test_a_launcher_only_tells_of_another_s_failure() -> None:
    text = f"{FRAMES}\nKeyError: 'labels'\n{FRAMES}\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
    assert only(ended(*lines(text))).cause is Cause.CODE_ERROR


@pytest.mark.parametrize(
    ("signal", "cause"),
    [
        ("SIGSEGV", Cause.CRASHED),
        ("SIGABRT", Cause.CRASHED),
        ("SIGBUS", Cause.CRASHED),
        ("SIGILL", Cause.CRASHED),
        ("SIGFPE", Cause.CRASHED),
        ("SIGKILL", Cause.KILLED_OUTSIDE),
        ("SIGTERM", Cause.KILLED_OUTSIDE),
        ("9", Cause.KILLED_OUTSIDE),
    ],
)
def test_a_signal_comes_from_inside_or_from_outside(signal: str, cause: Cause) -> None:
    assert only(ended(reason="signalled", code=None, signal=signal)).cause is cause


@pytest.mark.parametrize(("code", "cause"), [(139, Cause.CRASHED), (137, Cause.KILLED_OUTSIDE), (134, Cause.CRASHED)])
def test_a_shell_s_code_says_as_much(code: int, cause: Cause) -> None:
    assert only(ended(code=code)).cause is cause


def test_where_it_crashed_is_told_by_faulthandler() -> None:
    text = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n"
    text += '  File "/env/lib/python3.11/site-packages/x.py", line 1 in f\n  File "/srv/run/train.py", line 7 in step'
    assert "train.py:7 in step" in only(ended(*lines(text), reason="signalled", code=None, signal="SIGSEGV")).says


def test_a_bus_error_with_shared_memory_left_over_is_too_little_of_it() -> None:
    text = "UserWarning: resource_tracker: There appear to be 1 leaked shared_memory objects to clean up at shutdown"
    assert only(ended(*lines(text), reason="signalled", code=None, signal="SIGBUS")).cause is Cause.SHARED_MEMORY


def test_a_watchdog_of_collectives_aborts_the_program() -> None:
    text = "[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=82)"
    assert only(ended(*lines(text), reason="signalled", code=None, signal="SIGABRT")).cause is Cause.COMMUNICATION


def test_memory_that_grew_without_end_is_told_with_a_kill() -> None:
    grown = tuple(1e9 * each for each in range(1, 21))
    used = Series("system/memory_bytes", tuple(range(20)), grown, tuple(map(float, range(20))), kind="system")
    found = only(ended(reason="signalled", code=None, signal="SIGKILL", series=(used,)))
    assert found.cause is Cause.KILLED_OUTSIDE
    assert "grew from 2.0 to 20.0 GB" in found.evidence[0]


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("out_of_memory", Cause.HOST_MEMORY),
        ("ended_early", Cause.ENDED_EARLY),
        ("command_not_found", Cause.COMMAND_NOT_FOUND),
        ("storage_unfit", Cause.SAVES_FAIL),
        ("checkpoint_unusable", Cause.BAD_DATA),
    ],
)
def test_what_the_runner_knows_by_itself_needs_no_words(reason: str, cause: Cause) -> None:
    assert only(ended(reason=reason, code=0)).cause is cause


@pytest.mark.parametrize(
    ("said", "code", "cause"),
    [
        ("usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --batchsize 32", 2, Cause.WRONG_CONFIG),
        ("Usage: train [OPTIONS]\nError: No such option: --lrr", 2, Cause.WRONG_CONFIG),
        ("bash: line 1: trian.py: command not found", 127, Cause.COMMAND_NOT_FOUND),
        ("sh: 1: ./train.sh: Permission denied", 126, Cause.NOT_ALLOWED),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.", 1, Cause.HOST_MEMORY),
        ("ERROR: CUDA out of memory, giving up", 1, Cause.DEVICE_MEMORY),
    ],
)
def test_words_without_a_traceback_are_read_too(said: str, code: int, cause: Cause) -> None:
    assert only(ended(*lines(said), code=code)).cause is cause


def test_an_error_that_was_survived_long_ago_is_not_the_cause() -> None:
    said = (*lines(f"{FRAMES}\nConnectionRefusedError: [Errno 111] Connection refused", at=1.0),
            *lines("step 2", stream="out", at=900.0), *lines(f"{FRAMES}\nKeyError: 'labels'", at=1000.0))  # fmt: skip
    assert only(ended(*said)).cause is Cause.CODE_ERROR


def test_without_a_word_it_says_that_there_was_none() -> None:
    found = only(ended(code=3))
    assert found.cause is Cause.CODE_ERROR
    assert found.confidence < 0.7
    assert "exit code 3" in found.says


def test_a_whole_log_is_not_quoted() -> None:
    flood = lines("\n".join(f"step {number}" for number in range(400)), stream="out")
    found = only(ended(*flood, *lines(f"{FRAMES}\nValueError: {'x' * 5000}")))
    assert len("".join(found.evidence)) < 2000


def test_the_same_failure_on_one_host_only_is_the_host_s() -> None:
    record = HostRecord("node-3", good=0, failed=2, elsewhere=2)
    failed = ended(*lines(f"{FRAMES}\nRuntimeError: CUDA error: unspecified launch failure"), hosts=(record,))
    causes = {each.cause: each for each in findings(failed)}
    assert set(causes) == {Cause.DEVICE_FAULT, Cause.BAD_HOST}
    assert "whistle hosts exclude node-3" in causes[Cause.BAD_HOST].what_to_do


@pytest.mark.parametrize(
    "record", [HostRecord("node-3", 40, 10, 0), HostRecord("node-9", 0, 5, 5), HostRecord("node-3", 0, 0, 0)]
)
def test_a_host_where_others_get_on_is_not_blamed(record: HostRecord) -> None:
    failed = ended(*lines(f"{FRAMES}\nRuntimeError: CUDA error: unspecified launch failure"), hosts=(record,))
    assert [each.cause for each in findings(failed)] == [Cause.DEVICE_FAULT]
