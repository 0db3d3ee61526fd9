"""A small regression with Lightning's Trainer. `python train.py` alone, or `whistle submit` this directory."""

import logging
import os
import warnings

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import whistlestop
from whistlestop.integrations.lightning import Whistle

EPOCHS = int(os.environ.get("EPOCHS", "6"))


class Regression(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        layers = torch.nn
        self.net = layers.Sequential(layers.Linear(8, 32), layers.Tanh(), layers.Dropout(0.1), layers.Linear(32, 1))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS * 32)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def samples(count: int, seed: int) -> TensorDataset:
    inputs = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))


def main() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    pl.seed_everything(0, verbose=False)
    model = Regression()
    rules = [whistlestop.plateau("val_loss", patience=3)]
    with whistlestop.run("lightning", every="1 epoch", stop_when=rules) as run:
        whistle = Whistle(run)
        quiet = {
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        }
        trainer = pl.Trainer(max_epochs=EPOCHS, callbacks=[whistle], accelerator="cpu", devices=1, **quiet)
        training = DataLoader(samples(1024, seed=1), batch_size=32, shuffle=True)
        held_out = DataLoader(samples(256, seed=2), batch_size=64)
        trainer.fit(model, training, held_out, ckpt_path=whistle.ckpt_path)
        val_loss = trainer.validate(model, held_out, verbose=False)[0]["val_loss"]
    print(f"val_loss {val_loss:.4f} after {trainer.global_step} steps")


if __name__ == "__main__":
    main()
