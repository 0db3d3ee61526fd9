"""Which metrics come first: what people look at in every training, then the program's own, then the machine's."""

import re
from collections.abc import Sequence

from whistlestop.wire.charts import SeriesSummary

_VALIDATION = re.compile(r"(^|[/_.-])(val|valid|validation|eval|test)([/_.-]|$)")
_LOSS = re.compile(r"loss|nll|perplexity", re.IGNORECASE)
_RATE = re.compile(r"(^|[/_.-])(lr|learning_rate|learning-rate)", re.IGNORECASE)
_NORM = re.compile(r"grad.*norm|gnorm", re.IGNORECASE)
_KINDS = {"program": 0, "rank": 2, "system": 3}


def ordered(series: Sequence[SeriesSummary], phase: str | None) -> list[str]:
    """The names of one phase."""
    mine = [item for item in series if item.phase == phase]
    return [item.name for item in sorted(mine, key=lambda item: (_KINDS[item.kind], rank(item.name), item.name))]


def rank(name: str) -> int:
    validates = bool(_VALIDATION.search(name.lower()))
    if _LOSS.search(name):
        return 1 if validates else 0
    if _RATE.search(name):
        return 2
    return 3 if _NORM.search(name) else 4 + validates
