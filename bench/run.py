"""All benchmarks in one go, one after the other, each in a process of its own; one table, one dated record.

    python bench/run.py [--quick] [--only NAME] [--results DIRECTORY]

Writes <date>-<commit>.json (everything, with every single measurement) and .md (for reading). A benchmark that fails
or takes too long is named; the others go on. Aims that are missed do not make this command fail: the machine may be
busy, and the record says how busy it was.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measuring import Figure, Result, result_from, table

import whistlestop

HERE = Path(__file__).parent
LOOP = ("step_cost", "log_peers", "server_away")
WATCHED = ("ingest", "dashboards", "page", "charts")
SAVES = ("checkpoints", "storage", "cadence")
CAPACITY = ("deadlines", "preemption", "scheduling", "clusters", "scale")
NAMES = (*LOOP, *SAVES, *CAPACITY, "stop_latency", "kill_latency", "stuck", "submit_latency", "queue_1000", *WATCHED)
PACKAGES = ("whistlestop", "fastapi", "uvicorn", "uvloop", "websockets", "sqlalchemy", "pydantic", "httpx2", "numpy")
TIME_LIMIT = 2400.0  # seconds for one; each has its own limits, too
LEAVE_SECONDS = 120.0  # to end its server and its runs


@dataclass(frozen=True)
class Ran:
    name: str
    command: str
    seconds: float
    load_before: tuple[float, float, float]
    result: Result
    trouble: str | None = None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short form, to see that everything works")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="where the record is written")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    about = surroundings()
    warn(about)
    ran: list[Ran] = []
    for name in chosen.only or NAMES:
        print(f"{name} …", file=sys.stderr, flush=True)
        ran.append(run_one(name, quick=chosen.quick))
        if ran[-1].trouble:
            print(f"{name}: {ran[-1].trouble}", file=sys.stderr, flush=True)
    text = combined(ran)
    print(text)
    print(f"\nwritten: {write(chosen.results, about, ran, text, quick=chosen.quick)}")
    return 1 if any(each.trouble for each in ran) else 0


def run_one(name: str, *, quick: bool) -> Ran:
    """In its own process: what one does to its environment or its memory does not reach the next."""
    words = [sys.executable, str(HERE / f"{name}.py"), *(["--quick"] if quick else [])]
    load, began, trouble = os.getloadavg(), time.monotonic(), None
    with tempfile.TemporaryDirectory(prefix="whistle-bench-") as directory:
        out = Path(directory) / "result.json"
        process = subprocess.Popen([*words, "--out", str(out)], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        try:
            code = process.wait(TIME_LIMIT)
            trouble = f"ended with {code}" if code else None
        except subprocess.TimeoutExpired:
            trouble = f"took longer than {TIME_LIMIT:g} s"
        finally:
            end(process)
        seconds = time.monotonic() - began
        result = result_from(json.loads(out.read_bytes())) if out.exists() else Result()
    return Ran(name, shown(words), round(seconds, 1), load, result, trouble)


def end(process: subprocess.Popen[bytes]) -> None:
    """In order first: it has a server to end."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LEAVE_SECONDS)
    if process.poll() is None:
        process.kill()
        process.wait()


def shown(words: Sequence[str]) -> str:
    return shlex.join(["python", *(os.path.relpath(each, HERE.parent) if "/" in each else each for each in words[1:])])


def surroundings() -> dict[str, Any]:
    """What a figure means nothing without."""
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "HEAD") or "unknown",
        "changed since the commit": git("status", "--porcelain", "--untracked-files=no", "--", "src").splitlines(),
        "package of this tree": Path(whistlestop.__file__).is_relative_to(HERE.parent),  # else: not its commit
        "command": shlex.join(["python", os.path.relpath(__file__, HERE.parent), *sys.argv[1:]]),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "load average before": os.getloadavg(),
        "scratch directory": f"{tempfile.gettempdir()} ({file_system(tempfile.gettempdir())})",
    }


def warn(about: dict[str, Any]) -> None:
    if about["load average before"][0] > 0.5:
        load = about["load average before"][0]
        print(f"The machine is busy (load average {load:.2f}): times will be too long.", file=sys.stderr)
    if about["changed since the commit"]:
        print("src/ differs from the commit: the record says so in its name.", file=sys.stderr)


def combined(ran: Sequence[Ran]) -> str:
    rows: list[tuple[str, Figure]] = []
    for each in ran:
        rows += [(f"{each.name}: {figure.name}", figure) for figure in each.result.figures]
    text = table(rows)
    troubles = [f"{each.name}: {each.trouble}" for each in ran if each.trouble]
    return "\n".join([text, *troubles])


def write(directory: Path, about: dict[str, Any], ran: Sequence[Ran], text: str, *, quick: bool) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    changed = "-changed" if about["changed since the commit"] else ""
    path = directory / f"{about['at'][:10]}-{about['commit'][:7]}{changed}{'-quick' if quick else ''}.md"
    data = {**about, "quick": quick, "benchmarks": [asdict(each) for each in ran]}
    path.with_suffix(".json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    path.write_text(as_markdown(about, ran, text, path.stem, quick=quick))
    return path


def as_markdown(about: dict[str, Any], ran: Sequence[Ran], text: str, stem: str, *, quick: bool) -> str:
    lines = [f"# Benchmarks, {about['at'][:10]}, commit {about['commit'][:7]}", ""]
    if quick:
        lines += ["The short form, made to see that everything works: not for publishing.", ""]
    lines += [f"- {name}: {plain(value)}" for name, value in about.items()]
    lines += ["", f"Every single measurement is in {stem}.json.", "", "```", text, "```"]
    for each in ran:
        load = " ".join(f"{value:.2f}" for value in each.load_before)
        lines += ["", f"## {each.name}", "", f"`{each.command}`: {each.seconds:g} s, load average before: {load}"]
        lines += [f"- {name}: {plain(note)}" for name, note in each.result.notes.items()]
    return "\n".join(lines) + "\n"


def plain(value: object) -> str:
    match value:
        case dict():
            return ", ".join(f"{name} {each}" for name, each in value.items())
        case list() | tuple():
            return ", ".join(f"{each:.2f}" if isinstance(each, float) else str(each) for each in value) or "nothing"
        case _:
            return str(value)


def git(*words: str) -> str:
    answer = subprocess.run(["git", "-C", str(HERE.parent), *words], capture_output=True, text=True, check=False)
    return answer.stdout.rstrip() if answer.returncode == 0 else ""


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def file_system(path: str) -> str:
    """Of the longest mount point above it: what an fsync costs depends on it."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = [(where, kind) for where, kind in mounts if Path(path).resolve().is_relative_to(where)]
    return max(above, key=lambda each: len(each[0]), default=("", "unknown"))[1]


if __name__ == "__main__":
    sys.exit(main())
