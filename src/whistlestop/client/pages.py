"""Answers that came in pages, as one."""

from collections.abc import Sequence

from whistlestop.wire.api import MetricsView, SeriesView


def joined(pages: Sequence[MetricsView]) -> MetricsView:
    """Of two values for one step the later one counts."""
    if len(pages) == 1:
        return pages[0]
    found: dict[tuple[str, str], list[SeriesView]] = {}
    for page in pages:
        for series in page.series:
            found.setdefault((series.phase, series.name), []).append(series)
    return MetricsView(series=[_joined(found[key]) for key in sorted(found)], cursor=pages[-1].cursor)


def _joined(parts: Sequence[SeriesView]) -> SeriesView:
    points = {point[0]: point for part in parts for point in part.points}
    odd = {step: word for part in parts for step, word in part.nonfinite.items()}
    return SeriesView(
        name=parts[0].name,
        phase=parts[0].phase,
        points=[points[step] for step in sorted(points)],
        nonfinite={step: word for step, word in odd.items() if points[int(step)][1] is None},
    )
