"""The contract of all engines and the kit of the runners serve the clusters too."""

import sys
from pathlib import Path

_TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(_TESTS / "engines"), str(_TESTS / "runner")]
