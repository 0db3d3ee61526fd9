"""What the Trainer writes by itself stays as it is beside our saves; however it ends, the end is saved, and where an
epoch ends it is gone on from."""

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from whistlestop.testing.example_program import quiet_environment
from whistlestop.testing.missing import missing

SCRIPT = """
import json, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
import torch
from accelerate import Accelerator
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback
import whistlestop
from whistlestop.integrations.transformers import Whistle

DATA = [{"x": torch.full((2,), float(n)), "labels": torch.ones(1)} for n in range(80)]

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(2, 1)
    def forward(self, x, labels):
        out = torch.nn.functional.dropout(self.line(x), 0.2, self.training)
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}

class Other(TrainerCallback):
    def __init__(self, run, save_at=0, step_end=0, log=0, ctrl_c=0, taken=range(0)):
        self.run, self.save_at, self.step_end, self.log, self.seen = run, save_at, step_end, log, {}
        self.ctrl_c, self.taken, self.written = ctrl_c, taken, []
    def on_step_begin(self, args, state, control, **about):
        self.seen[state.global_step] = sorted(each.name for each in Path(args.output_dir).iterdir())
        if state.global_step + 1 == self.save_at:
            self.run.save(now=False)
        for number in range(2 if self.taken else 0):
            self.run._saver.finish()
            slot = Path(self.run.name, "run-001", ".stage-000000001", f"slot-{number}")
            slot.mkdir(parents=True, exist_ok=True)
            (slot / "stage.json").unlink(missing_ok=True)
            if state.global_step in self.taken:  # as if earlier saves were still on their way
                (slot / "stage.json").touch()
    def on_save(self, args, state, control, **about):
        self.written.append(state.global_step)
    def on_step_end(self, args, state, control, **about):
        control.should_training_stop |= state.global_step == self.step_end
        if state.global_step == self.ctrl_c:
            os.kill(os.getpid(), signal.SIGINT)
    def on_log(self, args, state, control, **about):
        control.should_training_stop |= state.global_step == self.log

def go(name, options, per_epoch=20, resume="never", every=None, **other):
    set_seed(1)
    arguments = TrainingArguments(
        output_dir=f"{name}-output", max_steps=9, per_device_train_batch_size=4, logging_steps=1, report_to=[],
        disable_tqdm=True, use_cpu=True, **options,
    )
    with whistlestop.run(name, checkpoints=name, resume=resume, keep=9, every=every) as run:
        whistle = Whistle(run)
        callbacks = [other := Other(run, **other), whistle]
        data = {"train_dataset": DATA[: 4 * per_epoch], "eval_dataset": DATA[:4]}
        trainer = Trainer(model=Model(), args=arguments, callbacks=callbacks, **data)
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=whistle.resume_from)
        trainer.save_metrics("train", {"loss": 1.0})
    return {
        "written": other.written,
        "seen": other.seen, "limit": arguments.save_total_limit, "best": trainer.state.best_model_checkpoint,
        "ours": sorted(int(each.name.split("-")[1]) for each in Path(name).rglob("step-*") if each.is_dir()),
        "output": sorted(each.name for each in Path(arguments.output_dir).iterdir()),
        "weights": [each.tolist() for each in trainer.model.parameters()], "steps": trainer.state.global_step,
        "log": [each.get("loss") for each in trainer.state.log_history],
    }

def accelerated():
    model, optimizer = Accelerator(cpu=True).prepare(torch.nn.Linear(200, 200), torch.optim.Adam([torch.ones(1)]))
    optimizer.add_param_group({"params": list(model.parameters())})
    with whistlestop.run("accelerated", checkpoints="accelerated", every=2, keep=9, lazy=True) as run:
        run.track(model=model, optimizer=optimizer)
        for step in run.steps(5):
            model(torch.ones(1, 200)).sum().backward()
            optimizer.step()
            run._saver.finish()
        lazily = run._saver._lazy is not None and run._saver._lazily
    return {"lazily": lazily, "kept": len(list(Path("accelerated").rglob("manifest.json")))}

own = dict(save_strategy="steps", save_steps=5, save_total_limit=1)
best = dict(own, eval_strategy="steps", eval_steps=7, metric_for_best_model="eval_loss")
none = dict(save_strategy="no")
print(json.dumps({
    "beside": go("beside", own, save_at=7),
    "best": go("best", best, save_at=7),
    "plain": go("plain", none),
    "slow": go("slow", none, every=2, taken=range(4, 6)),
    "step_end": go("step_end", none, step_end=4),
    "log": go("log", none, log=4),
    "straight": go("straight", none, per_epoch=4),
    "parted": go("parted", none, per_epoch=4, ctrl_c=4),
    "joined": go("parted", none, per_epoch=4, resume="auto"),
    "accelerated": accelerated(),
}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if importlib.util.find_spec("transformers") is None:
        missing("transformers is not installed")
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path_factory.mktemp("saves"),
        env=quiet_environment(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1"),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert child.returncode == 0, child.stderr[-3000:]
    return dict(json.loads(child.stdout.splitlines()[-1]))


@pytest.mark.parametrize("kind", ["beside", "best"])
def test_our_saves_push_no_checkpoint_of_the_trainer_out(told: dict[str, Any], kind: str) -> None:
    assert told[kind]["ours"] == [7, 9]
    assert told[kind]["seen"]["8"] == ["checkpoint-5"]
    assert told[kind]["limit"] == 1  # as it was given
    assert "checkpoint-9" in told[kind]["output"]


def test_a_copy_that_is_removed_is_not_the_best_checkpoint(told: dict[str, Any]) -> None:
    assert told["best"]["best"] is None


def test_the_output_directory_stays_for_what_is_written_behind_the_training(told: dict[str, Any]) -> None:
    assert told["plain"]["output"] == ["all_results.json", "train_results.json"]
    assert told["plain"]["ours"] == [9]


@pytest.mark.parametrize("kind", ["step_end", "log"])
def test_an_end_that_another_callback_decides_is_saved(told: dict[str, Any], kind: str) -> None:
    assert told[kind]["ours"] == [4]


def test_a_stop_where_an_epoch_ends_and_a_resume_give_the_straight_result(told: dict[str, Any]) -> None:
    straight, parted, joined = (told[name] for name in ("straight", "parted", "joined"))
    assert parted["steps"] == 4
    assert parted["ours"] == [4]
    assert joined["steps"] == straight["steps"] == 9
    assert joined["weights"] == straight["weights"]
    assert joined["log"] == straight["log"]


def test_the_trainer_writes_nothing_while_a_save_is_put_off(told: dict[str, Any]) -> None:
    assert told["slow"]["written"] == [2, 4, 7, 8, 9]
    assert told["slow"]["ours"] == [2, 4, 7, 8, 9]


def test_an_optimizer_that_accelerate_has_prepared_is_copied_lazily(told: dict[str, Any]) -> None:
    assert told["accelerated"] == {"lazily": True, "kept": 3}
