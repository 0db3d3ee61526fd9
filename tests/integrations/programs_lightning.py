"""Trainers of many kinds in one process: straight, and paused and resumed. Prints what differs, a line for each kind.

Started by test_lightning_resume.py: importing Lightning takes longer than all of this.
"""

import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import whistlestop
from whistlestop.channel import layout
from whistlestop.channel.control import Control
from whistlestop.channel.layout import Word
from whistlestop.channel.reader import JournalReader
from whistlestop.domain.errors import BadRequest
from whistlestop.domain.stops import Stop
from whistlestop.integrations.lightning import Whistle

BATCHES = 8  # in an epoch
DATA = TensorDataset(torch.arange(40.0).reshape(40, 1).sin().repeat(1, 4), torch.arange(40.0).reshape(40, 1).cos())


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter(zip(*DATA.tensors, strict=True))


class Module(pl.LightningModule):
    def __init__(self, control: Control, pause_in: int | None, plateau: bool) -> None:
        super().__init__()
        layers = torch.nn
        self.net = layers.Sequential(layers.Linear(4, 8), layers.Dropout(0.3), layers.Tanh(), layers.Linear(8, 1))
        self.control, self.pause_in, self.plateau = control, pause_in, plateau
        self.validated = 0

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("seen", batch[0].sum(), on_step=True, on_epoch=False)
        self.log("worst", loss, on_epoch=True, on_step=False, reduce_fx="max")
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        if not self.trainer.sanity_checking:
            self.validated += 1
            if self.validated == self.pause_in:
                self.control[Word.STOP_LEVEL] = Stop.PAUSE
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]) + 0.01 * torch.rand(()))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), 0.01)
        if not self.plateau:
            return optimizer
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"}}


def loader_of(kind: str) -> Any:
    match kind:
        case "shuffled":
            return DataLoader(DATA, batch_size=5, shuffle=True)
        case "own generator":
            return DataLoader(DATA, batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(5))
        case "batches":
            return DataLoader(DATA, batch_sampler=whistlestop.Batches(40, 5, seed=3))
        case "workers":
            return DataLoader(DATA, batch_size=5, shuffle=True, num_workers=1)
        case "stateful":
            return StatefulDataLoader(DATA, batch_size=5, shuffle=True)
        case "stream":
            return DataLoader(Stream(), batch_size=5)
    raise AssertionError(kind)


def train(
    root: Path,
    kind: str = "shuffled",
    *,
    pause: int = 0,
    pause_in: int | None = None,
    restore: Path | None = None,
    forget: bool = False,
    plateau: bool = False,
    **options: Any,
) -> tuple[int, dict[str, dict[int, float]], dict[str, Any]]:
    """Exit code, points and weights."""
    channel = root / "channel"
    channel.mkdir(parents=True)
    control = Control.create(channel / layout.CONTROL_FILE)
    if pause:
        control[Word.STOP_AT_STEP], control[Word.STOP_LEVEL] = pause, Stop.PAUSE
    os.environ |= {layout.ENV_CHANNEL: str(channel), layout.ENV_CHECKPOINTS: str(root / "checkpoints")}
    os.environ |= {layout.ENV_PHASE: "train", layout.ENV_RESTORE: str(restore or "")}
    pl.seed_everything(0, verbose=False)
    code = 0
    try:
        with whistlestop.run("matrix") as run:
            whistle = Whistle(run)
            quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
            options = {"max_epochs": 3, "enable_model_summary": False, "accelerator": "cpu"} | quiet | options
            trainer = pl.Trainer(callbacks=[whistle], **options)
            module = Module(control, pause_in, plateau)
            held_out = DataLoader(TensorDataset(torch.ones(6, 4), torch.ones(6, 1)), batch_size=2)
            path = None if forget else whistle.ckpt_path
            trainer.fit(module, loader_of(kind), held_out, ckpt_path=path)
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        control.close()
    return code, points(channel), {name: value.clone() for name, value in module.state_dict().items()}


