"""Words for whoever reads runner.log. That file may lie on a full disk: then they are lost, and nothing else is."""

import sys


def note(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass
