"""Where a curve goes, with a band: power laws and exponentials that come to rest, many of them, each as likely as it
fits, on the whole curve and on its newer parts. Nothing is drawn by lot: the same curve gives the same band."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

BLOCKS = 48  # the curve is smoothed into so many points
FEWEST = 8  # of them, before anything is said
SHARES = (0.0, 0.15, 0.4)  # of the curve that are left out at its beginning: the shape may have changed since
POWERS = np.linspace(0.05, 2.0, 24)
RATES = np.geomspace(0.2, 40.0, 24)  # times that the exponential falls to 1/e within what was seen
AHEAD = 24  # points of the band
WIDER = 1.1  # the band, by the tuning half of the recorded healthy runs: neighbours in a curve are more alike than that
_LEVELS = np.array([-1.64, -1.04, -0.67, -0.39, -0.13, 0.13, 0.39, 0.67, 1.04, 1.64])  # ten equal parts of a normal
_HUGE = 1e100


@dataclass(frozen=True)
class Ahead:
    """In eight of ten runs the smoothed curve is between `low` and `high` there."""

    step: float
    low: float
    likely: float
    high: float


@dataclass(frozen=True)
class Course:
    now: float  # smoothed
    noise: float  # standard deviation of a smoothed point around the curve
    curve: tuple[tuple[float, float], ...]
    ahead: tuple[Ahead, ...]


def extrapolate(steps: Sequence[int], values: Sequence[float], end: int) -> Course | None:
    """To step `end`. None: too little is known."""
    x, y = smooth(np.asarray(steps, dtype=np.float64), np.clip(np.asarray(values, dtype=np.float64), -_HUGE, _HUGE))
    if len(x) < FEWEST or x[-1] <= x[0]:
        return None
    scale = float(np.max(np.abs(y))) or 1.0
    at = np.linspace(x[-1], max(float(end), float(x[-1])), AHEAD)
    drawn, noise, now = _draws(x, y / scale, at)
    low, likely, high = np.quantile(drawn, [0.1, 0.5, 0.9], axis=0)
    low, high = likely - (likely - low) * WIDER, likely + (high - likely) * WIDER
    if y.min() >= 0:  # a loss that was never below 0 will not be
        low, likely, high = (np.maximum(each, 0.0) for each in (low, likely, high))
    if y.min() >= 0 and y.max() <= 1 and y[-1] > y[0]:  # a share
        low, likely, high = (np.minimum(each, 1.0 / scale) for each in (low, likely, high))
    band = np.stack([at, low * scale, likely * scale, high * scale], axis=1)
    ahead = [Ahead(*(float(each) for each in row)) for row in band]
    curve = tuple((float(step), float(value)) for step, value in zip(x, y, strict=True))
    return Course(now * scale, noise * scale, curve, tuple(ahead))


def smooth(x: Values, y: Values) -> tuple[Values, Values]:
    """Means of at most `BLOCKS` parts, without what lies far outside: one spike is not where the curve goes."""
    size = max(1, -(-len(x) // BLOCKS))
    count = len(x) // size
    if not count:
        return x[:0], y[:0]
    xs, ys = (each[len(each) - count * size :].reshape(count, size) for each in (x, y))
    middle = np.median(ys, axis=1, keepdims=True)
    away = np.abs(ys - middle)
    usual = away <= 4 * np.maximum(np.median(away, axis=1, keepdims=True) * 1.4826, 1e-12 * np.abs(middle))
    usual |= size < 5
    return xs.mean(axis=1), (ys * usual).sum(axis=1) / np.maximum(1, usual.sum(axis=1))


def _draws(x: Values, y: Values, at: Values) -> tuple[Values, float, float]:
    """Equally likely courses over `at`, the noise of a point, and where the curve is now."""
    parts: list[Values] = []
    noises, nows = [], []
    for share in SHARES:
        begin = int(len(x) * share)
        if len(x) - begin < FEWEST and parts:
            break
        drawn, noise, now = _family(x[begin:], y[begin:], at)
        parts.append(drawn)
        noises.append(noise)
        nows.append(now)
    return np.concatenate(parts), float(np.median(noises)), float(np.median(nows))


def _family(x: Values, y: Values, at: Values) -> tuple[Values, float, float]:
    """All shapes at once, by least squares: y = c + a * shape(x)."""
    first, span = x[0], x[-1] - x[0]
    u, v = (x - first) / span, (at - first) / span

    def shapes(z: Values) -> Values:
        powers = (z[None, :] * 20 + 1) ** -POWERS[:, None]
        falls = np.exp(-RATES[:, None] * z[None, :])
        return np.concatenate([powers, falls])

    seen, coming, n = shapes(u), shapes(v), len(y)
    centre, mean = seen.mean(axis=1, keepdims=True), y.mean()
    apart = seen - centre
    square = (apart**2).sum(axis=1)
    slope = (apart * (y - mean)).sum(axis=1) / square
    rest = y - mean - slope[:, None] * apart
    error = (rest**2).sum(axis=1)
    floor = 1e-12 + 1e-4 * float(((y - mean) ** 2).sum()) / n
    variance = (error + floor) / max(1, n - 3)
    chance = np.exp(-0.25 * n * (np.log(error + floor) - np.log(error.min() + floor)))  # neighbours are half alike
    counts = np.maximum(0, np.round(200 * chance / chance.sum())).astype(int)
    counts[int(np.argmin(error))] += 1
    fitted = mean + slope[:, None] * (coming - centre)
    unsure = np.sqrt(2 * variance[:, None] * (1 / n + (coming - centre) ** 2 / square[:, None]))
    spread = fitted[:, None, :] + _LEVELS[None, :, None] * unsure[:, None, :]
    drawn = np.repeat(spread, counts, axis=0).reshape(-1, len(at))
    best = int(np.argmin(error))
    return drawn, float(np.sqrt(variance[best])), float(fitted[best, 0])