class Growing(pl.LightningModule):
    """Its data has 4, then 8, then 12 batches."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
        self.seen: list[int] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        self.seen.append(int(batch[0].sum() * 1000))
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.01)

    def train_dataloader(self) -> Any:
        more = torch.utils.data.ConcatDataset([DATA, DATA])
        return DataLoader(torch.utils.data.Subset(more, range(20 * (self.trainer.current_epoch + 1))), batch_size=5)


def grow(
    root: Path, *, pause: int = 0, total: int = 0, restore: Path | None = None
) -> tuple[int, list[int], list[int]]:
    """Exit code, batches that were seen, and what was told: steps done, total, epoch."""
    channel = root / "channel"
    channel.mkdir(parents=True)
    control = Control.create(channel / layout.CONTROL_FILE)
    if pause:
        control[Word.STOP_AT_STEP], control[Word.STOP_LEVEL] = pause, Stop.PAUSE
    if total:
        change = {"seq": 1, "name": "total", "value": total, "step": None, "actor": "ann"}
        (channel / "steering.json").write_text(json.dumps({"changes": [change]}))
        control[Word.STEERING] = 1
    os.environ |= {layout.ENV_CHANNEL: str(channel), layout.ENV_CHECKPOINTS: str(root / "checkpoints")}
    os.environ |= {layout.ENV_PHASE: "train", layout.ENV_RESTORE: str(restore or "")}
    module, code = Growing(), 0
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    try:
        with whistlestop.run("growing", every="5 steps" if total else None) as run:
            whistle = Whistle(run)
            trainer = pl.Trainer(
                callbacks=[whistle],
                max_epochs=3,
                reload_dataloaders_every_n_epochs=1,
                enable_model_summary=False,
                accelerator="cpu",
                **quiet,
            )
            trainer.fit(module, ckpt_path=whistle.ckpt_path)
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        told = [control[word] for word in (Word.STEP, Word.TOTAL, Word.EPOCH)]
        control.close()
    return code, module.seen, told


def growth(root: Path) -> str:
    """Data that grows from epoch to epoch is trained to its end, unless a person has set another one."""
    code, whole, told = grow(root / "whole")
    if (code, len(whole), told) != (0, 24, [24, 24, 2]):
        return f"whole: {code}, {len(whole)} steps, {told}"
    code, cut, told = grow(root / "cut", total=15)
    if (code, len(cut), told[:2]) != (0, 15, [15, 15]):
        return f"cut: {code}, {len(cut)} steps, {told}"
    code, first, told = grow(root / "first", pause=7)  # in the second epoch
    if (code, len(first), told) != (layout.EXIT_PAUSED, 7, [7, 20, 1]):
        return f"first: {code}, {len(first)} steps, {told}"
    saved = next((root / "first" / "checkpoints" / "train").glob("step-*"))
    code, second, told = grow(root / "second", restore=saved)
    if (code, first + second, told) != (0, whole, [24, 24, 2]):
        return f"second: {code}, {len(second)} steps, {told}"
    return "same"


def points(channel: Path) -> dict[str, dict[int, float]]:
    reader = JournalReader(channel, layout.metrics_prefix(0))
    names: dict[int, tuple[str, ...]] = {}
    found: dict[str, dict[int, float]] = {}
    for record in reader.records():
        if record.kind == layout.Kind.SHAPE:
            names[record.shape] = record.names()
            continue
        step, _, values = record.point()
        for name, value in zip(names[record.shape], values, strict=True):
            found.setdefault(name, {})[step] = value
    reader.close()
    return found


def differences(root: Path, kind: str, pauses: list[dict[str, int]], **options: Any) -> list[str]:
    _, whole, weights = train(root / "straight", kind, **options)
    found = []
    for number, pause in enumerate(pauses):
        here = root / str(number)
        code, first, _ = train(here / "first", kind, **pause, **options)
        saved = sorted((here / "first" / "checkpoints" / "train").glob("step-*"))
        if code != layout.EXIT_PAUSED or len(saved) != 1:
            found.append(f"{pause}: left with {code}, saved {len(saved)}")
            continue
        code, second, resumed = train(here / "second", kind, restore=saved[0], **options)
        joined = {name: first.get(name, {}) | second.get(name, {}) for name in first | second}
        found += [f"{pause}: {name}" for name in joined | whole if joined.get(name) != whole.get(name)]
        if code or not all(torch.equal(weights[name], resumed[name]) for name in weights):
            found.append(f"{pause}: weights, exit code {code}")
    return found


def main() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    root = Path(sys.argv[1])
    inside = [{"pause": 3}, {"pause": BATCHES}, {"pause": 11}]
    kinds: dict[str, tuple[str, list[dict[str, int]], dict[str, Any]]] = {
        kind: (kind, inside[1:], {}) for kind in ("own generator", "batches", "stateful", "stream", "workers")
    }
    kinds["shuffled"] = ("shuffled", [*inside, {"pause_in": 1}, {"pause_in": 3}, {"pause_in": 5}], {"plateau": True})
    kinds["no validation"] = ("shuffled", inside[1:], {"limit_val_batches": 0})
    kinds["validation in between"] = ("shuffled", inside, {"val_check_interval": 3})
    kinds["accumulated"] = ("shuffled", [{"pause": 2}, {"pause": 3}], {"accumulate_grad_batches": 3})
    kinds["by steps"] = ("shuffled", inside[1:], {"max_steps": 20, "max_epochs": -1})
    for name, (kind, pauses, options) in kinds.items():
        print(f"{name}: {'; '.join(differences(root / name, kind, pauses, **options)) or 'same'}", flush=True)
    print(f"growing: {growth(root / 'growing')}", flush=True)
    saved = next((root / "shuffled" / "0" / "first" / "checkpoints" / "train").glob("step-*"))
    try:
        train(root / "forgotten", restore=saved, forget=True)
    except BadRequest as error:
        print(f"forgotten: {error.hint}", flush=True)


if __name__ == "__main__":
    main()
