"""A small classifier in plain PyTorch: schedule, scaler, averaged weights. `python train.py` alone, or submitted."""

import os

import torch
from torch.utils.data import DataLoader, TensorDataset

import whistlestop

EPOCHS = int(os.environ.get("EPOCHS", "4"))


def spirals(count: int, seed: int) -> TensorDataset:
    draw = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % 2
    turn = torch.rand(count, generator=draw) * 6 + 0.5
    points = torch.stack([turn.cos(), turn.sin()], dim=1) * turn[:, None] * (1 - 2 * label[:, None])
    return TensorDataset(points + 0.1 * torch.randn(count, 2, generator=draw), label)


def evaluate(model: torch.nn.Module, batches: list[list[torch.Tensor]]) -> float:
    model.eval()
    with torch.no_grad():
        right = [(model(points).argmax(dim=1) == label).float().mean() for points, label in batches]
    model.train()
    return float(torch.stack(right).mean())


def main() -> None:
    torch.manual_seed(0)
    data, batches = spirals(2048, seed=1), whistlestop.Batches(2048, batch_size=64, seed=0)
    loader, held_out = DataLoader(data, batch_sampler=batches), DataLoader(spirals(512, seed=2), batch_size=128)
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 64), torch.nn.ReLU(),
        torch.nn.Linear(64, 2),
    )  # fmt: skip
    averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=EPOCHS * len(loader))
    scaler = torch.amp.GradScaler(enabled=torch.cuda.is_available())
    rules = [whistlestop.above("accuracy", 0.999)]
    with whistlestop.run("pytorch", every="1 epoch", stop_when=rules) as run:
        run.track(model=model, averaged=averaged, optimizer=optimizer, schedule=schedule, scaler=scaler, rng=True)
        for step, (points, label) in run.each(loader, epochs=EPOCHS):
            loss = torch.nn.functional.cross_entropy(model(points), label)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            run.log(loss=loss, lr=schedule.get_last_lr()[0])
            schedule.step()
            averaged.update_parameters(model)
            if step.every(16):
                with run.evaluating() as over:
                    run.log(accuracy=evaluate(averaged, over(held_out)))
    print(f"accuracy {evaluate(averaged, held_out):.3f} after {step + 1} steps")


if __name__ == "__main__":
    main()
