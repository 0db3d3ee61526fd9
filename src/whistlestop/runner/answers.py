"""Stacks of a rank that tells them itself, where py-spy may not read them: see sdk/answering.py."""

import re
import time
from pathlib import Path
from typing import Any

from whistlestop.engines.processes import Handle
from whistlestop.sdk.answering import STACKS, number

SECONDS = 2.0  # for an answer; a process that is stopped gives none
_MOST = 1 << 20  # bytes of it
_LOOK = 0.01
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+(?: \[(?P<name>[^\]]*)\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')


def ask(handle: Handle, directory: Path, rank: int) -> list[dict[str, Any]]:
    """Its threads, the main one first, in the form of py-spy's; [] if it does not answer."""
    asked, path = number(), directory / f"{STACKS}-{rank}"
    # Who does not catch it would be ended by it: another program by now, or one that was not asked to answer.
    if asked is None or not _catches(handle.process.pid, asked):
        return []
    try:
        before = path.stat().st_size
        if not handle.send(asked):
            return []
        return parse(_grown(path, before))
    except OSError:
        return []


def parse(text: str) -> list[dict[str, Any]]:
    threads: list[dict[str, Any]] = []
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            threads.append({"thread_name": thread["name"] or "", "frames": []})
        elif threads and (frame := _FRAME.match(line)):
            threads[-1]["frames"].append({"filename": frame["file"], "line": int(frame["line"]), "name": frame["name"]})
    # Threads come the youngest first: the main one is the last.
    whole = [thread for thread in reversed(threads) if thread["frames"]]
    for place, thread in enumerate(whole):
        thread["thread_name"] = thread["thread_name"] or ("MainThread" if not place else f"Thread-{place}")
    return whole


def _grown(path: Path, before: int) -> str:
    """What is new in it, once nothing more comes."""
    deadline, size = time.monotonic() + SECONDS, before
    while time.monotonic() < deadline:
        time.sleep(_LOOK)
        now = path.stat().st_size
        if now == size > before:
            break
        size = now
    with path.open("rb") as file:
        file.seek(before)
        return file.read(_MOST).decode(errors="replace")


def _catches(pid: int, number: int) -> bool:
    with open(f"/proc/{pid}/status") as file:
        caught = next((line.split()[1] for line in file if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)
