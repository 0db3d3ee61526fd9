"""Errors for the held-out half: the same kinds at other places, of other types, in other words. No rule is tuned on
what they look like."""

import csv
import io
import os
import resource
import shutil
import signal
import socket
import sqlite3
import ssl
import struct
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from pathlib import Path

from faults import (  # noqa: F401
    SCRATCH,
    OutOfMemoryError,
    _answers,
    _closed_port,
    _in_small_cgroup,
    _limit_memory,
    _small_disk,
    gloo_dies,
    shm_loader,
    shm_numpy,
)

# --- modules -------------------------------------------------------------------------------------------------------


def module_missing(case):
    import apex.optimizers  # noqa: F401


def module_missing_deep(case):
    import importlib

    importlib.import_module("mypackage.data.loaders")


def module_missing_late(case):
    try:
        import orjson_fast  # noqa: F401
    except ImportError as error:
        raise ImportError("this loader needs the package orjson-fast: pip install orjson-fast") from error


def module_part_missing(case):
    from collections import OrderedCounter  # noqa: F401


def module_old(case):
    (SCRATCH / "native_ops.so").write_bytes(b"\x7fELF not a library")
    sys.path.insert(0, str(SCRATCH))
    import native_ops  # noqa: F401


# --- files ---------------------------------------------------------------------------------------------------------


def file_missing(case):
    with zipfile.ZipFile("corpus/wiki.zip"):
        pass


def file_missing_numpy(case):
    import numpy as np

    np.loadtxt("tables/targets.txt")


def file_missing_config(case):
    os.stat("vocab/merges.txt")


def directory_missing(case):
    os.chdir("/mnt/datasets-that-are-not-mounted")


def file_missing_late(case):
    shutil.copy("last.ckpt", SCRATCH / "copy.ckpt")


# --- rights --------------------------------------------------------------------------------------------------------


def not_allowed_read(case):
    locked = SCRATCH / "private"
    locked.mkdir(mode=0o700)
    os.seteuid(65534)
    os.listdir(locked)


def not_allowed_write(case):
    kept = SCRATCH / "results.db"
    kept.touch(0o644)
    os.seteuid(65534)
    with open(kept, "a") as file:
        file.write("x")


def not_allowed_fixed(case):
    place = SCRATCH / "readonly"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(place)], check=True)
    (place / "log.txt").write_text("x")


def not_allowed_token(case):
    import urllib.request

    urllib.request.urlopen(_answers(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"))


def not_allowed_port(case):
    os.seteuid(65534)
    os.setpriority(os.PRIO_PROCESS, 0, -10)


# --- memory and disk -----------------------------------------------------------------------------------------------


def memory_numpy(case):
    import numpy as np

    _limit_memory(150 << 20)
    table = np.ones((4000, 4000))
    np.concatenate([table] * 40)


def memory_list(case):
    _limit_memory(80 << 20)
    cache = {}
    while True:
        cache[len(cache)] = "x" * 100_000 + str(len(cache))


def memory_bytes(case):
    _limit_memory(60 << 20)
    [list(range(1_000_000)) for _ in range(100)]


def memory_killed(case):
    """The same in a container of another size, with a map instead of lists."""
    import mmap

    _in_small_cgroup(64 << 20)
    held = mmap.mmap(-1, 512 << 20)
    for place in range(0, 512 << 20, 4096):
        held[place] = 1


def disk_device(case):
    out = os.open("/dev/full", os.O_WRONLY)
    os.write(out, b"x" * 4096)


def disk_numpy(case):
    import numpy as np

    np.savez(_small_disk() / "epoch-3.npz", weights=np.random.default_rng(0).normal(size=1 << 18))


def disk_pickle(case):
    source = SCRATCH / "big.bin"
    source.write_bytes(bytes(1 << 20))
    shutil.copyfile(source, _small_disk() / "copy.bin")


def disk_limit(case):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
    Path(SCRATCH / "table.csv").write_text("1,2,3\n" * 100_000)


def disk_many(case):
    connection = sqlite3.connect(_small_disk() / "results.db")
    connection.execute("CREATE TABLE results (text)")
    for _ in range(1000):
        connection.execute("INSERT INTO results VALUES (?)", ("x" * 4000,))
    connection.commit()


# --- configuration -------------------------------------------------------------------------------------------------


def config_argument(case):
    import argparse

    parser = argparse.ArgumentParser(prog="finetune.py")
    parser.add_argument("--model", required=True)
    parser.parse_args([])


def config_type(case):
    import argparse

    parser = argparse.ArgumentParser(prog="finetune.py")
    parser.add_argument("--precision", choices=["fp32", "bf16"])
    parser.parse_args(["--precision", "fp64"])


def config_key(case):
    return os.environ["MODEL_NAME"]


def config_shape(case):
    import numpy as np

    logits, targets = np.zeros((64, 10)), np.zeros((63, 10))
    return logits - targets


def config_choice(case):
    batch, devices = 30, 8
    if batch % devices:
        raise ValueError(
            f"invalid configuration: batch_size ({batch}) must be divisible by the number of devices ({devices})"
        )


# --- data ----------------------------------------------------------------------------------------------------------


def data_gzip(case):
    zlib.decompress(zlib.compress(b"y" * 10_000)[5:])


def data_npz(case):
    path = SCRATCH / "archive.zip"
    path.write_bytes(b"PK\x03\x04 and then something else")
    zipfile.ZipFile(path).namelist()


def data_json(case):
    b"caf\xe9 \xff".decode("utf-8")


def data_pickle(case):
    struct.unpack("<IIff", b"\0" * 11)


def data_number(case):
    for row in csv.DictReader(io.StringIO("id,label\n1,cat\n2,\n")):
        int(row["label"] or "")


# --- network -------------------------------------------------------------------------------------------------------


def network_name(case):
    socket.create_connection(("metadata.cluster.invalid", 443), timeout=2)


def network_refused(case):
    import urllib.request

    urllib.request.urlopen(f"http://127.0.0.1:{_closed_port()}/models/base", timeout=2)


def network_slow(case):
    listens = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(listens.getsockname(), timeout=0.3) as peer:
        peer.recv(1)


def network_reset(case):
    peer = socket.create_connection(_address(_answers(b"", reset=True)))
    time.sleep(0.1)
    for _ in range(10):
        peer.sendall(b"x" * 100_000)


def network_busy(case):
    context = ssl.create_default_context()
    with socket.create_connection(_address(_answers(b"plain text, no TLS\r\n"))) as peer:
        context.wrap_socket(peer, server_hostname="localhost")


def _address(url):
    host, port = url.split("/")[2].split(":")
    return host, int(port)


# --- code ----------------------------------------------------------------------------------------------------------


def code_index(case):
    import numpy as np

    return np.zeros(10)[np.array([3, 12])]


def code_type(case):
    def step(batch, lr):
        return batch

    return step([1, 2])


def code_attribute(case):
    return None.shape


def code_assert(case):
    import numpy as np

    np.testing.assert_allclose([1.0, 2.0], [1.0, 2.5])


def code_recursion(case):
    raise NotImplementedError("gradient of scatter_add along dim 1")


def code_chained(case):
    try:
        {}["gamma"]
    except KeyError:
        [][0]


def code_name(case):
    if case.get("seed", 0) < 0:
        total = 1
    return total


def code_worker(case):
    from multiprocessing import Pool

    with Pool(1) as pool:
        pool.map(_in_worker, ["7"])


def _in_worker(text):
    return text / 2


# --- ends ----------------------------------------------------------------------------------------------------------


def exit_zero(case):
    os._exit(0)


def exit_hard(case):
    print("early stopping", flush=True)
    sys.exit()


def exit_system(case):
    import builtins

    builtins.exit(0)


def exit_none(case):
    raise SystemExit(None)


def exit_quiet(case):
    os.execv("/bin/true", ["true"])


def crash_segv(case):
    os.kill(os.getpid(), signal.SIGSEGV)


def crash_segv_told(case):
    import ctypes

    ctypes.CFUNCTYPE(None)(64)()


def crash_abort(case):
    import ctypes

    ctypes.CDLL(None).abort()


def crash_bus(case):
    import faulthandler

    faulthandler.enable()
    os.abort()


def crash_divide(case):
    os.kill(os.getpid(), signal.SIGILL)


# --- hangs ---------------------------------------------------------------------------------------------------------


def stuck_lock(case):
    first, second = threading.Lock(), threading.Lock()

    def other():
        with second:
            time.sleep(0.1)
            with first:
                pass

    with first:
        threading.Thread(target=other, daemon=True).start()
        time.sleep(0.05)
        with second:
            pass


def stuck_queue(case):
    threading.Event().wait()


def stuck_sleep(case):
    worker = threading.Thread(target=time.sleep, args=(3600,), daemon=True)
    worker.start()
    worker.join()


def stuck_socket(case):
    reading, _ = os.pipe()
    os.read(reading, 1)


def stuck_process(case):
    import fcntl

    path = SCRATCH / "dataset.lock"
    holder = subprocess.Popen(["flock", str(path), "sleep", "3600"])
    time.sleep(0.3)
    assert holder.poll() is None
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def stuck_spinning(case):
    from multiprocessing import Queue

    Queue().get()


# --- saves ---------------------------------------------------------------------------------------------------------


def save_lock(case, run):
    run.saves(save=lambda: (each for each in range(3)), load=lambda state: None, name="stream")


def save_raises(case, run):
    def save():
        return {"optimizer": {}["state"]}

    run.saves(save=save, load=lambda state: None, name="optimizer")


def save_full(case, run):
    place = _small_disk()

    def save(directory):
        (place / "embeddings.bin").write_bytes(bytes(1 << 20))

    run.saves_files(save=save, load=lambda directory: None, name="embeddings")


# --- what this machine can't have: the libraries' own words ---------------------------------------------------------


class ResourceExhaustedError(Exception):
    """As TensorFlow names it."""


ResourceExhaustedError.__module__ = "tensorflow.python.framework.errors_impl"


class XlaRuntimeError(RuntimeError):
    """As JAX names it."""


XlaRuntimeError.__module__ = "jaxlib.xla_extension"


def replay_cuda_memory(case):
    raise ResourceExhaustedError(
        "Graph execution error:\n\nOOM when allocating tensor with shape[256,128,56,56] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Conv2D]"
    )


def replay_cuda_memory_old(case):
    raise XlaRuntimeError(
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.\nBufferAssignment OOM Debugging."
    )


def replay_cublas_memory(case):
    raise OutOfMemoryError(
        "HIP out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 63.98 GiB of which 512.00 MiB is "
        "free."
    )


def replay_illegal_address(case):
    raise RuntimeError("CUDA error: misaligned address\nCUDA kernel errors might be asynchronously reported")


def replay_ecc(case):
    raise XlaRuntimeError(
        "INTERNAL: Failed to allocate: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered"
    )


def replay_lost(case):
    error = type("NVMLError_GpuIsLost", (Exception,), {"__module__": "pynvml"})
    raise error("GPU is lost")


def replay_nccl_timeout(case):
    raise RuntimeError(
        "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by "
        "store->get('0'), but store->get('0') got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0"
    )


def replay_nccl_remote(case):
    class DistBackendError(RuntimeError):
        """As torch names it."""

    DistBackendError.__module__, DistBackendError.__qualname__ = "torch.distributed", "DistBackendError"
    raise DistBackendError(
        "NCCL communicator was aborted on rank 3. Original reason for failure was: [Rank 3] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=1181, OpType=_ALLGATHER_BASE, Timeout(ms)=1800000) ran for 1800443 "
        "milliseconds before timing out."
    )


def replay_quota(case):
    raise OSError(122, "Disk quota exceeded: '/scratch/user/run-7/optimizer.pt'")
