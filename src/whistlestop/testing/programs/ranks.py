"""One rank of a real torch.distributed training (gloo): model, optimizer, per-rank random state, a result per rank.

Environment: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, OUT (a directory for results), STEPS, PAUSE_MS, FREE (1: the
ranks don't wait for each other, and each is slower than the one before it).
"""

import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as distributed

import whistlestop

RANK = int(os.environ.get("RANK", "0"))
OUT = Path(os.environ.get("OUT", "."))
FREE = os.environ.get("FREE") == "1"
CALLS = {"count": 0}


def main() -> None:
    _count_collectives()
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    torch.manual_seed(1000 + RANK)
    done, calls = 0, []
    with whistlestop.run("ranks", stop_when=_rules()) as run:
        run.track(model=model, optimizer=optimizer, rng=True)
        for step in run.steps(total=int(os.environ.get("STEPS", "100000"))):
            before = CALLS["count"]
            _train(model, optimizer)
            calls.append(CALLS["count"] - before)
            if os.environ.get("DIE_AT") == f"{RANK}:{int(step)}":
                os.kill(os.getpid(), 9)
            if os.environ.get("NAN_AT") == f"{RANK}:{int(step)}":
                run.log(loss=float("nan"))
            time.sleep(float(os.environ.get("PAUSE_MS", "1")) / 1000 * (0.2 + RANK / 2 if FREE else 1))
            done = int(step) + 1
            (OUT / f"step-{RANK}").write_text(str(done))
    between = CALLS["count"] - sum(calls)
    distributed.destroy_process_group()
    result = {
        "done": done,
        "collectives": sorted(set(calls)),
        "between": between,
        "weights": [round(value, 9) for value in model.weight.flatten().tolist()],
    }
    (OUT / f"end-{RANK}.json").write_text(json.dumps(result))


def _train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in () if FREE else model.parameters():
        distributed.all_reduce(parameter.grad)
        parameter.grad /= distributed.get_world_size()
    optimizer.step()


def _rules() -> list[object]:
    return [whistlestop.non_finite("loss")] if os.environ.get("NAN_AT") else []


def _count_collectives() -> None:
    """Every collective of torch.distributed, whoever calls it."""
    for name in ("all_reduce", "broadcast", "barrier", "all_gather", "reduce", "gather", "scatter",
                 "broadcast_object_list", "all_gather_object", "monitored_barrier"):  # fmt: skip
        real = getattr(distributed, name)

        def counted(*given: object, _real: object = real, **named: object) -> object:
            CALLS["count"] += 1
            return _real(*given, **named)  # type: ignore[operator]

        setattr(distributed, name, counted)


if __name__ == "__main__":
    main()
