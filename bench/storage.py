"""Checkpoints in an object store: how fast they go up and come back, beside obstore alone with the same bytes.

    python bench/storage.py [--quick] [--rounds 6] [--out FILE]

On a real S3 server of this machine, which takes its share of the same processors: only the ratios mean something.
"""

import os
import shutil
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
from measuring import Result, alone, scratch
from obstore.store import S3Store

from whistlestop.blobs import parts, staged
from whistlestop.blobs.remote import RemoteStorage
from whistlestop.blobs.staged import Staged
from whistlestop.testing.s3 import S3Server
from whistlestop.testing.slots import lay

PIECE = 32 << 20
PIECES = 8
MIB = 1 << 20


def figures(rounds: int) -> Result:
    result = Result()
    times: dict[str, list[float]] = {name: [] for name in ("raw put", "upload", "commit", "raw get", "fetch")}
    again = 1.0
    with scratch() as directory, S3Server() as server:
        os.environ |= dict(server.env)
        url = f"s3://{server.bucket()}"
        storage = RemoteStorage(f"{url}/r-1", server.options)
        raw = S3Store.from_url(f"{url}/raw", config=dict(server.options), client_options={"allow_http": True})
        storage.open_attempt("main", 1, "a-1")
        for number in range(rounds + 1):  # the first one is not counted: the server makes its volumes
            measured = one_round(storage, raw, directory, number)
            for name, seconds in measured.items():
                times[name] += [seconds] if number else []
            again = unchanged(storage, directory)
            storage.remove_all()
    size = PIECE * PIECES / MIB
    for name, seconds in times.items():
        result.raw[f"{name} s"] = [round(each, 4) for each in seconds]
        result.add(f"{name}: median", size / statistics.median(seconds), "MiB/s")
    for ours, floor, aim in (("upload", "raw put", 1 / 0.9), ("fetch", "raw get", None)):
        ratios = [a / b for a, b in zip(times[ours], times[floor], strict=True)]
        result.add(f"{ours}: time, times that of {floor}, median", statistics.median(ratios), "x", aim=aim)
    ratios = [a / (b + c) for a, b, c in zip(times["commit"], times["raw put"], times["raw get"], strict=True)]
    result.add("commit: time, times that of raw put and raw get, median", statistics.median(ratios), "x")
    result.add("unchanged state saved again: bytes sent", 100 * again, "%", aim=5)
    result.notes["what"] = f"{PIECES} pieces of {PIECE // MIB} MiB, {parts.THREADS} threads each"
    result.notes["upload"] = "read from the slot, hashed and put; commit: read back and hashed again, too"
    return result


def one_round(storage: RemoteStorage, raw: S3Store, directory: Path, number: int) -> dict[str, float]:
    """In turn, and each of them first in some round: whatever else the machine does hits all alike."""
    pieces, names = [os.urandom(PIECE) for _ in range(PIECES)], [f"{each:064x}" for each in range(PIECES)]
    first, second = state(directory, number, "upload"), state(directory, number, "commit")
    acts: list[tuple[str, Callable[[], object]]] = [
        ("upload", lambda: parts.upload(storage._objects, "trial/parts", first, {})),
        ("raw put", lambda: in_threads(lambda at: obstore.put(raw, names[at], pieces[at], use_multipart=False))),
        ("commit", lambda: storage.commit(second)),
    ]
    turn = number % len(acts)
    acts = acts[turn:] + acts[:turn]
    acts.append(("raw get", lambda: in_threads(lambda at: sum(map(len, obstore.get(raw, names[at]).stream(MIB))))))
    acts.append(("fetch", lambda: storage.fetch(storage.list("main")[0], directory / "into")))
    found = {}
    for name, act in acts:
        os.sync()  # the server's disk is busy with what was before
        began = time.perf_counter()
        act()
        found[name] = time.perf_counter() - began
    shutil.rmtree(directory / "into")
    obstore.delete(raw, names)
    return found


def unchanged(storage: RemoteStorage, directory: Path) -> float:
    """Of the bytes of a state that has not changed."""
    first = staged.read(directory / "commit")
    assert first is not None
    return storage.commit(first).written / first.bytes


def state(directory: Path, number: int, name: str) -> Staged:
    files = {f"parts/model/{each:06d}": os.urandom(PIECE) for each in range(PIECES)}
    return lay(directory / name, number, files=files, phase="main")


def in_threads(act: Callable[[int], object]) -> None:
    with ThreadPoolExecutor(parts.THREADS) as pool:
        list(pool.map(act, range(PIECES)))


if __name__ == "__main__":
    alone(figures, full=6, quick=1, doc=__doc__)
