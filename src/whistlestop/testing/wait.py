"""Waiting for a condition with a deadline: the only kind of waiting that tests do."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], *, within: float = 60.0, what: str = "") -> T:
    """The first true answer of `condition`. Raises AssertionError with the last answer after `within` seconds."""
    deadline = time.monotonic() + within
    pause = 0.002
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what or condition}; last answer {answer!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
