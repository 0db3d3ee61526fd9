"""Made curves, healthy and not, each a function of a random generator: what rules are tried on beside real cases."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whistlestop.diagnosis.evidence import Evidence, Place, Series

Values = NDArray[np.float64]


def series(name: str, values: Sequence[float] | Values, *, every: int = 1, pace: float = 0.1, **more: Any) -> Series:
    steps = tuple(every * (at + 1) for at in range(len(values)))
    return Series(
        name, steps, tuple(float(value) for value in values), tuple(1000.0 + pace * step for step in steps), **more
    )


def evidence(*curves: Series, total: int | None = None, **more: Any) -> Evidence:
    last = max((each.steps[-1] for each in curves if each.steps), default=0)
    now = max((max(each.times) for each in curves if each.times), default=1000.0)
    place = Place("training", step=last, total=last if total is None else total, started_at=990.0, progress_at=now)
    return Evidence(now=now + 1, place=place, series=tuple(curves), **more)


def _noisy(random: np.random.Generator, values: Values, share: float) -> Values:
    out: Values = values * np.exp(share * random.standard_normal(len(values)))
    return out


def _decay(random: np.random.Generator) -> tuple[Values, Values]:
    count = int(random.integers(60, 1500))
    part = np.arange(count) / count
    start, floor = random.uniform(1, 10), random.uniform(0.01, 0.6)
    return part, floor + (start - floor) * np.exp(-random.uniform(3, 12) * part)


def plain(random: np.random.Generator) -> tuple[Series, ...]:
    return (series("loss", _noisy(random, _decay(random)[1], random.uniform(0, 0.3))),)


def very_noisy(random: np.random.Generator) -> tuple[Series, ...]:
    return (series("train/loss", _noisy(random, _decay(random)[1], random.uniform(0.3, 0.8))),)


def power_law(random: np.random.Generator) -> tuple[Series, ...]:
    count = int(random.integers(60, 2000))
    values = 1.7 + 9 * np.power(1.0 + np.arange(count), -random.uniform(0.2, 0.5))
    return (series("loss", _noisy(random, values, random.uniform(0.005, 0.05)), every=10),)


def warm_up_bump(random: np.random.Generator) -> tuple[Series, ...]:
    part, values = _decay(random)
    at, wide = random.uniform(0.03, 0.1), random.uniform(0.01, 0.03)
    return (
        series(
            "loss", _noisy(random, values * (1 + random.uniform(0.2, 2) * np.exp(-(((part - at) / wide) ** 2))), 0.1)
        ),
    )


def warm_up_bump_cut(random: np.random.Generator) -> tuple[Series, ...]:
    """As it looks live: in the middle of its bump, of a run that has hardly begun."""
    (whole,) = warm_up_bump(random)
    cut = max(2, int(random.uniform(0.02, 0.2) * len(whole.steps)))
    return (series("loss", whole.values[:cut]),)


def restarts(random: np.random.Generator) -> tuple[Series, ...]:
    part, values = _decay(random)
    cycles = random.integers(2, 6)
    back = 1 + random.uniform(0.2, 2) * (0.5 + 0.5 * np.cos(np.pi * (part * cycles % 1)))
    return (series("loss", _noisy(random, values * back, random.uniform(0.01, 0.15))),)


def step_decay(random: np.random.Generator) -> tuple[Series, ...]:
    count = int(random.integers(100, 1500))
    part = np.arange(count) / count
    values = 0.3 + 1.5 * np.exp(-part * 40) + 0.8 * (part < 0.33) + 0.4 * (part < 0.66)
    return (series("loss", _noisy(random, values, random.uniform(0.01, 0.15))),)


def gan(random: np.random.Generator) -> tuple[Series, ...]:
    count = int(random.integers(100, 1500))
    part = np.arange(count) / count
    swing = np.sin(part * random.uniform(4, 60)) * random.uniform(0.2, 0.8)
    g = _noisy(random, 1.2 + swing + random.uniform(-0.5, 1) * part, 0.2)
    d = _noisy(random, 1.2 - swing, 0.2)
    return series("g_loss", g), series("d_loss", d)


def reward(random: np.random.Generator) -> tuple[Series, ...]:
    count = int(random.integers(100, 1500))
    part = np.arange(count) / count
    values = 200 * part ** random.uniform(0.3, 2) + random.uniform(10, 80) * random.standard_normal(count)
    return series("reward", values), series("value_loss", _noisy(random, 5 + 50 * part, 0.5))


def spikes(random: np.random.Generator) -> tuple[Series, ...]:
    _, values = _decay(random)
    for _ in range(int(random.integers(1, 5))):
        at = int(random.integers(5, len(values)))
        wide = max(1, int(random.uniform(0.005, 0.03) * len(values)))
        values = values + random.uniform(1, 30) * np.exp(-np.maximum(0, np.arange(len(values)) - at) / wide) * (
            np.arange(len(values)) >= at
        )
    return (series("loss", _noisy(random, values, 0.05)),)


def converged(random: np.random.Generator) -> tuple[Series, ...]:
    part, _ = _decay(random)
    values = 0.2 + 2 * np.exp(-60 * part) + 0.1 * (1 - part)
    return (series("loss", _noisy(random, values, random.uniform(0.01, 0.2))),)


def with_validation(random: np.random.Generator) -> tuple[Series, ...]:
    """Validation comes down and stays, as noisy as a small one is."""
    _, values = _decay(random)
    every = max(1, len(values) // int(random.integers(8, 40)))
    level = 0.1 + 0.2 * random.random()
    val = _noisy(random, np.maximum(values[::every] * 1.1, values.min() + level), random.uniform(0.005, 0.08))
    return series("loss", _noisy(random, values, 0.1)), series("val_loss", val, every=every)


def negative(random: np.random.Generator) -> tuple[Series, ...]:
    count = int(random.integers(60, 800))
    part = np.arange(count) / count
    return (series("nll", 3 - 20 * (1 - np.exp(-6 * part)) + random.uniform(0.01, 1) * random.standard_normal(count)),)


HEALTHY: tuple[Callable[[np.random.Generator], tuple[Series, ...]], ...] = (
    plain, very_noisy, power_law, warm_up_bump, restarts, step_decay, gan, reward, spikes, converged, with_validation,
    negative,
)  # fmt: skip


def blown_up(random: np.random.Generator) -> tuple[Series, ...]:
    part, values = _decay(random)
    at = random.uniform(0.1, 0.75)
    grown = values * np.exp(np.clip((part - at) * random.uniform(30, 200), 0, random.uniform(4, 40)))
    return (series("loss", _noisy(random, grown, random.uniform(0.02, 0.3))),)


def thrown_back(random: np.random.Generator) -> tuple[Series, ...]:
    part, values = _decay(random)
    at = random.uniform(0.2, 0.7)
    return (series("loss", _noisy(random, np.where(part < at, values, values[0] * random.uniform(0.8, 1.2)), 0.1)),)


def crept_up(random: np.random.Generator) -> tuple[Series, ...]:
    part, values = _decay(random)
    at = random.uniform(0.2, 0.5)
    rise = np.maximum(0, part - at) / (1 - at) * random.uniform(0.6, 2) * (values[0] - values.min())
    return (series("loss", _noisy(random, values + rise, random.uniform(0.02, 0.15))),)


DIVERGING = (blown_up, thrown_back, crept_up)


def flat(random: np.random.Generator) -> tuple[Series, ...]:
    count = int(random.integers(60, 1500))
    return (series("loss", _noisy(random, np.full(count, random.uniform(0.5, 10)), random.uniform(0.001, 0.2))),)


def finds_the_mean(random: np.random.Generator) -> tuple[Series, ...]:
    """As with shuffled labels: a little in the beginning, and nothing after."""
    count = int(random.integers(100, 1500))
    values = 2.303 + random.uniform(0, 0.15) * np.exp(-np.arange(count) / (0.02 * count))
    return (series("loss", _noisy(random, values, random.uniform(0.001, 0.05))),)


NOT_LEARNING = (flat, finds_the_mean)


def overfits(random: np.random.Generator) -> tuple[Series, ...]:
    part, values = _decay(random)
    every = max(1, len(values) // int(random.integers(12, 40)))
    at = random.uniform(0.2, 0.6)
    val = 0.5 + np.exp(-8 * part) + random.uniform(0.5, 2) * np.maximum(0, part - at)
    name = random.choice(["val_loss", "val/loss", "valid_loss", "eval_loss", "test/loss", "validation_loss"])
    return series("loss", _noisy(random, values, 0.1)), series(
        str(name), _noisy(random, val[::every], random.uniform(0.005, 0.05)), every=every
    )
