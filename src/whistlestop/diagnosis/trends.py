"""Levels, noise and trends of a curve that survive spikes: medians of blocks, Mann-Kendall, Theil-Sen. Pure."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
_SIGMA = 1.4826  # the median deviation of a normal distribution, to its standard deviation
_HUGE = 1e150  # so that sums and squares stay finite


def clean(values: "tuple[float, ...] | Values") -> Values:
    return np.clip(np.asarray(values, dtype=np.float64), -_HUGE, _HUGE)


def blocks(values: Values, most: int, least: int = 1) -> Values:
    """Medians of at most `most` equal parts of `least` values or more; the odd ones are left out at the beginning."""
    size = max(least, -(-len(values) // most))
    count = len(values) // size
    if count < 1:
        return values[:0]
    medians: Values = np.median(values[len(values) - count * size :].reshape(count, size), axis=1)
    return medians


def smooth(values: Values) -> Values:
    """Each as the median of itself and its neighbours."""
    if len(values) < 3:
        return values
    wide = np.concatenate([values[:1], values, values[-1:]])
    medians: Values = np.median(np.stack([wide[:-2], wide[1:-1], wide[2:]]), axis=0)
    return medians


def noise(values: Values) -> float:
    """The standard deviation of a point around the curve: of what is left beside the median of its neighbours."""
    if len(values) < 4:
        return 0.0
    steps = _SIGMA * float(np.median(np.abs(np.diff(values)))) / np.sqrt(2)
    size = max(4, len(values) // 30)
    count = len(values) // size
    parts = values[: count * size].reshape(count, size)
    around = _SIGMA * float(np.median(np.abs(parts - np.median(parts, axis=1, keepdims=True))))
    return max(float(steps), around)


class Trend(NamedTuple):
    z: float  # Mann-Kendall: below -2 it falls, above 2 it rises, by more than chance
    tau: float  # -1: every value is below the one before, 1: above
    change: float  # Theil-Sen, from the first to the last
    unsure: float  # of the change, one standard error


NONE = Trend(0.0, 0.0, 0.0, 0.0)


def trend(values: Values) -> Trend:
    """Of some forty values at most: every pair is compared."""
    n = len(values)
    if n < 3:
        return NONE
    first, second = np.triu_indices(n, 1)
    rises = values[second] - values[first]
    score = float(np.sign(rises).sum())
    spread = np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    z = (score - np.sign(score)) / spread
    slope = float(np.median(rises / (second - first)))
    rest = values - slope * np.arange(n)
    scatter = _SIGMA * float(np.median(np.abs(rest - np.median(rest))))
    unsure = scatter * float(np.sqrt(12 / n))  # of a fitted line's rise over its whole length
    return Trend(float(z), 2 * score / (n * (n - 1)), slope * (n - 1), unsure)


def recovered(levels: Values) -> float:
    """The largest rise above an earlier low that came back by three quarters: what this curve does and survives."""
    low, peak, most = np.inf, -np.inf, 0.0
    for level in levels:
        if level < low and peak == -np.inf:
            low = level
        elif level > max(low, peak):
            peak = level
        elif peak > low and peak - level >= 0.75 * (peak - low):
            most = max(most, float(peak - low))
            low, peak = min(low, level), -np.inf
    return most
