"""What a test needs and this machine does not have: a reason to skip at home, a failure in CI."""

import importlib
import os
from typing import Any, NoReturn


def missing(what: str) -> NoReturn:
    import pytest

    if os.environ.get("CI"):
        pytest.fail(f"missing here, and must not be in CI: {what}")
    pytest.skip(what)


def needed(module: str) -> Any:
    """The module, or the words above."""
    try:
        return importlib.import_module(module)
    except ImportError:
        missing(f"{module} is not installed")
