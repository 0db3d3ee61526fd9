"""A real torch.distributed training (gloo) over all ranks of all nodes, for the drills on clusters. Each rank leaves a
process in a session of its own behind: whoever ends the run ends that, too."""

import os
import subprocess
import time

import torch
import torch.distributed as dist

import whistlestop


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = {"steps": 0}
    with whistlestop.run() as run:
        run.track(model=model, optimizer=optimizer, state=state)
        for _ in run.steps(total=int(os.environ.get("STEPS", "1000000"))):
            x = torch.randn(8, 4)
            loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state["steps"] += 1
            time.sleep(float(os.environ.get("PACE", "0.01")))
    print(f"rank {rank} of {dist.get_world_size()} ended at {state['steps']}", flush=True)


if __name__ == "__main__":
    main()
