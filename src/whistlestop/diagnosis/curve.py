"""One metric as the rules look at it: in the order of its steps, turned so that lower is better."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from whistlestop.diagnosis.evidence import Evidence, Series
from whistlestop.diagnosis.trends import Values, blocks, clean, noise


@dataclass(frozen=True)
class Curve:
    series: Series
    sign: int = 1  # -1: better by rising, and turned over

    @cached_property
    def _order(self) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
        count = min(len(self.series.steps), len(self.series.values))
        return np.argsort(np.asarray(self.series.steps[:count], dtype=np.float64), kind="stable")

    @cached_property
    def values(self) -> Values:
        return clean(self.series.values)[self._order] * self.sign

    @cached_property
    def steps(self) -> Values:
        return np.asarray(self.series.steps, dtype=np.float64)[self._order]

    @cached_property
    def noise(self) -> float:
        return noise(self.values)

    @cached_property
    def start(self) -> float:
        """The median of its first points, a twentieth of them and five at most: a loss falls fastest here."""
        return float(np.median(self.values[: max(1, min(5, len(self) // 20))]))

    def levels(self, most: int, least: int = 1) -> Values:
        return blocks(self.values, most, least)

    def step_at(self, index: int) -> int:
        return int(self.steps[max(0, min(index, len(self) - 1))])

    def shown(self, value: float) -> str:
        return f"{value * self.sign:.4g}"

    def __len__(self) -> int:
        return len(self._order)


def part_done(evidence: Evidence, curve: Curve) -> float | None:
    """How far the run is. None: nobody knows how long it is."""
    if evidence.place.total <= 0:
        return None
    return max(float(evidence.place.step), float(curve.steps[-1])) / evidence.place.total
