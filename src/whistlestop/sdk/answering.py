"""Where this process is, when its runner asks by a signal and may not look by itself. Python's faulthandler writes the
stacks, also while the interpreter's lock is held. Costs nothing until it is asked."""

import os
import signal
from pathlib import Path

STACKS = "stacks"  # files of the channel's directory: stacks-0, stacks-1, … by rank

_open: int | None = None  # the file that this process answers into


def number() -> int | None:
    """The signal; one that nobody else uses. None: this system has none."""
    return signal.SIGRTMIN + 11 if hasattr(signal, "SIGRTMIN") else None


def answer(channel: Path, rank: int) -> None:
    """From now on. Never raises: without it only a stack may be missing one day."""
    global _open
    asked = number()
    if asked is None or signal.getsignal(asked) is not signal.SIG_DFL:
        return  # the program has a use for it
    try:
        import faulthandler

        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        file = os.open(channel / f"{STACKS}-{rank}", flags, 0o600)
        faulthandler.register(asked, file=file, all_threads=True, chain=False)
        before, _open = _open, file
        if before is not None:
            os.close(before)
    except Exception:
        return
