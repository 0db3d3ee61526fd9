"""What the attempt uses of its host, every few seconds, as metrics of the attempt: CPU, memory, processes, GPUs."""

import os
import threading
import time
from collections.abc import Callable

from whistlestop.channel.journal import JournalWriter
from whistlestop.engines.containment import Tree

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_WORKS = 0.02  # of one core: less is waiting, with a look at the clock now and then


class Sampler:
    def __init__(
        self,
        tree: Tree,
        journal: JournalWriter,
        *,
        every: float,
        devices: list[int],
        step: Callable[[], int],
        node: int = 0,
    ) -> None:
        self._prefix = f"system/node{node}/" if node else "system/"
        self._tree = tree
        self._journal = journal
        self._every = every
        self._devices = devices
        self._step = step
        self.worked_at = time.monotonic()  # when the attempt was last seen to compute
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        gpus = _Gpus(self._devices)
        before, before_at = self._ticks(), time.monotonic()
        while not self._stop.wait(self._every):
            after, now = self._ticks(), time.monotonic()
            # Those that ended in between take their share with them.
            used = sum(ticks - before.get(key, 0) for key, ticks in after.items()) / _TICKS
            if used > _WORKS * (now - before_at):
                self.worked_at = now
            values = {
                f"{self._prefix}cpu_percent": 100.0 * used / max(1e-3, now - before_at),
                f"{self._prefix}memory_bytes": float(sum(_resident(pid) for pid, _ in after)),
                f"{self._prefix}processes": float(len(after)),
                **gpus.read(self._prefix),
            }
            self._journal.points(self._step(), time.time(), values)
            before, before_at = after, now

    def _ticks(self) -> dict[tuple[int, int], int]:
        return {(each.pid, each.start): each.ticks for each in self._tree.members()}


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return 0


class _Gpus:
    """The attempt's GPUs through NVML; none where there is no driver."""

    def __init__(self, devices: list[int]) -> None:
        self._handles: dict[int, object] = {}
        if not os.path.exists("/proc/driver/nvidia/gpus"):
            return
        import pynvml

        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handles = {number: pynvml.nvmlDeviceGetHandleByIndex(number) for number in devices}
        except pynvml.NVMLError:
            self._handles = {}

    def read(self, prefix: str) -> dict[str, float]:
        values: dict[str, float] = {}
        for number, handle in self._handles.items():
            try:
                values[f"{prefix}gpu{number}_util"] = float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
                values[f"{prefix}gpu{number}_memory_bytes"] = float(self._nvml.nvmlDeviceGetMemoryInfo(handle).used)
            except self._nvml.NVMLError:
                continue
        return values
