"""Errors as programs make them, for the half on which rules are tuned. Real ones: nothing here prints a message that a
library would have printed, but for what starts with `replay_`, which this machine can't have."""

import gzip
import json
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

SCRATCH = Path(os.environ.get("SCRATCH", "."))


# --- modules -------------------------------------------------------------------------------------------------------


def module_missing(case):
    import flash_attention_kernels  # noqa: F401


def module_missing_deep(case):
    from xformers.ops import memory_efficient_attention  # noqa: F401


def module_missing_late(case):
    __import__("experiment_tracker")


def module_part_missing(case):
    import numpy.kernels  # noqa: F401


def module_old(case):
    from numpy import bfloat16_matmul  # noqa: F401


# --- files ---------------------------------------------------------------------------------------------------------


def file_missing(case):
    with open("data/train.csv") as file:
        file.read()


def file_missing_numpy(case):
    import numpy as np

    np.load("features/part-00000.npy")


def file_missing_config(case):
    json.loads(Path("configs/base.json").read_text())


def directory_missing(case):
    os.listdir("datasets/imagenet/val")


def file_missing_late(case):
    return Path("checkpoints/pretrained.bin").read_bytes()


# --- rights --------------------------------------------------------------------------------------------------------


def not_allowed_read(case):
    secret = SCRATCH / "labels.bin"
    secret.write_bytes(b"x")
    secret.chmod(0o600)
    os.seteuid(65534)
    secret.read_bytes()


def not_allowed_write(case):
    target = SCRATCH / "outputs"
    target.mkdir()
    os.seteuid(65534)
    (target / "result.json").write_text("{}")


def not_allowed_fixed(case):
    target = SCRATCH / "frozen.txt"
    target.write_text("x")
    subprocess.run(["chattr", "+i", str(target)], check=True)
    try:
        target.write_text("y")
    finally:
        subprocess.run(["chattr", "-i", str(target)], check=True)


def not_allowed_token(case):
    urllib.request.urlopen(_answers(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"))


def not_allowed_port(case):
    os.seteuid(65534)
    os.mkdir("/opt/cache-of-models")


# --- memory and disk -----------------------------------------------------------------------------------------------


def _limit_memory(extra):
    now = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + extra, now + extra))


def memory_numpy(case):
    import numpy as np

    _limit_memory(200 << 20)
    np.zeros((1 << 16, 1 << 13))


def memory_list(case):
    _limit_memory(64 << 20)
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


def memory_bytes(case):
    _limit_memory(100 << 20)
    (b"x" * 1024) * (1 << 20)


def memory_killed(case):
    """In a memory cgroup with its runner, as both are in a container."""
    _in_small_cgroup(48 << 20)
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20)))


def _in_small_cgroup(limit):
    mine = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if "memory" in line.split(":")[1])
    group = Path("/sys/fs/cgroup/memory") / mine.split(":", 2)[2].lstrip("/")
    made = group / f"case-{os.getpid()}"
    made.mkdir()
    (made / "memory.limit_in_bytes").write_text(str(limit))
    for member in (os.getppid(), os.getpid()):
        (made / "cgroup.procs").write_text(str(member))


def disk_device(case):
    with open("/dev/full", "w") as file:
        file.write("x" * 100_000)


def disk_numpy(case):
    import numpy as np

    np.save(_small_disk() / "weights.npy", np.zeros(1 << 20))


def disk_pickle(case):
    with open(_small_disk() / "state.pkl", "wb") as file:
        pickle.dump({"weights": bytes(1 << 20)}, file)


def disk_limit(case):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    with open(SCRATCH / "dump.bin", "wb") as file:
        file.write(bytes(1 << 20))


def disk_many(case):
    place = _small_disk()
    for number in range(10_000):
        (place / f"sample-{number}.txt").write_text("x" * 4000)


def _small_disk():
    place = SCRATCH / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(place)], check=True)
    return place


# --- configuration -------------------------------------------------------------------------------------------------


