"""Signals in real programs: threads, notebooks, launchers, shells, and handlers of the user's own."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.sdk import interrupts
from whistlestop.sdk.interrupts import Interrupts
from whistlestop.testing.missing import missing
from whistlestop.testing.wait import until

MARK = "MARK_OF_THE_TEST"  # in the environment of every process that a test starts, however deep

LOOP = r"""
def train(name="demo", tell=25):
    with whistlestop.run(name) as run:
        state = {"steps": 0}
        run.track(state=state)
        for step in run.steps():
            state["steps"] += 1
            if step == tell:
                print("inside\n", end="", flush=True)  # in one piece: two threads may do it
        print(f"behind {state['steps']}\n", end="", flush=True)
"""


@pytest.fixture(autouse=True)
def own_ctrl_c() -> Iterator[None]:
    """A shell may have told its background jobs to ignore SIGINT; children would inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Started:
    """A process in a session of its own, so that a whole group can be signalled as a terminal does it."""

    def __init__(self, command: list[str], directory: Path, mark: str) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WHISTLE_")}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            clean.pop(name, None)
        self.mark = mark
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            env={**clean, MARK: mark, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.stdout = self.stderr = ""

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def send_until_it_ends(self, number: int) -> None:
        """A signal that comes while Python's main thread is on its way into a wait is only seen with the next one."""
        while True:
            self.send(number)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                continue
            return

    def send_group(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def end(self) -> int:
        self.stdout, self.stderr = self.process.communicate(timeout=30)
        return self.process.returncode

    def left(self) -> list[psutil.Process]:
        """Processes that are still there, in whatever session they hide."""
        found = []
        for each in psutil.process_iter():
            try:
                if each.status() != psutil.STATUS_ZOMBIE and each.environ().get(MARK) == self.mark:
                    found.append(each)
            except (psutil.Error, OSError):
                pass
        return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """`start(script)` runs it with Python; `start(script, command=[...])` runs that, with `x.py` written beside it."""
    started: list[Started] = []

    def begin(script: str, command: list[str] | None = None) -> Started:
        (tmp_path / "x.py").write_text(
            "import os, signal, sys, threading, time, whistlestop\n" + LOOP + textwrap.dedent(script)
        )
        started.append(Started(command or [sys.executable, "x.py"], tmp_path, uuid.uuid4().hex))
        return started[-1]

    yield begin
    for each in started:
        for process in each.left():
            process.kill()
        each.process.communicate()


def saved(directory: Path, name: str = "demo") -> list[int]:
    return [each.step for each in CheckpointStore(directory / "whistle-checkpoints" / name).list("run-001")]


def assert_stopped_gracefully(child: Started, directory: Path) -> None:
    """The code behind the loop ran, and the checkpoint is that of the loop's last step."""
    words = child.stdout.split()
    assert "behind" in words, (child.stdout, child.stderr)
    steps = int(words[words.index("behind") + 1])
    assert steps > 25
    assert saved(directory)[0] == steps


# Threads.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_in_another_thread_sees_the_signal_if_the_main_thread_listens(
    start: Callable[..., Started], tmp_path: Path, number: signal.Signals
) -> None:
    child = start(
        """
        from whistlestop.sdk.interrupts import listen
        listen()
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        print("joined", flush=True)
        """
    )
    assert child.line() == "inside"
    child.send(number)
    assert child.end() == 0, child.stderr
    assert_stopped_gracefully(child, tmp_path)
    assert child.stdout.split()[-1] == "joined"


@pytest.mark.parametrize("joins", [True, False])
def test_ctrl_c_in_the_main_thread_ends_the_loop_of_another_one_with_a_save(
    start: Callable[..., Started], tmp_path: Path, joins: bool
) -> None:
    waits = "thread.join()" if joins else "signal.pause()"
    child = start(f"thread = threading.Thread(target=train)\nthread.start()\n{waits}\n")
    assert child.line() == "inside"
    child.send(signal.SIGINT)
    assert child.end() == -signal.SIGINT
    assert_stopped_gracefully(child, tmp_path)


def test_a_run_that_the_main_thread_left_open_does_not_keep_the_program(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    child = start(
        """
        run = whistlestop.run("mine")
        run.restore()
        threading.Thread(target=train).start()
        sys.stdin.readline()
        raise KeyboardInterrupt
        """
    )
    assert child.line() == "inside"
    child.say("go")
    assert child.end() == -signal.SIGINT
    assert_stopped_gracefully(child, tmp_path)


@pytest.mark.parametrize("end", ["pass", "sys.exit(3)", "raise ValueError"])
def test_a_main_thread_that_ends_without_ctrl_c_stops_nobody(start: Callable[..., Started], end: str) -> None:
    child = start(
        f"""
        def short():
            with whistlestop.run("demo") as run:
                for step in run.steps(total=50):
                    if step == 1:
                        begun.set()
                        threading.main_thread().join()
                print("all", int(step), flush=True)

        begun = threading.Event()
        threading.Thread(target=short).start()
        begun.wait()
        {end}
        """
    )
    child.end()
    assert child.stdout.split() == ["all", "49"], child.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_also_ends_a_program_that_trains_in_another_thread(
    start: Callable[..., Started], number: signal.Signals
) -> None:
    child = start(
        """
        from whistlestop.sdk.interrupts import listen
        listen()

        def stuck():
            with whistlestop.run("demo") as run:
                for step in run.steps():
                    print("inside", flush=True)
                    while not run.should_stop:
                        pass
                    print("told", flush=True)
                    threading.Event().wait()

        thread = threading.Thread(target=stuck)
        thread.start()
        thread.join()
        """
    )
    assert child.line() == "inside"
    child.send(number)
    assert child.line() == "told"
    child.send_until_it_ends(number)
    assert child.end() == -number


def test_runs_in_several_threads_all_see_one_signal(start: Callable[..., Started], tmp_path: Path) -> None:
    child = start(
        """
        thread = threading.Thread(target=train, args=("other",))
        thread.start()
        train("demo")
        thread.join()
        """
    )
    assert [child.line(), child.line()] == ["inside", "inside"]
    child.send(signal.SIGTERM)
    assert child.end() == 0, child.stderr
    assert child.stdout.count("behind") == 2
    assert saved(tmp_path, "demo")
    assert saved(tmp_path, "other")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGUSR1, 9)]
)
def test_listening_changes_nothing_while_no_run_is_open(
    start: Callable[..., Started], number: signal.Signals, code: int
) -> None:
    child = start(
        f"""
        from whistlestop.sdk.interrupts import listen
        if {number:d} == signal.SIGUSR1:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
        listen()
        print("ready", flush=True)
        signal.pause()
        """
    )
    assert child.line() == "ready"
    child.send(signal.SIGTERM if number == signal.SIGUSR1 else number)
    assert child.end() == code


