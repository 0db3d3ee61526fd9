"""On a node of a cluster, with the code that the attempt itself was started with: end, salvage or forget one runner.

python -m whistlestop.engines.node_side ATTEMPTS cancel|salvage|forget SEAT
"""

import sys
from pathlib import Path

from whistlestop.engines.base import JobId
from whistlestop.engines.local import LocalEngine


def main(attempts: str, what: str, seat: str) -> None:
    engine = LocalEngine(Path(attempts))
    {"cancel": engine.cancel, "salvage": engine.salvage, "forget": engine.forget}[what](JobId(seat))


if __name__ == "__main__":
    main(*sys.argv[1:])