def config_argument(case):
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    parser.parse_args(["--lr", "1e-3", "--batchsize", "32"])


def config_type(case):
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int)
    parser.parse_args(["--epochs", "ten"])


def config_key(case):
    config = {"model": {"hidden": 64}, "optim": {"lr": 0.1}}
    return config["optimizer"]["lr"]


def config_shape(case):
    import numpy as np

    batch, weights = np.zeros((32, 784)), np.zeros((768, 10))
    return batch @ weights


def config_choice(case):
    known = {"adam": 1, "sgd": 2}
    name = "adamw"
    if name not in known:
        raise ValueError(f"unknown optimizer {name!r}: expected one of {sorted(known)}")


# --- data ----------------------------------------------------------------------------------------------------------


def data_gzip(case):
    path = SCRATCH / "shard.json.gz"
    path.write_bytes(gzip.compress(b"x" * 10_000)[:-20])
    with gzip.open(path) as file:
        file.read()


def data_npz(case):
    import numpy as np

    path = SCRATCH / "shard.npz"
    np.savez(path, x=np.zeros(1000))
    path.write_bytes(path.read_bytes()[:300])
    np.load(path)


def data_json(case):
    for line in ['{"text": "a"}', '{"text": "b"', '{"text": "c"}']:
        json.loads(line)


def data_pickle(case):
    pickle.loads(pickle.dumps({"x": list(range(1000))})[:100])


def data_number(case):
    return [float(each) for each in ("0.5", "0.7", "N/A", "0.9")]


# --- network -------------------------------------------------------------------------------------------------------


def network_name(case):
    urllib.request.urlopen("http://data.storage.invalid/train.tar")


def network_refused(case):
    socket.create_connection(("127.0.0.1", _closed_port()), timeout=2)


def network_slow(case):
    urllib.request.urlopen(_answers(b"", wait=30), timeout=0.3)


def network_reset(case):
    urllib.request.urlopen(_answers(b"", reset=True), timeout=2).read()


