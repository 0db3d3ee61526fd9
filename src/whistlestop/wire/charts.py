"""The shapes of charts: what is logged, lines of any length in at most `width` buckets, sparklines for lists."""

from typing import Literal

from whistlestop.wire.api import Shape

Axis = Literal["step", "time"]


class SeriesSummary(Shape):
    """All that its attempts have logged, also what a later one has replaced."""

    name: str
    phase: str
    kind: Literal["program", "system", "rank"]
    points: int
    first_step: int
    last_step: int
    low: float | None  # of the finite values
    high: float | None
    last: float | None  # null: not finite
    last_at: float  # unix seconds
    nonfinite: int


class SeriesList(Shape):
    series: list[SeriesSummary]


class ChartLine(Shape):
    """Buckets of one attempt, in the order of `x`. What a bucket holds goes into it whole: no spike is lost."""

    attempt: int
    superseded: bool  # a later attempt has resumed before these
    x: list[float]  # step, or unix seconds, of the bucket's last point
    last: list[float | None]  # null: nothing in it is finite
    low: list[float | None] | None  # null: every bucket is one point
    high: list[float | None] | None
    nonfinite: list[tuple[float, Literal["nan", "inf", "-inf"]]]  # x and what it was; the first 100


class Chart(Shape):
    name: str
    phase: str
    axis: Axis
    lines: list[ChartLine]


class Charts(Shape):
    charts: list[Chart]


class Sparkline(Shape):
    name: str
    x: list[float]  # steps
    y: list[float | None]


class Sparklines(Shape):
    sparklines: dict[str, Sparkline]  # by run; one that has logged nothing is left out
