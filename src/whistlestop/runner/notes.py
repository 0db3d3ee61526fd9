"""Words for whoever reads runner.log. That file may lie on a full disk: then they are lost, and nothing else is."""

import contextlib
import sys
from collections.abc import Iterator


def note(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


@contextlib.contextmanager
def noted(doing: str) -> Iterator[None]:
    """Whatever goes wrong inside is written down, and the flow goes on: an end has to be reported in any case."""
    try:
        yield
    except Exception as error:
        note(f"{doing}: {error!r}")
