"""How long the steps that are left will take, and how well that is known: by the pace so far and by how it varies."""

import math
from dataclasses import dataclass

# Two-sided 90 %: the normal quantile, wider while little was seen (Student's t, within 3 %).
_NORMAL = 1.645


@dataclass(frozen=True)
class Pace:
    """Seconds per step from one report to the next: their mean and spread so far, each weighted by its steps."""

    step: int = 0  # as of the last report
    at: float = 0.0
    reports: int = 0  # that told of progress
    steps: int = 0
    mean: float = 0.0
    spread: float = 0.0  # Σ steps × (pace - mean)²

    def told(self, step: int, at: float) -> "Pace":
        """Anything but progress (the same again, a step back, a clock that jumped) only moves the mark."""
        if step == self.step and self.at:
            return self
        made, seconds = step - self.step, at - self.at
        if not self.at or made <= 0 or not 0 < seconds < math.inf:
            return Pace(step, at, self.reports, self.steps, self.mean, self.spread)
        steps, apart = self.steps + made, seconds / made - self.mean
        mean = self.mean + apart * made / steps
        spread = self.spread + made * apart * (seconds / made - mean)
        return Pace(step, at, self.reports + 1, steps, mean, spread)


def seconds_between(pace: Pace | None, left: int, likely: float) -> tuple[float, float] | None:
    """In nine of ten cases `left` more steps take between so and so long; `likely` is what is told beside it. None as
    long as there are not two reports to compare."""
    if pace is None or pace.reports < 2 or pace.steps <= 0:
        return None
    if left <= 0:
        return likely, likely
    freedom = pace.reports - 1
    quantile = _NORMAL * (1 + 1 / freedom + 1.8 / freedom**3)
    block = pace.steps / pace.reports  # steps of one report: what varies is seen block by block
    deviation = math.sqrt(pace.spread / pace.steps * pace.reports / freedom)
    half = quantile * deviation * math.sqrt(1 / pace.reports + min(1.0, block / left)) * left
    return max(0.0, likely - half), likely + half