def test_a_forked_child_of_a_listening_program_can_be_terminated(start: Callable[..., Started]) -> None:
    child = start(
        """
        from whistlestop.sdk.interrupts import listen
        listen()
        with whistlestop.run("demo") as run:
            for step in run.steps(2):
                worker = os.fork()
                if worker == 0:
                    signal.pause()
                    os._exit(0)
                os.kill(worker, signal.SIGTERM)
                print(os.WTERMSIG(os.waitpid(worker, 0)[1]), flush=True)
        """
    )
    assert child.end() == 0, child.stderr
    assert child.stdout.split() == ["15", "15"]


def test_listening_in_another_thread_is_refused_in_words(start: Callable[..., Started]) -> None:
    child = start(
        """
        from whistlestop.sdk.interrupts import listen
        threading.Thread(target=listen).start()
        """
    )
    child.end()
    assert "main thread only" in child.stderr


# Handlers of the user's own.


def test_a_handler_set_before_us_is_called_and_is_there_again_afterwards(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    child = start(
        """
        def mine(number, frame):
            print("mine", flush=True)
        signal.signal(signal.SIGINT, mine)
        train()
        print(signal.getsignal(signal.SIGINT) is mine, flush=True)
        """
    )
    assert child.line() == "inside"
    child.send(signal.SIGINT)
    assert child.end() == 0, child.stderr
    assert child.stdout.split()[0] == "mine"
    assert child.stdout.split()[-1] == "True"
    assert_stopped_gracefully(child, tmp_path)


@pytest.mark.parametrize("where", ["before the loop", "in the loop"])
def test_a_handler_set_after_us_that_calls_ours_makes_one_signal_of_it(
    start: Callable[..., Started], tmp_path: Path, where: str
) -> None:
    child = start(
        f"""
        def set_mine():
            def mine(number, frame):
                print("mine", flush=True)
                if callable(ours):  # alone, ours comes with the loop
                    ours(number, frame)
            ours = signal.signal(signal.SIGTERM, mine)

        with whistlestop.run("demo") as run:
            if {where == "before the loop"}:
                set_mine()
            for step in run.steps():
                if step == 25:
                    if {where == "in the loop"}:
                        set_mine()
                    print("inside", flush=True)
            print("behind", int(step) + 1, run._interrupts.seen, flush=True)
        """
    )
    assert child.line() == "inside"
    child.send(signal.SIGTERM)
    assert child.end() == 0, child.stderr
    assert child.stdout.split()[0] == "mine"
    assert child.stdout.split()[-1] == "1"
    assert_stopped_gracefully(child, tmp_path)


def test_a_handler_set_in_the_loop_that_does_not_call_ours_has_its_way(start: Callable[..., Started]) -> None:
    child = start(
        """
        with whistlestop.run("demo") as run:
            for step in run.steps():
                if step == 25:
                    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
                    print("inside", flush=True)
        """
    )
    assert child.line() == "inside"
    child.send(signal.SIGTERM)
    assert child.end() == 7


def test_a_signal_that_is_ignored_stays_ignored_without_a_runner(start: Callable[..., Started], tmp_path: Path) -> None:
    """nohup, and a shell's background jobs."""
    child = start(
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        train()
        """
    )
    assert child.line() == "inside"
    child.send(signal.SIGINT)
    child.send(signal.SIGINT)
    child.send(signal.SIGTERM)
    assert child.end() == 0, child.stderr
    assert_stopped_gracefully(child, tmp_path)


def test_what_a_users_handler_raises_goes_its_way_and_the_flag_is_set(start: Callable[..., Started]) -> None:
    child = start(
        """
        class Mine(Exception):
            pass

        def mine(number, frame):
            raise Mine

        signal.signal(signal.SIGTERM, mine)
        with whistlestop.run("demo") as run:
            try:
                for step in run.steps():
                    try:
                        print("inside", flush=True) if step == 25 else None
                        while step == 25:
                            pass
                    except Mine:
                        print("caught", run.should_stop, flush=True)
            finally:
                print("behind", int(step), flush=True)
        """
    )
    assert child.line() == "inside"
    child.send(signal.SIGTERM)
    assert child.end() == 0, child.stderr
    assert child.stdout.split() == ["caught", "True", "behind", "25"]


def test_a_handler_that_c_code_has_set_is_left_alone(start: Callable[..., Started], tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        missing("a C compiler, on Linux")
    (tmp_path / "early.c").write_text(
        "#include <signal.h>\n#include <unistd.h>\n"
        "static void mine(int number) { _exit(41); }\n"
        "__attribute__((constructor)) static void set(void) { signal(SIGTERM, mine); }\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "early.so", "early.c"], cwd=tmp_path, check=True)
    child = start(
        """
        print(signal.getsignal(signal.SIGTERM), flush=True)
        train()
        """,
        command=["/usr/bin/env", f"LD_PRELOAD={tmp_path / 'early.so'}", sys.executable, "x.py"],
    )
    assert child.line() == "None"
    assert child.line() == "inside"
    child.send(signal.SIGTERM)
    assert child.end() == 41, child.stderr


def test_the_second_ctrl_c_ends_at_once(start: Callable[..., Started]) -> None:
    child = start(
        """
        with whistlestop.run("demo") as run:
            for step in run.steps():
                print("inside", flush=True)
                while not run.should_stop:
                    pass
                print("told", flush=True)
                threading.Event().wait()
        """
    )
    assert child.line() == "inside"
    child.send(signal.SIGINT)
    assert child.line() == "told"
    child.send(signal.SIGINT)
    assert child.end() == -signal.SIGINT
    assert "KeyboardInterrupt" in child.stderr


def test_ctrl_break_is_watched_where_it_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows only; here another signal stands in for it."""
    monkeypatch.setattr(signal, "SIGBREAK", signal.SIGUSR2, raising=False)
    woken: list[bool] = []
    told = Interrupts(second_ends=True, wake=lambda: woken.append(True))
    told.install()
    try:
        signal.raise_signal(signal.SIGUSR2)
        assert (told.seen, woken) == (1, [True])
    finally:
        told.restore()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    assert interrupts.watched() == (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)


# Shells, launchers, notebooks.


@pytest.mark.parametrize("tail", ["", "; true"])
def test_ctrl_c_in_a_shell_ends_the_program_gracefully(
    start: Callable[..., Started], tmp_path: Path, tail: str
) -> None:
    child = start("train()", command=["bash", "-c", f"{sys.executable} x.py{tail}"])
    assert child.line() == "inside"
    child.send_group(signal.SIGINT)
    assert child.end() == 0, child.stderr
    assert_stopped_gracefully(child, tmp_path)
    assert child.left() == []


def test_ctrl_c_does_not_take_the_data_from_the_step_that_runs(start: Callable[..., Started], tmp_path: Path) -> None:
    """A terminal sends it to the loader's workers too; a dead worker would be an error in the middle of the loop."""
    try:
        import torch  # noqa: F401
    except ImportError:
        missing("torch")
    child = start(
        """
        from torch.utils.data import DataLoader, Dataset

        class Slow(Dataset):
            def __len__(self):
                return 10**6

            def __getitem__(self, index):
                if index == 200:
                    while not os.path.exists("go"):
                        pass
                return index

        with whistlestop.run("demo") as run:
            batches = iter(DataLoader(Slow(), batch_size=4, num_workers=1, multiprocessing_context="fork"))
            for step in run.steps():
                if step == 50:
                    print("inside", flush=True)  # the signal finds the loop waiting for the batch with sample 200
                batch = next(batches)
            print("behind", int(step) + 1, batch.tolist(), flush=True)
        """
    )
    assert child.line() == "inside"
    child.send_group(signal.SIGINT)
    (tmp_path / "go").touch()
    assert child.end() == 0, child.stderr
    assert "behind 51 [200, 201, 202, 203]" in child.stdout
    assert_stopped_gracefully(child, tmp_path)
    until(lambda: not child.left(), what="the loader's worker is gone")


def test_torchrun_hands_sigterm_on_and_every_worker_leaves_its_loop(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        missing("torch")
    child = start(
        """
        rank = os.environ["RANK"]
        with whistlestop.run("demo") as run:
            state = {"steps": 0}
            run.track(state=state)
            for step in run.steps():
                state["steps"] += 1
                if step == 25:
                    open(f"inside-{rank}", "w").close()
            open(f"behind-{rank}", "w").close()
        """,
        command=[sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "x.py"],
    )
    until(
        lambda: (
            ((tmp_path / "inside-0").exists() and (tmp_path / "inside-1").exists()) or child.process.poll() is not None
        ),
        what="both workers are in their loops",
    )
    child.send(signal.SIGTERM)
    child.end()
    assert (tmp_path / "behind-0").exists(), child.stderr
    assert (tmp_path / "behind-1").exists(), child.stderr
    assert saved(tmp_path)
    until(lambda: not child.left(), what="nothing is left of it")


CELL = """
import whistlestop
with whistlestop.run("demo") as run:
    state = {"steps": 0}
    run.track(state=state)
    for step in run.steps():
        state["steps"] += 1
        if step == 25:
            print("inside", flush=True)
print("behind", state["steps"])
"""
# The loop in another cell than the beginning: the kernel sets its own handlers for every cell.
TWO_CELLS = [
    "import whistlestop\nrun = whistlestop.run('demo')\nstate = {'steps': 0}\nrun.track(state=state)\nrun.restore()",
    "for step in run.steps():\n"
    "    state['steps'] += 1\n"
    "    if step == 25:\n"
    "        print('inside', flush=True)\n"
    "print('behind', state['steps'])",
]


class Notebook:
    """A real kernel; `run` executes a cell to its end."""

    def __init__(self, directory: Path) -> None:
        from jupyter_client.manager import KernelManager

        self.manager: Any = KernelManager()
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WHISTLE_")}
        self.manager.start_kernel(cwd=str(directory), env=clean)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, cell: str, *, interrupt_at: str | None = None) -> tuple[str, str | None]:
        """What it printed, and the name of the error that ended it."""
        asked = self.client.execute(cell)
        text = ""
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                text += content["text"]
                if interrupt_at is not None and interrupt_at in text:
                    self.manager.interrupt_kernel()
                    interrupt_at = None
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                break
        while True:
            reply = self.client.get_shell_msg(timeout=60)
            if reply["parent_header"].get("msg_id") == asked:
                return text, reply["content"].get("ename")

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
        self.client.context.term()


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    try:
        import ipykernel  # noqa: F401
        import jupyter_client  # noqa: F401
    except ImportError:
        missing("ipykernel and jupyter_client")
    opened = Notebook(tmp_path)
    yield opened
    opened.close()


def test_interrupting_a_notebook_ends_the_loop_and_later_the_cell(notebook: Notebook, tmp_path: Path) -> None:
    text, error = notebook.run(CELL, interrupt_at="inside")
    assert error is None, text
    assert saved(tmp_path)[0] == int(text.split()[-1])
    text, error = notebook.run("print('outside', flush=True)\nwhile True: pass", interrupt_at="outside")
    assert error == "KeyboardInterrupt"
    text, error = notebook.run("print(1 + 1)")
    assert (text.strip(), error) == ("2", None)
    # The same cell again goes on, and can be interrupted again.
    before = saved(tmp_path)[0]
    text, error = notebook.run(CELL.replace("step == 25", f"step == {before + 25}"), interrupt_at="inside")
    assert error is None, text
    assert saved(tmp_path)[0] == int(text.split()[-1]) > before


def test_a_notebooks_loop_may_be_in_another_cell_than_its_beginning(notebook: Notebook, tmp_path: Path) -> None:
    assert notebook.run(TWO_CELLS[0])[1] is None
    _, error = notebook.run("print('outside', flush=True)\nwhile True: pass", interrupt_at="outside")
    assert error == "KeyboardInterrupt"
    text, error = notebook.run(TWO_CELLS[1], interrupt_at="inside")
    assert error is None, text
    assert saved(tmp_path)[0] == int(text.split()[-1])
