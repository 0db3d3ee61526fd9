"""A small autoencoder with Accelerate. `python train.py` alone, `accelerate launch train.py`, or submitted."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

import whistlestop

EPOCHS = int(os.environ.get("EPOCHS", "4"))


def waves(count: int, seed: int) -> TensorDataset:
    draw = torch.Generator().manual_seed(seed)
    phase, pitch = torch.rand(2, count, 1, generator=draw)
    return TensorDataset(torch.sin(6 * phase + (1 + 3 * pitch) * torch.linspace(0, 3, 32)))


def main() -> None:
    set_seed(0)
    accelerator = Accelerator(cpu=True)
    layers = [torch.nn.Linear(32, 16), torch.nn.Tanh(), torch.nn.Dropout(0.05), torch.nn.Linear(16, 4)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(4, 32))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.995)
    loader = DataLoader(waves(2048, seed=1), batch_sampler=whistlestop.Batches(2048, batch_size=64, seed=0))
    model, optimizer, schedule, loader = accelerator.prepare(model, optimizer, schedule, loader)
    held_out = waves(256, seed=2).tensors[0].to(accelerator.device)
    rules = [whistlestop.plateau("val_loss", patience=4)]
    with whistlestop.run("accelerate", every="1 epoch", stop_when=rules) as run:
        run.saves_files(save=accelerator.save_state, load=accelerator.load_state, name="accelerate")
        run.track(rng=True)
        for step, (wave,) in run.each(loader, epochs=EPOCHS):
            loss = torch.nn.functional.mse_loss(model(wave), wave)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            run.log(loss=loss, lr=schedule.get_last_lr()[0])
            schedule.step()
            if step.every(16):
                with run.evaluating(), torch.no_grad():
                    model.eval()
                    run.log(val_loss=torch.nn.functional.mse_loss(model(held_out), held_out))
                    model.train()
    print(f"loss {loss.item():.5f} after {step + 1} steps")


if __name__ == "__main__":
    main()
