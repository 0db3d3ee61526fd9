"""Mirrored points arrive in the runner's channel, once, and the program's own calls stay what they are."""

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from whistlestop.channel import layout
from whistlestop.channel.control import Control
from whistlestop.channel.journal import JournalReader
from whistlestop.channel.layout import Kind, Word
from whistlestop.domain.errors import BadRequest
from whistlestop.integrations.mirror import mirror
from whistlestop.integrations.mirrored_lines import reader
from whistlestop.testing.forks import Forks
from whistlestop.testing.missing import missing
from whistlestop.testing.server import ServerProcess

SECONDS = 180.0
OURS = "from whistlestop.integrations.mirror import mirror\n"


@dataclass
class Channel:
    """A channel directory as the runner makes it, and programs that run in it, each with libraries of its own."""

    root: Path
    control: Control
    forks: Forks | None = None  # of a process that has loaded what takes long to load

    def run(self, script: str, *, attached: bool = True, code: int = 0) -> str:
        """Its standard output."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("WHISTLE_", "WANDB_"))}
        env |= {"HOME": str(self.root), "WANDB_MODE": "offline", "WANDB_DIR": str(self.root), "WANDB_SILENT": "true"}
        env |= {"MLFLOW_TRACKING_URI": f"sqlite:///{self.root / 'mlflow.db'}", "MLFLOW_DISABLE_TELEMETRY": "true"}
        env |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        env.pop("RANK", None)
        if attached:
            env[layout.ENV_CHANNEL] = str(self.root / "channel")
            env[layout.ENV_CHECKPOINTS] = str(self.root / "checkpoints")
        script = OURS + textwrap.dedent(script)
        if self.forks is not None:
            done = self.forks.run(script, cwd=self.root, env=env)
        else:
            words = [sys.executable, "-c", script]
            given: dict[str, Any] = {"cwd": self.root, "env": env, "timeout": SECONDS}
            done = subprocess.run(words, capture_output=True, text=True, check=False, **given)
        assert done.returncode == code, done.stdout + done.stderr
        self.errors = done.stderr
        return done.stdout

    def points(self) -> list[tuple[int, dict[str, float]]]:
        journal = JournalReader(self.root / "channel", layout.metrics_prefix(0))
        names: dict[int, tuple[str, ...]] = {}
        found = []
        for record in journal.records():
            if record.kind == Kind.SHAPE:
                names[record.shape] = record.names()
            else:
                step, _, values = record.point()
                found.append((step, dict(zip(names[record.shape], values, strict=True))))
        journal.close()
        return found


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    (tmp_path / "channel").mkdir()
    control = Control.create(tmp_path / "channel" / layout.CONTROL_FILE)
    yield Channel(tmp_path, control)
    control.close()


@pytest.fixture(scope="module")
def torch_loaded() -> Iterator[Forks]:
    """The writer loads TensorFlow as well, if it is there. The writer itself is not loaded."""
    needs("torch", "tensorboard")
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    forks = Forks("import torch\nfrom tensorboard.compat import tf\ntf.io.gfile.join", {**os.environ, **quiet})
    yield forks
    forks.close()


@pytest.fixture
def torch_channel(channel: Channel, torch_loaded: Forks) -> Channel:
    channel.forks = torch_loaded
    return channel


def needs(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            missing(f"{module} is not installed")


# --- TensorBoard -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["mirror", "torch"])
def test_torch_scalars_arrive_whether_the_writer_is_imported_before_or_after(
    torch_channel: Channel, first: str
) -> None:
    channel = torch_channel
    lines = ['mirror("tensorboard")', "from torch.utils.tensorboard import SummaryWriter"]
    script = "\n".join(lines if first == "mirror" else lines[::-1])
    channel.run(
        script
        + textwrap.dedent("""
        import numpy, torch
        with SummaryWriter("events") as writer:
            assert writer.add_scalar("loss", torch.tensor(0.5), 3) is None
            writer.add_scalar(tag="lr", scalar_value=numpy.float32(0.25), global_step=4)
            writer.add_scalars("both", {"a": 1, "b": 2.0}, 5)
            writer.add_text("words", "no number", 6)
            for value in (7.0, 8.0):
                writer.add_scalar("stepless", value)
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        events = EventAccumulator("events").Reload()
        assert [(each.step, each.value) for each in events.Scalars("loss")] == [(3, 0.5)]
        """)
    )
    assert channel.points() == [
        (3, {"loss": 0.5}),
        (4, {"lr": 0.25}),
        (5, {"both/a": 1.0, "both/b": 2.0}),
        (0, {"stepless": 7.0}),
        (1, {"stepless": 8.0}),
    ]


def test_tensorflow_scalars_arrive_when_they_are_written(channel: Channel) -> None:
    needs("tensorflow", "tensorboard")
    channel.run("""
        import tensorflow as tf
        mirror("tensorboard")
        tf.summary.scalar("nowhere", 1.0, step=1)
        with tf.summary.create_file_writer("events").as_default():
            assert bool(tf.summary.scalar("loss", tf.constant(0.5), step=tf.constant(2, tf.int64)))
            with tf.summary.record_if(False):
                tf.summary.scalar("left_out", 1.0, step=3)
            tf.summary.experimental.set_step(9)
            tf.summary.scalar("default_step", tf.Variable(1.5))

            @tf.function
            def graph(x):
                tf.summary.scalar("symbolic", x, step=4)

            graph(tf.constant(1.0))
    """)
    assert channel.points() == [(2, {"loss": 0.5}), (9, {"default_step": 1.5})]


def test_tensorboardx_scalars_arrive(channel: Channel) -> None:
    needs("tensorboardX")
    channel.run("""
        mirror("tensorboard")
        from tensorboardX import SummaryWriter
        writer = SummaryWriter("events")
        writer.add_scalar("loss", 0.5, 3)
        writer.add_scalars("both", {"a": 1, "b": 2.0}, 4)
        writer.close()
    """)
    assert channel.points() == [(3, {"loss": 0.5}), (4, {"both/a": 1.0, "both/b": 2.0})]


# --- MLflow ----------------------------------------------------------------------------------------------------------


def test_mlflow_metrics_arrive_once_each_way_they_are_logged(channel: Channel) -> None:
    needs("mlflow", "sqlalchemy")
    channel.run("""
        from mlflow import log_metric as kept_from_before
        mirror("mlflow")
        import mlflow
        from mlflow.entities import Metric
        with mlflow.start_run() as run:
            for value in (1.0, 2.0):
                assert mlflow.log_metric("counted", value) is None
            mlflow.log_metric("loss", 0.5, step=5)
            mlflow.log_metrics({"a": 1, "b": 2.0}, step=6)
            for value in (1.0, 2.0, 3.0):
                kept_from_before("kept", value)
            client, number = mlflow.MlflowClient(), run.info.run_id
            client.log_metric(number, "c", 3.0, step=7)
            client.log_batch(number, [Metric("d", 1.0, 0, 8), Metric("e", 2.0, 0, 9)])
            try:
                mlflow.log_metric("bad", "no number", step=10)
            except mlflow.exceptions.MlflowException:
                pass
            else:
                raise AssertionError("the library's own error is gone")
        assert [(each.step, each.value) for each in client.get_metric_history(number, "loss")] == [(5, 0.5)]
    """)
    assert channel.points() == [
        (0, {"counted": 1.0}),
        (1, {"counted": 2.0}),
        (5, {"loss": 0.5}),
        (6, {"a": 1.0, "b": 2.0}),
        (0, {"kept": 1.0}),
        (1, {"kept": 2.0}),
        (2, {"kept": 3.0}),
        (7, {"c": 3.0}),
        (8, {"d": 1.0}),
        (9, {"e": 2.0}),
    ]


# --- W&B -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])
def test_wandb_points_arrive_at_the_steps_that_wandb_gives_them(channel: Channel, late: bool) -> None:
    needs("wandb")
    begin = ["import wandb", "run = wandb.init(project='p')"]
    script = "\n".join([*begin, 'mirror("wandb")'] if late else ['mirror("wandb")', *begin])
    channel.run(
        script
        + textwrap.dedent("""
        assert wandb.log({"a": 1, "inner": {"b": 2.0, "word": "x"}}) is None
        wandb.log({"c": 3}, commit=False)
        run.log({"d": 4})
        run.log({"e": 5}, step=10)
        run.log({"f": 6})
        run.log({"too_late": 7}, step=4)
        run.log({"picture": wandb.Histogram([1, 2])}, step=11)
        run.log({"loss": 8, "trainer/global_step": 40})
        try:
            run.log("no mapping")
        except TypeError:
            pass
        else:
            raise AssertionError("the library's own error is gone")
        run.finish()
        """)
    )
    assert channel.points() == [
        (0, {"a": 1.0, "inner/b": 2.0}),
        (1, {"c": 3.0}),
        (1, {"d": 4.0}),
        (10, {"e": 5.0}),
        (10, {"f": 6.0}),
        (40, {"loss": 8.0, "trainer/global_step": 40.0}),
    ]


def test_steps_that_wandb_counts_give_way_to_those_of_the_loop(channel: Channel) -> None:
    needs("wandb")
    channel.run("""
        import wandb, whistlestop
        mirror("wandb")
        wandb.init(project="p")
        with whistlestop.run() as run:
            for step in run.steps(2):
                wandb.log({"loss": step + 0.5})
                wandb.log({"accuracy": step + 0.25})
                wandb.log({"given": 1.0}, step=100 + 10 * step)
        wandb.finish()
    """)
    assert channel.points() == [
        (0, {"loss": 0.5}),
        (0, {"accuracy": 0.25}),
        (100, {"given": 1.0}),
        (1, {"loss": 1.5}),
        (1, {"accuracy": 1.25}),
        (110, {"given": 1.0}),
    ]


# --- printed lines ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        (r"step (?P<step>\d+).*?loss[=: ]+(?P<loss>\S+)", "step 12 | loss: 0.5, lr 1", (12, {"loss": 0.5})),
        (re.compile(r"acc (?P<acc>\S+)"), "acc 97.5%", (None, {"acc": 97.5})),
        (r"loss (?P<loss>\S+)(?: lr (?P<lr>\S+))?", "loss 1e-3", (None, {"loss": 1e-3})),
        (r"loss (?P<loss>\S+)", "loss unknown", None),
        (r"loss (?P<loss>\S+)", "nothing here", None),
        ("key=value", "step=3 train/loss=0.5, acc=.25 name=resnet time=3s", (3, {"train/loss": 0.5, "acc": 0.25})),
        ("key=value", "Iteration 7: loss=-1.5e+2", (7, {"loss": -150.0})),
        ("key=value", "step 1,000 loss=2", (1000, {"loss": 2.0})),
        ("key=value", "step=1_000_000, loss=2", (1_000_000, {"loss": 2.0})),
        ("key=value", "step=3,loss=2", (3, {"loss": 2.0})),
        ("key=value", "lr=0.1", (None, {"lr": 0.1})),
        ("key=value", "a=b, see http://x/?q=word", None),
        (
            "huggingface",
            "{'loss': 0.5, 'learning_rate': 5e-05, 'epoch': 1.0}",
            (None, {"loss": 0.5, "learning_rate": 5e-05, "epoch": 1.0}),
        ),
        ("huggingface", "{'loss': '0.5', 'name': 'x', 'step': 4}", (4, {"loss": 0.5})),
        ("huggingface", "{'step': 4, 'loss': 0.5}", (4, {"loss": 0.5})),
        ("huggingface", "see {'loss': 0.5}", None),
    ],
)
def test_a_pattern_reads_the_metrics_of_a_line(
    pattern: str | re.Pattern[str], line: str, found: tuple[int | None, dict[str, float]] | None
) -> None:
    assert reader(pattern)(line) == found


@pytest.mark.parametrize("pattern", ["(", r"loss \d+", r"(?P<step>\d+)"])
def test_a_pattern_that_can_never_find_a_metric_is_refused_in_words(pattern: str) -> None:
    with pytest.raises(BadRequest, match="lines="):
        mirror(lines=pattern)


def test_lines_are_put_together_from_pieces_and_a_bar_that_is_redrawn_is_one_point(channel: Channel) -> None:
    output = channel.run(r"""
        import sys
        stdout, write = sys.stdout, sys.stdout.write
        with mirror(lines=r"step (?P<step>\d+) loss=(?P<loss>\S+)"):
            assert print("step 1", "loss=0.5") is None
            assert sys.stdout.write("step 2 lo") == 9
            sys.stdout.write("ss=0.25\nstep 3 loss=nothing\n")
            sys.stderr.writelines(["\x1b[1mstep 4 loss=1\x1b[0m\rstep 4 loss=1\r", "step 5 loss=2\r\n"])
            print("x" * 20_000, "step 6 loss=1")
            print("step 7 loss=3", end="")
        print("\nstep 8 loss=4")
        assert sys.stdout is stdout and sys.stdout.write == write and "write" not in vars(stdout)
    """)
    assert output.startswith("step 1 loss=0.5\nstep 2 loss=0.25\n")
    assert channel.points() == [
        (1, {"loss": 0.5}),
        (2, {"loss": 0.25}),
        (4, {"loss": 1.0}),
        (5, {"loss": 2.0}),
        (7, {"loss": 3.0}),
    ]


def test_what_a_progress_bar_shows_arrives(channel: Channel) -> None:
    needs("tqdm")
    channel.run("""
        from tqdm import tqdm
        mirror(lines="key=value")
        with tqdm(range(3), mininterval=0) as bar:
            for number in bar:
                bar.set_postfix(loss=number + 0.5)
                bar.refresh()
    """)
    assert channel.points() == [(0, {"loss": 0.5}), (1, {"loss": 1.5}), (2, {"loss": 2.5})]


# --- whose points, and how often -------------------------------------------------------------------------------------


def test_two_mirrors_of_the_same_do_not_double_a_point_and_the_last_one_takes_the_patch_back(
    torch_channel: Channel,
) -> None:
    channel = torch_channel
    channel.run("""
        import sys
        from torch.utils.tensorboard import SummaryWriter
        before, finders = SummaryWriter.add_scalar, list(sys.meta_path)
        first, second = mirror("tensorboard", lines="key=value"), mirror(lines="key=value")
        writer = SummaryWriter("events")
        with mirror():
            writer.add_scalar("loss", 0.5, 1)
            print("step=1 shown=2")
        second.close()
        print("step=2 shown=3")
        first.close()
        first.close()
        writer.add_scalar("loss", 0.5, 2)
        print("step=3 shown=4")
        writer.close()
        assert SummaryWriter.add_scalar is before and sys.meta_path == finders
    """)
    assert channel.points() == [(1, {"loss": 0.5}), (1, {"shown": 2.0}), (2, {"shown": 3.0})]


def test_a_patch_of_somebody_else_over_ours_stays_and_doubles_nothing(torch_channel: Channel) -> None:
    channel = torch_channel
    channel.run("""
        import functools, sys
        from torch.utils.tensorboard import SummaryWriter
        seen = []

        def patched(call):
            @functools.wraps(call)
            def theirs(*args, **kwargs):
                seen.append(args[-1])
                return call(*args, **kwargs)
            return theirs

        writer = SummaryWriter("events")
        for turn in (1, 2):
            with mirror("tensorboard", lines="key=value"):
                if turn == 1:
                    SummaryWriter.add_scalar = patched(SummaryWriter.add_scalar)
                    sys.stdout.write = patched(sys.stdout.write)
                writer.add_scalar("loss", 0.5, turn)
                print("shown=2")
            writer.add_scalar("loss", 0.5, 100 + turn)
            print("shown=3")
        assert seen == [1, "shown=2", "\\n", 101, "shown=3", "\\n", 2, "shown=2", "\\n", 102, "shown=3", "\\n"]
        writer.close()
    """)
    assert channel.points() == [(1, {"loss": 0.5}), (0, {"shown": 2.0}), (2, {"loss": 0.5}), (1, {"shown": 2.0})]


def test_without_a_runner_and_without_a_run_nothing_happens(channel: Channel) -> None:
    channel.run(
        """
        mirror(lines="key=value")
        print("step=1 loss=0.5")
        """,
        attached=False,
    )
    assert channel.points() == []
    assert sorted(each.name for each in channel.root.iterdir()) == ["channel"]


def test_a_run_that_opens_later_goes_on_behind_what_was_mirrored_before_it(channel: Channel) -> None:
    channel.run("""
        import whistlestop
        mirror(lines="key=value")
        print("step=7 before=1")
        with whistlestop.run() as run:
            for step in run.steps(2):
                print("loss=0.5")
                run.log(own=1.0)
        print("step=8 behind=1")
    """)
    assert channel.points() == [
        (7, {"before": 1.0}),
        (0, {"loss": 0.5}),
        (0, {"own": 1.0}),
        (1, {"loss": 0.5}),
        (1, {"own": 1.0}),
        (8, {"behind": 1.0}),
    ]
    assert "taken" not in channel.errors


def test_a_program_without_a_run_keeps_its_signals_and_a_stop_does_not_wait_for_a_loop(channel: Channel) -> None:
    channel.run("""
        import signal
        mirror(lines="key=value")
        before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
        print("loss=0.5")
        assert before == [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    """)
    assert channel.control[Word.IMPORTED] == 0
    assert channel.control[Word.ATTACHED] == 0


def test_what_a_forked_worker_logs_is_not_mirrored(channel: Channel) -> None:
    channel.run("""
        import os
        mirror(lines="key=value")
        print("step=1 loss=1", flush=True)
        if os.fork() == 0:
            print("step=2 loss=2", flush=True)
            os._exit(0)
        os.wait()
        print("step=3 loss=3")
    """)
    assert channel.points() == [(1, {"loss": 1.0}), (3, {"loss": 3.0})]


def test_an_error_of_ours_is_said_once_and_never_comes_out(channel: Channel) -> None:
    channel.run("""
        class Broken:
            def log(self, **scalars):
                raise RuntimeError("broken")

            def log_at(self, step, scalars):
                raise RuntimeError("broken")

        mirror(lines="key=value", run=Broken())
        print("step=1 loss=1")
        print("loss=1")
    """)
    assert channel.errors.count("could not be mirrored") == 1


def test_an_unknown_source_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadRequest, match="tensorboard, mlflow, wandb"):
        mirror("clearml")


def test_mirrored_lines_are_metrics_at_the_server(shared_server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        OURS + 'mirror(lines="key=value")\nfor step in range(3):\n    print(f"step={step} loss={step / 2}")\n'
    )
    server = shared_server
    run = server.submit({"name": "main", "command": [sys.executable, "script.py"]}, directory=tmp_path)
    server.wait(run.id)
    with server.client() as client:
        [series] = client.metrics(run.id, ["loss"]).series
    assert [(step, value) for step, value, _ in series.points] == [(0, 0.0), (1, 0.5), (2, 1.0)]