def network_busy(case):
    urllib.request.urlopen(_answers(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"), timeout=2)


def _closed_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _answers(answer, wait=0.0, reset=False):
    """A server in a thread that answers once."""
    listens = socket.create_server(("127.0.0.1", 0))

    def serve():
        peer, _ = listens.accept()
        if reset:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()
            return
        peer.recv(4096)
        time.sleep(wait)
        peer.sendall(answer)
        peer.close()

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listens.getsockname()[1]}/v1/dataset"


# --- code ----------------------------------------------------------------------------------------------------------


def code_index(case):
    batch = [1, 2, 3]
    return batch[len(batch)]


def code_type(case):
    return {"loss": None}["loss"] + 1.0


def code_attribute(case):
    class Model:
        pass

    return Model().forward(1)


def code_assert(case):
    produced = 3
    assert produced == 4, "expected one output for each input"


def code_recursion(case):
    def walk(node):
        return walk(node)

    walk(0)


def code_chained(case):
    try:
        return 1 / (case["steps"] - case["steps"])
    except ZeroDivisionError as error:
        raise RuntimeError("the training step failed") from error


def code_name(case):
    return undefined_schedule(3)  # noqa: F821


def code_worker(case):
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(1) as pool:
        pool.submit(_in_worker, 3).result()


def _in_worker(number):
    return [0, 1][number]


# --- ends ----------------------------------------------------------------------------------------------------------


def exit_zero(case):
    sys.exit(0)


def exit_hard(case):
    sys.stdout.flush()
    os._exit(0)


def exit_system(case):
    raise SystemExit


def exit_none(case):
    sys.exit(None)


def exit_quiet(case):
    print("all data seen", flush=True)
    raise SystemExit(0)


def crash_segv(case):
    import ctypes

    ctypes.string_at(8)


def crash_segv_told(case):
    import ctypes
    import faulthandler

    faulthandler.enable()
    ctypes.memset(16, 1, 100)


def crash_abort(case):
    os.abort()


def crash_bus(case):
    import mmap

    path = SCRATCH / "mapped"
    path.write_bytes(bytes(8192))
    with open(path, "r+b") as file:
        held = mmap.mmap(file.fileno(), 8192)
        os.truncate(path, 0)
        held[5000]


def crash_divide(case):
    os.kill(os.getpid(), signal.SIGFPE)


# --- hangs ---------------------------------------------------------------------------------------------------------


def stuck_lock(case):
    lock = threading.Lock()
    with lock:
        lock.acquire()


def stuck_queue(case):
    import queue

    queue.Queue().get()


def stuck_sleep(case):
    time.sleep(3600)


def stuck_socket(case):
    listens = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(listens.getsockname()) as peer:
        peer.recv(1)


def stuck_process(case):
    subprocess.run(["sleep", "3600"], check=True)


def stuck_spinning(case):
    while True:
        time.sleep(0.01)


# --- saves ---------------------------------------------------------------------------------------------------------


def save_lock(case, run):
    held = threading.Lock()
    run.saves(save=lambda: {"held": held}, load=lambda state: None, name="loader")


def save_raises(case, run):
    def save():
        raise RuntimeError("can't copy a tensor that requires grad")

    run.saves(save=save, load=lambda state: None, name="extra")


def save_full(case, run):
    def save(directory):
        with open("/dev/full", "wb") as file:
            file.write(bytes(100_000))

    run.saves_files(save=save, load=lambda directory: None, name="index")


# --- what this machine can't have: the libraries' own words ---------------------------------------------------------


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


OutOfMemoryError.__module__, OutOfMemoryError.__qualname__ = "torch", "OutOfMemoryError"


def replay_cuda_memory(case):
    raise OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.21 GiB is "
        "free. Including non-PyTorch memory, this process has 77.93 GiB memory in use. Of the allocated memory 75.12 "
        "GiB is allocated by PyTorch, and 1.83 GiB is reserved by PyTorch but unallocated. If reserved but unallocated "
        "memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )


def replay_cuda_memory_old(case):
    raise RuntimeError(
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total capacity; 14.56 GiB already "
        "allocated; 12.75 MiB free; 14.65 GiB reserved in total by PyTorch)"
    )


def replay_cublas_memory(case):
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


def replay_illegal_address(case):
    raise RuntimeError(
        "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported at "
        "some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing "
        "CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )


def replay_ecc(case):
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")


def replay_lost(case):
    print(
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", file=sys.stderr
    )
    raise RuntimeError("CUDA error: unspecified launch failure")


def replay_nccl_timeout(case):
    print(
        "[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=82, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600021 "
        "milliseconds before timing out.",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    os.abort()


def replay_nccl_remote(case):
    raise RuntimeError(
        "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, remote process exited or there was a "
        "network error, NCCL version 2.19.3\nncclRemoteError: A call failed possibly due to a network error or a "
        "remote process exiting prematurely.\nLast error:\nsocketProgressOpt: Call to recv from 10.0.3.14<41233> "
        "failed : Connection reset by peer"
    )


def replay_quota(case):
    raise OSError(122, "Disk quota exceeded", "/home/user/outputs/checkpoint-500.tmp")


def gloo_dies(case):
    """Two ranks, of which one dies in the middle: the other's collective fails."""
    import torch
    import torch.distributed as distributed

    distributed.init_process_group("gloo", init_method=f"file://{SCRATCH}/rendezvous")
    for number in range(8):
        if number == case["dies_at"] and distributed.get_rank() == 1:
            if case.get("asleep"):
                time.sleep(60)
            os._exit(case.get("code", 1))
        distributed.all_reduce(torch.ones(1000))


def shm_loader(case):
    """With less shared memory than a batch needs."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.zeros(64, case.get("wide", 100_000)))
    for _ in DataLoader(data, batch_size=32, num_workers=1):
        pass


def shm_numpy(case):
    from multiprocessing import shared_memory

    import numpy as np

    held = shared_memory.SharedMemory(create=True, size=16 << 20)
    np.frombuffer(held.buf, np.uint8)[:] = 1
