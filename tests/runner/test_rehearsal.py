"""Real scripts are rehearsed: what resumes exactly is told from what does not, and what is missing is named."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from whistlestop.domain.errors import BadRequest
from whistlestop.engines import processes
from whistlestop.runner.rehearsal import Kind, Report, rehearse
from whistlestop.testing.missing import missing
from whistlestop.testing.wait import until

Rehearse = Callable[..., Report]

PLAIN = """
import random, whistlestop
rng = random.Random({seed})
weights = {{"w": 0.0}}
momentum = {{"v": 0.0}}
with whistlestop.run() as run:
    run.track({tracked})
    for step in run.steps(total={total}):
        loss = weights["w"] + rng.random()
        momentum["v"] = 0.9 * momentum["v"] + loss
        weights["w"] -= 0.01 * momentum["v"]
        run.log({logged})
{after}
"""

TORCH = """
import torch, whistlestop
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
with whistlestop.run() as run:
    run.track({tracked})
    for step in run.steps(total=100):
        data = torch.randn(16, 4)
        loss = ((model(data) - data.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        run.log(loss=loss.item())
"""


RANKS = """
import multiprocessing, os, random

def train(rank, barrier):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    import whistlestop
    rng = random.Random(rank)
    weights = {"w": 0.0}
    own = OWN
    with whistlestop.run() as run:
        run.track(weights=weights, per_rank=True, **own)
        for step in run.steps(total=100):
            barrier.wait()
            weights["w"] += rng.random()
            run.log(loss=weights["w"])

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)
    ranks = [context.Process(target=train, args=(rank, barrier)) for rank in range(2)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    raise SystemExit(max(each.exitcode for each in ranks))
"""


@pytest.fixture
def script(tmp_path: Path) -> Rehearse:
    def run(text: str, **options: Any) -> Report:
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text))
        report = rehearse([sys.executable, str(path)], cwd=tmp_path, **{"timeout": 300, **options})
        assert sorted(each.name for each in tmp_path.iterdir()) == ["train.py"], "it left something"
        return report

    return run


def plain(
    *,
    tracked: str = "weights=weights, momentum=momentum, rng_own=rng",
    seed: str = "3",
    total: str = "100",
    logged: str = "loss=loss",
    after: str = "",
) -> str:
    return PLAIN.format(tracked=tracked, seed=seed, total=total, logged=logged, after=after)


def kinds(report: Report) -> set[Kind]:
    return {each.kind for each in report.differences}


def metric(report: Report, name: str) -> int | None:
    return next((each.step for each in report.differences if (each.part, each.leaf) == ("metrics", name)), None)


def test_a_script_that_tracks_all_it_needs_is_the_same(script: Rehearse) -> None:
    said: list[str] = []
    report = script(plain(), say=said.append)
    assert report.same, report.text
    assert (report.differences, report.advice, report.problem) == ([], [], "")
    assert report.steps == 20
    assert len(report.at) == 1
    assert 0 < report.at[0] < 20
    assert set(report.parts) == {"weights", "momentum", "rng_own"}
    assert report.metrics == {"loss": 20}
    assert "✓ momentum" in report.text
    assert "bit by bit" in report.text
    assert said[0] == "the straight run: starting"
    assert len(said) == 6, "equal results need no second straight run"


def test_a_forgotten_random_state_is_named_and_differs_after_the_resume_only(script: Rehearse) -> None:
    report = script(plain(tracked="weights=weights, momentum=momentum"), at=7)
    assert not report.same
    assert kinds(report) == {Kind.NOT_RESTORED}
    assert {each.part for each in report.differences} == {"weights", "momentum", "metrics"}
    assert metric(report, "loss") == 7, report.text
    assert "✗ weights" in report.text
    assert "No random state is tracked" in report.text


def test_an_unseeded_script_is_called_not_repeatable(script: Rehearse) -> None:
    report = script(plain(seed=""))
    assert not report.same
    assert kinds(report) == {Kind.NOT_REPEATABLE}
    assert "two uninterrupted runs already differ" in report.text
    assert report.advice == [], "what a resume loses can't be told here"


def test_a_forgotten_optimizer_shows_in_the_metric_one_step_later(script: Rehearse) -> None:
    report = script(plain(tracked="weights=weights, rng_own=rng"), at=9)
    assert kinds(report) == {Kind.NOT_RESTORED}
    assert metric(report, "loss") == 10, "the first step still has the weights that were saved"
    assert [each.leaf for each in report.differences if each.part == "weights"] == ["w"]
    assert "It shows first in loss, at step 10" in report.text
    assert "✓ rng_own" in report.text
    assert "No random state" not in report.text


def test_a_metric_that_measures_time_does_not_count(script: Rehearse) -> None:
    report = script(plain(logged="loss=loss, seconds=__import__('time').perf_counter()"))
    assert report.same, report.text
    assert report.varying == ["metrics/seconds"]
    assert "– seconds" in report.text


def test_a_random_state_that_nobody_seeded_and_nobody_uses_does_not_count(script: Rehearse) -> None:
    tracked = "weights=weights, momentum=momentum, rng_own=rng, idle=random.Random(), rng=True"
    report = script(plain(tracked=tracked, logged="loss=loss, seconds=__import__('time').perf_counter()"))
    assert report.same, report.text
    assert {"idle/", "rng/python"} <= set(report.varying)
    assert "not seeded, and nothing that is tracked depends on it" in report.text


def test_a_random_state_that_nobody_seeded_and_the_weights_need_does_count(script: Rehearse) -> None:
    report = script(plain(tracked="weights=weights, rng=True").replace("rng.random()", "random.random()"))
    assert Kind.NOT_REPEATABLE in kinds(report)
    assert {"rng", "weights"} <= {each.part for each in report.differences}


def test_what_is_to_be_ignored_does_not_count(script: Rehearse) -> None:
    report = script(plain(tracked="weights=weights, rng_own=rng"), at=9, ignore=["weights/*", "metrics/loss"])
    assert report.same, report.text


def test_several_interruptions_are_each_compared(script: Rehearse) -> None:
    report = script(plain(tracked="weights=weights, rng_own=rng"), at=[1, 12], steps=15)
    assert report.at == (1, 12)
    assert {each.at for each in report.differences} == {1, 12}


def test_a_script_that_ends_sooner_is_compared_at_its_end(script: Rehearse) -> None:
    report = script(plain(total="6"))
    assert report.same, report.text
    assert report.steps == 6
    assert 0 < report.at[0] < 6
    assert "It ends by itself after 6 steps" in script(plain(total="6"), at=8).problem
    assert "nothing to interrupt" in script(plain(total="1")).problem


def test_a_script_that_breaks_out_of_its_loop_is_compared_there(script: Rehearse) -> None:
    report = script(plain(after="").rstrip() + "\n        if step == 11: break\n")
    assert report.same, report.text
    assert report.steps == 11


def test_a_failure_behind_the_loop_is_told_and_compared_all_the_same(script: Rehearse) -> None:
    report = script(plain(after="raise SystemExit(3)"))
    assert report.same, report.text
    assert "failed behind its loop, with exit code 3" in report.text


def test_a_script_that_fails_shows_its_last_lines(script: Rehearse) -> None:
    report = script("import whistlestop\nprint('hello')\nraise ValueError('no data here')\n")
    assert not report.same
    assert "failed, with exit code 1, before its loop began" in report.problem
    assert "ValueError: no data here" in report.text
    inside = script(plain().replace("        run.log", "        assert step < 5\n        run.log"))
    assert "ended inside its loop, at step 5" in inside.problem
    assert "AssertionError" in inside.text


def test_a_script_that_fails_only_when_resumed_says_so(script: Rehearse) -> None:
    text = plain().replace("    for step", "    assert run.restore() is None, 'never thought of it'\n    for step")
    report = script(text, at=4)
    assert report.problem.startswith("The run resumed at step 4 failed, with exit code 1, before its loop began.")
    assert "never thought of it" in report.text


def test_a_script_without_the_sdk_is_told_what_to_do(script: Rehearse) -> None:
    report = script("print('trained')\n")
    assert "did not use Whistlestop" in report.problem
    assert "whistlestop.run().steps(...)" in report.text
    assert "never comes to a loop" in script("import whistlestop\nwhistlestop.run()\n").problem


def test_a_script_that_tracks_and_logs_nothing_has_nothing_to_compare(script: Rehearse) -> None:
    report = script("import whistlestop\nfor step in whistlestop.run().steps(total=30): pass\n")
    assert "tracks nothing and logs nothing" in report.problem


def test_a_script_that_tracks_nothing_is_compared_by_what_it_logs(script: Rehearse) -> None:
    report = script(
        """
        import whistlestop
        with whistlestop.run() as run:
            total = 0
            for step in run.steps(total=30):
                total += step
                run.log(total=total)
        """
    )
    assert metric(report, "total") == report.at[0]
    assert "Nothing is tracked" in report.text


STUCK = """
import os, subprocess, sys, time, whistlestop
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with open(os.environ["STRAY"], "w") as file:
    file.write(str(child.pid))
with whistlestop.run() as run:
    {body}
"""


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("time.sleep(600)", "had not come to its loop after 6 seconds"),
        ("for step in run.steps(): time.sleep(600)", "had done 0 of 20 steps after 6 seconds"),
    ],
)
def test_a_script_that_hangs_is_ended_with_all_it_started(
    script: Rehearse, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, body: str, says: str
) -> None:
    stray = tmp_path_factory.mktemp("stray") / "pid"
    report = script(STUCK.format(body=body), timeout=6, env={**os.environ, "STRAY": str(stray)})
    assert says in report.problem
    gone = processes.read(int(stray.read_text()))
    assert gone is None or not gone.alive


def test_a_loop_that_ignores_the_stop_is_ended(script: Rehearse) -> None:
    report = script(
        """
        import os, time
        from pathlib import Path
        from whistlestop.channel.control import Control
        from whistlestop.channel.layout import Word
        control = Control.open(Path(os.environ["WHISTLE_CHANNEL"], "control"))
        control[Word.ATTACHED] = 1
        while True:
            control[Word.LOOP] = 1
            control[Word.STEP] += 1
            time.sleep(0.001)
        """
    )
    assert "its loop ignores the stop" in report.problem


def test_a_command_that_does_not_exist_is_no_traceback(tmp_path: Path) -> None:
    report = rehearse(["no-such-program-here"], cwd=tmp_path)
    assert "no-such-program-here could not be started: No such file" in report.problem


@pytest.mark.parametrize(("steps", "at"), [(1, None), (10, 10), (10, [3, 0])])
def test_a_rehearsal_that_makes_no_sense_is_refused(steps: int, at: Any) -> None:
    with pytest.raises(BadRequest):
        rehearse([sys.executable, "-c", ""], steps=steps, at=at)


def test_the_processes_of_the_caller_are_not_touched(script: Rehearse) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        until(lambda: processes.read(bystander.pid), what="the bystander")
        assert script(plain()).same
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_what_each_rank_keeps_for_itself_is_compared_rank_by_rank(script: Rehearse) -> None:
    report = script(RANKS.replace("OWN", '{"own": rng}'))
    assert report.same, report.text
    assert set(report.parts) == {"rank-0/weights", "rank-0/own", "rank-1/weights", "rank-1/own"}
    report = script(RANKS.replace("OWN", "{}"), at=8)
    assert {each.part for each in report.differences} == {"rank-0/weights", "rank-1/weights", "metrics"}
    assert metric(report, "loss") == 8


# With all of it tracked it is the same: tests/integrations/test_torch_examples.py.
@pytest.mark.long
def test_torch_without_its_schedule_is_told_by_its_learning_rate(script: Rehearse) -> None:
    _torch()
    report = script(TORCH.format(tracked="model=model, optimizer=optimizer, rng=True"), at=10, steps=21)
    assert kinds(report) == {Kind.NOT_RESTORED}
    assert {"model", "optimizer"} <= {each.part for each in report.differences}
    assert "param_groups/0/lr" in {each.leaf for each in report.differences if each.part == "optimizer"}
    assert "optimizer is tracked without a schedule, and its learning rate differs" in report.text
    assert "No random state" not in report.text


def _torch() -> None:
    if find_spec("torch") is None:
        missing("torch is not installed")
