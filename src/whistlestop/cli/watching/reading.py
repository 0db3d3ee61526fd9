"""What the charts need of the server: which series there are, and those lines that are in view."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whistlestop.cli.watching.braille import Line
from whistlestop.cli.watching.charts import ChartPane
from whistlestop.cli.watching.names import ordered
from whistlestop.client.client import Client
from whistlestop.wire.charts import Chart

MOST_BUCKETS = 1000


@dataclass(frozen=True)
class Drawn:
    phase: str | None
    names: Sequence[str]
    lines: Mapping[str, Sequence[Line]]
    last: Mapping[str, float | None]


def read_charts(client: Client, run: str, phase: str | None, by_hand: bool, pane: ChartPane) -> Drawn:
    """Two small answers, whatever the length of the run."""
    series = client.series(run).series
    if not by_hand and series and not any(item.phase == phase for item in series):
        phase = max(series, key=lambda item: item.last_at).phase  # a task has none: the last training, then
    names = ordered(series, phase)
    last = {item.name: item.last for item in series if item.phase == phase}
    wanted = [name for name in pane.shown if name in names] or names[: pane.room]
    if not wanted:
        return Drawn(phase, names, {}, last)
    found = client.charts(run, wanted, phase=phase, width=min(MOST_BUCKETS, pane.dots)).charts
    return Drawn(phase, names, {chart.name: lines_of(chart) for chart in found}, last)


def lines_of(chart: Chart) -> list[Line]:
    return [
        Line(
            x=line.x,
            last=line.last,
            low=line.low,
            high=line.high,
            superseded=line.superseded,
            odd=line.nonfinite,
        )
        for line in chart.lines
    ]
