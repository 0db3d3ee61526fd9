"""What of the environment travels with a run: enough to start the same interpreter, and nothing else."""

import os
from collections.abc import Mapping

# Tokens, keys and whatever else a shell holds stay at home: those are given as secrets.
TRAVELS = (
    "PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "TZ",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "CUDA_HOME",
)


def travelling_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    environ = os.environ if environ is None else environ
    found = {name: environ[name] for name in TRAVELS if name in environ}
    return {name: value for name, value in found.items() if _can_be_said(value)}


def _can_be_said(value: str) -> bool:
    """A value that is not text can't be put into JSON."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
