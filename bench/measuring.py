"""What every benchmark shares: figures with their aims, a scratch server that leaves nothing behind, one command line.

Times are `time.monotonic()`: on Linux one clock for all processes of the machine, which nobody sets back.
"""

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess
from whistlestop.wire.api import RunView
from whistlestop.wire.spec_file import spec_to_text

LEAVE_SECONDS = 20.0  # for runners to go after their run has ended


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    aim: float | None = None  # at most this much

    @property
    def met(self) -> bool | None:
        return None if self.aim is None else self.value <= self.aim


@dataclass
class Result:
    """`raw` holds every single measurement, `notes` what a reader must know to judge them."""

    figures: list[Figure] = field(default_factory=list)
    raw: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, value: float, unit: str, *, aim: float | None = None) -> None:
        self.figures.append(Figure(name, round(value, 3), unit, aim))

    def add_times(
        self, name: str, seconds: Sequence[float], *, p50: float | None = None, p99: float | None = None
    ) -> None:
        """p50, p99 and the longest, in milliseconds; the aims too."""
        milliseconds = [each * 1000 for each in seconds]
        self.raw[f"{name} ms"] = [round(each, 3) for each in milliseconds]
        self.add(f"{name}: p50", percentile(milliseconds, 50), "ms", aim=p50)
        self.add(f"{name}: p99", percentile(milliseconds, 99), "ms", aim=p99)
        self.add(f"{name}: longest of {len(milliseconds)}", max(milliseconds), "ms")

    def add_ratio(self, name: str, ours: Sequence[float], floor: Sequence[float]) -> None:
        """Ours against what the machine needs for the bare thing, medians of the same minutes."""
        self.add(f"{name}: p50, times its floor", percentile(ours, 50) / percentile(floor, 50), "x")


def percentile(values: Sequence[float], percent: float) -> float:
    """By nearest rank: a value that was measured, never one in between. Under 100 values p99 is the longest."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


# --- a server of its own -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="whistle-bench-") as directory:
        yield Path(directory)


@contextlib.contextmanager
def scratch_server(*, slots: int = 1) -> Iterator[ServerProcess]:
    """A real server on a free port in a directory of its own; every run, runner and file of it is gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="whistle-bench-"))
    server = ServerProcess(directory, slots=slots)
    try:
        with server:
            yield server
    except BaseException:
        with contextlib.suppress(OSError):
            sys.stderr.write(server.output()[-3000:])
        raise
    finally:
        deadline = time.monotonic() + LEAVE_SECONDS
        while mentions(str(directory)) and time.monotonic() < deadline:
            time.sleep(0.05)
        shutil.rmtree(directory, ignore_errors=True)
        if left := mentions(str(directory)):
            sys.stderr.write(f"still there: processes {left} of {directory}\n")


def spec_of(*phases: Mapping[str, Any], name: str) -> str:
    """Made before the clock starts."""
    return spec_to_text({"name": name, "phases": [dict(phase) for phase in phases]})


def submit(client: Client, spec: str, directory: Path) -> RunView:
    """In place, with this interpreter's PATH, over a connection that is kept."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return client.submit(spec, in_place=str(directory), env={"PATH": path})


def mentions(text: str) -> list[int]:
    """Processes with these words in their command line: runners are started with their attempt's directory."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if text.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                found.append(int(entry))
    return found


def numbers_in(path: Path, *, within: float = 60.0) -> list[float]:
    """The numbers in a line that a program writes, once the whole line is there."""
    deadline = time.monotonic() + within
    while True:
        with contextlib.suppress(FileNotFoundError):
            text = path.read_text()
            if text.endswith("\n"):
                return [float(word) for word in text.split()]
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path.name} was not written within {within:g} s")
        time.sleep(0.003)


# --- the command line of each ------------------------------------------------------------------------------------


def alone(measure: Callable[[int], Result], *, full: int, quick: int, doc: str | None, what: str = "rounds") -> None:
    """`--quick`, `--<what> N`, `--out FILE`. SIGTERM ends it in order, as Ctrl-C does."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(f"--{what}", dest="count", type=int, help=f"default: {full:,}, with --quick {quick:,}")
    parser.add_argument("--quick", action="store_true", help="a short form, to see that it works")
    parser.add_argument("--out", type=Path, help="write figures and every single measurement there, as JSON")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    result = measure(chosen.count or (quick if chosen.quick else full))
    print(table([(figure.name, figure) for figure in result.figures]))
    for name, note in result.notes.items():
        print(f"{name}: {note}")
    if chosen.out:
        chosen.out.write_text(json.dumps(asdict(result), indent=1) + "\n")


def result_from(data: Mapping[str, Any]) -> Result:
    return Result([Figure(**each) for each in data["figures"]], data["raw"], data["notes"])


def table(rows: Sequence[tuple[str, Figure]]) -> str:
    """Plain text, the aim beside what was measured."""
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"{'':{width}}  {'measured':>14} {'unit':9} {'aim':>9}"]
    for name, figure in rows:
        aim = "" if figure.aim is None else f"≤ {figure.aim:g}"
        verdict = {None: "", True: "met", False: "MISSED"}[figure.met]
        lines.append(f"{name:{width}}  {figure.value:>14,.3f} {figure.unit:9} {aim:>9} {verdict}".rstrip())
    return "\n".join(lines)
