"""Which commit the code is, and whether it was changed since. Git may be missing; that is no error."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 10.0


@dataclass(frozen=True)
class Commit:
    id: str | None = None  # None: not a repository, no commit yet, or no git
    dirty: bool | None = None


def commit_of(directory: Path) -> Commit:
    commit = _git(directory, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return Commit()
    status = _git(directory, "status", "--porcelain", "--untracked-files=normal", "--", ".")
    return Commit(commit.strip(), None if status is None else bool(status.strip()))


def _git(directory: Path, *words: str) -> str | None:
    command = ["git", "-C", str(directory), "-c", "core.fsmonitor=false", *words]  # runs nothing of the repository's
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            timeout=TIMEOUT,
            stdin=subprocess.DEVNULL,
            env={**environ, "GIT_OPTIONAL_LOCKS": "0"},  # never in the way of the user's own git
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
