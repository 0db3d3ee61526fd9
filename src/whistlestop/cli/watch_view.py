"""What `whistle watch` knows of a run, and how that looks."""

import time
from collections import deque
from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from whistlestop.cli import words
from whistlestop.cli.failures import printable
from whistlestop.cli.log_lines import tame
from whistlestop.cli.run_view import credits_line, headline, phase_status, phase_why, summary_lines
from whistlestop.cli.show import summaries
from whistlestop.cli.watching.names import rank
from whistlestop.client import Client
from whistlestop.client.stream import Message
from whistlestop.wire.api import LogLineView, PhaseView, ProgressView, RunView, SeriesView


class Watched:
    LINES = 8  # of the log
    METRICS = 8
    POINTS = 120  # of each metric

    def __init__(
        self,
        run: RunView,
        lines: Sequence[LogLineView],
        series: Sequence[SeriesView],
        *,
        leaving: str = "Ctrl-C leaves; the run goes on.",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._leaving = clock, leaving
        self.run = run
        self._seen_at = clock()
        self._lines: deque[LogLineView] = deque(lines, self.LINES)
        self._metrics: dict[tuple[str, str], deque[tuple[int, float | None]]] = {}  # by phase and name
        self._add_points(series)

    def take(self, message: Message) -> None:
        match message.kind:
            case "run":
                self.run = RunView.model_validate(message.data, extra="ignore")
                self._seen_at = self._clock()
            case "log":
                self._lines.append(LogLineView.model_validate(message.data, extra="ignore"))
            case "points":
                found = [SeriesView.model_validate(item, extra="ignore") for item in message.data["series"]]
                self._add_points(found)
            case "progress":
                self._progress(message)
            case _:
                pass

    def view(self) -> RenderableType:
        parts: list[RenderableType] = [headline(self.run), Text(self._footer(), style="dim"), Text(), self._phases()]
        parts += [Text(line, style="dim") for line in self._risks()]
        if self._metrics:
            parts += [Text(), self._metrics_table()]
        if self._lines:
            parts += [Text(), *(self._log_line(line) for line in self._lines)]
        if self.run.status not in words.ENDED:
            parts += [Text(), Text(self._leaving, style="dim")]
        return Group(*parts)

    def _progress(self, message: Message) -> None:
        progress = ProgressView.model_validate(message.data["progress"], extra="ignore")
        phases = [
            self._later(phase, progress if phase.name == message.data["phase"] else phase.progress)
            for phase in self.run.phases
        ]
        changes = {"phases": phases, "eta_s": message.data.get("eta_s")}
        # Elapsed time goes on from when it was told, so a new progress must not take it back.
        self.run = self.run.model_copy(update={**changes, "elapsed_s": self._elapsed()})
        self._seen_at = self._clock()

    def _later(self, phase: PhaseView, progress: ProgressView) -> PhaseView:
        risk = phase.at_risk
        if risk is not None:
            risk = words.risk_later(risk, progress.step, self._clock() - self._seen_at)
        return phase.model_copy(update={"progress": progress, "at_risk": risk})

    def _add_points(self, series: Sequence[SeriesView]) -> None:
        for item in series:
            known = self._metrics.setdefault((item.phase, item.name), deque(maxlen=self.POINTS))
            known.extend((step, value) for step, value, _ in item.points[-self.POINTS :])

    def _elapsed(self) -> float:
        going = self.run.status == "running"
        return self.run.elapsed_s + (self._clock() - self._seen_at if going else 0.0)

    def _footer(self) -> str:
        left = f", {words.length(self.run.eta_s)} left" if self.run.eta_s is not None else ""
        line = f"{words.length(self._elapsed())}{left} · credits: {credits_line(self.run)}"
        waits = words.with_times(self.run.queue.waits_for) if self.run.queue else ""
        return line + (f" · waits for {printable(waits)}" if waits else "")

    def _risks(self) -> list[str]:
        later = self._clock() - self._seen_at
        found = [
            words.risk_later(phase.at_risk, phase.progress.step, later)
            for phase in self.run.phases
            if phase.at_risk is not None and phase.progress.step
        ]
        return [words.at_risk(risk) for risk in found]

    def _phases(self) -> Table:
        made = Table.grid(padding=(0, 2, 0, 0))
        for phase in self.run.phases:
            made.add_row(printable(phase.name), phase_status(phase), *_monitors(phase), phase_why(phase))
        return made

    def _metrics_table(self) -> Table:
        made = Table.grid(padding=(0, 2, 0, 0))
        made.add_column()
        made.add_column(justify="right")
        made.add_column(style="cyan")
        # Of the phases that run, the program's own; the machine's are in `whistle metrics`.
        running = [phase.name for phase in self.run.phases if phase.status == "running"]
        keys = [key for key in self._metrics if not running or key[0] in running]
        keys.sort(key=lambda key: (key[1].startswith("system/"), key[0], rank(key[1]), key[1]))
        for phase, name in keys[: self.METRICS]:
            points = self._metrics[phase, name]
            shown = name if len({owner for owner, _ in keys[: self.METRICS]}) == 1 else f"{phase}: {name}"
            if points:
                line = words.sparkline([value for _, value in points], 32)
                made.add_row(printable(shown), words.number(points[-1][1]), line)
        return made

    def _log_line(self, line: LogLineView) -> Text:
        text = Text(f"{words.local_time(line.at, date=False)} ", style="dim", no_wrap=True, overflow="ellipsis")
        return text.append(tame(line.text, coloured=False), style="red" if line.level == "error" else "default")


def end_view(client: Client, run: RunView) -> RenderableType:
    """What stays on the screen behind the page: the run as it ended, its metrics in one line each, the last words."""
    lines = client.logs(run.id, tail=Watched.LINES).lines
    logged = [item for item in client.series(run.id).series if item.kind == "program"]
    kept = sorted(logged, key=lambda item: (rank(item.name), item.name))[: Watched.METRICS]
    names = list(dict.fromkeys(item.name for item in kept))
    charts = client.charts(run.id, names, width=Watched.POINTS).charts if names else []
    series = [
        SeriesView(
            name=chart.name,
            phase=chart.phase,
            points=[
                (int(step), value, 0.0)
                for line in chart.lines
                if not line.superseded
                for step, value in zip(line.x, line.last, strict=True)
            ],
        )
        for chart in charts
    ]
    parts = [Watched(run, lines, series).view(), *summary_lines(summaries(client, run))]
    return Group(*parts)


def _monitors(phase: PhaseView) -> tuple[str, str]:
    """Steps of the phase, and batches of the epoch."""
    progress = phase.progress
    steps = f"{words.bar(progress.fraction, 24)} {words.percent(progress.fraction)} " if progress.total else ""
    batches = ""
    if progress.batches and phase.status == "running":
        epoch, batch = words.epoch_and_batch(progress)
        batches = f"E{epoch} {words.bar(batch / progress.batches, 10)} {batch:,}/{progress.batches:,}"
    return f"{steps}{words.steps(progress)}", batches
