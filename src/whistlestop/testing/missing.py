"""What a test needs and this machine does not have: a reason to skip at home, a failure in CI."""

import os
from typing import NoReturn


def missing(what: str) -> NoReturn:
    import pytest

    if os.environ.get("CI"):
        pytest.fail(f"missing here, and must not be in CI: {what}")
    pytest.skip(what)
