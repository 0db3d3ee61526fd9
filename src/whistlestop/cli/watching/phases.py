"""The phases of the run, one under the other: the chosen one and those that run with their monitors."""

from datetime import UTC, datetime
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message

from whistlestop.cli import words
from whistlestop.cli.run_view import one_line
from whistlestop.cli.runs_table import ordinal
from whistlestop.cli.watching.known import Known
from whistlestop.cli.watching.monitor import batch_bar, step_bar, thinned
from whistlestop.cli.watching.pane import Pane
from whistlestop.cli.watching.style import Palette
from whistlestop.wire.api import LadderView, PhaseView
from whistlestop.wire.timeline import PhaseTimelineView

WIDEST = 120  # of a bar: longer ones are no easier to read
BEFORE_LOOP = ("queued", "allocating", "preparing", "starting")


class PhasePane(Pane):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "choose(-1)", "Phase above", show=False),
        Binding("down", "choose(1)", "Phase below", show=False),
    ]

    class Chosen(Message):
        pass

    def __init__(self, known: Known, palette: Palette) -> None:
        super().__init__("Phases", id="phases")
        self.known, self.palette = known, palette
        self._chosen: str | None = None  # None: whichever runs

    @property
    def by_hand(self) -> bool:
        return self._chosen is not None

    @property
    def chosen(self) -> PhaseView | None:
        names = {phase.name: phase for phase in self.known.run.phases}
        return names.get(self._chosen or self.known.run.phase or "") or next(iter(names.values()), None)

    def action_choose(self, by: int) -> None:
        phases = self.known.run.phases
        if not phases or self.chosen is None:
            return
        at = [phase.name for phase in phases].index(self.chosen.name)
        self._choose(phases[min(len(phases) - 1, max(0, at + by))].name)

    def _choose(self, name: str) -> None:
        self._chosen = name
        self.post_message(self.Chosen())
        self.refresh(layout=True)

    def on_click(self, event: events.Click) -> None:
        end = 1  # the frame
        for phase, lines in zip(self.known.run.phases, self._phases(self.size.width), strict=True):
            end += len(lines)
            if event.y < end:
                self._choose(phase.name)
                return

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, sum(len(lines) for lines in self._phases(width)))

    def render(self) -> Text:
        """Where there are too many for the pane: those around the chosen one."""
        parts, height = self._phases(self.size.width), self.size.height
        lines = [line for part in parts for line in part]
        names = [phase.name for phase in self.known.run.phases]
        at = names.index(self.chosen.name) if self.chosen else 0
        last = sum(len(part) for part in parts[: at + 1])
        first = max(0, min(last - height + (1 if at + 1 < len(parts) else 0), len(lines) - height))
        return Text("\n").join(lines[first : first + height])

    def _phases(self, width: int) -> list[list[Text]]:
        parts = [self._phase(phase, width) for phase in self.known.run.phases]
        for line in (line for part in parts for line in part):
            line.no_wrap = True
            line.truncate(max(10, width), overflow="ellipsis")
        return parts

    def _phase(self, phase: PhaseView, width: int) -> list[Text]:
        chosen = self.chosen is not None and phase.name == self.chosen.name
        lines = [self._title(phase, chosen)]
        if phase.status != "running" and not chosen:
            return lines
        if phase.status == "running" and phase.progress.stage in BEFORE_LOOP:
            lines.append(self._stages(phase))
        if phase.progress.total:
            lines += self._monitors(phase, width)
        elif phase.progress.step:
            lines.append(Text(f"    step {phase.progress.step:,}"))
        if (risk := self.known.at_risk(phase)) is not None and phase.progress.step:
            lines.append(Text(f"    {words.at_risk(risk)}", style=self.palette.faint))
        if phase.ladder:
            lines.append(self._ladder(phase.ladder))
        return lines

    def _title(self, phase: PhaseView, chosen: bool) -> Text:
        palette = self.palette
        symbol, colour = words.SYMBOLS.get(phase.status, ("?", ""))
        longest = max(len(one_line(each.name)) for each in self.known.run.phases)
        running = phase.status == "running"
        word = (phase.progress.stage if running else None) or phase.status
        text = Text.assemble(
            ("▸ " if chosen else "  ", palette.accent),
            (f"{symbol} ", palette.of(colour)),
            (one_line(phase.name).ljust(min(longest, 32) + 2), "bold" if chosen or running else ""),
            (word.ljust(11), palette.of(colour)),
        )
        if phase.attempts:
            text.append(words.length(self.known.phase_elapsed(phase.name)).rjust(7))
        if not running and phase.progress.step:
            text.append(f"  {words.steps(phase.progress)}", style=palette.faint)
        if why := self._why(phase):
            text.append(f"  {why}", style=palette.warn if running else palette.faint)
        return text

    def _why(self, phase: PhaseView) -> str:
        parts = []
        if phase.stop_requested and phase.status in ("pending", "running") and not phase.ladder:
            parts.append("stop requested" if phase.status == "running" else "stops as soon as it begins")
        elif phase.status == "pending" and not phase.attempts and phase.needs:
            parts.append(f"after {', '.join(phase.needs)}")
        if phase.retry_at:
            parts.append(f"again in {words.length(seconds_until(phase.retry_at))}")
        if len(phase.attempts) > 1:
            parts.append(f"attempt {phase.attempts[-1].number}")
        if any(attempt.status == "started" and not attempt.reachable for attempt in phase.attempts):
            parts.append("not heard of for a while")
        parts += words.stopped(phase.stop_reasons)
        if phase.status in ("failed", "killed", "skipped") and phase.reason:
            parts.append(phase.reason)
        return one_line("; ".join(parts))

    def _stages(self, phase: PhaseView) -> Text:
        """queued 2s › allocating 0s › preparing 1s › starting 3s"""
        text = Text("    ")
        timeline = self.known.timeline.get(phase.name)
        number = phase.attempts[-1].number if phase.attempts else None
        stages = [stage for stage in timeline.stages if stage.attempt in (number, None)] if timeline else []
        if not stages:
            return text.append(phase.progress.stage or "", style=self.palette.info)
        for at, stage in enumerate(stages):
            now = stage.seconds is None
            text.append(" › " if at else "", style=self.palette.line)
            text.append(stage.stage, style=self.palette.info if now else self.palette.faint)
            seconds = -seconds_until(stage.at) if stage.seconds is None else stage.seconds
            text.append(f" {words.length(seconds)}", style="" if now else self.palette.faint)
        return text

    def _monitors(self, phase: PhaseView, width: int) -> list[Text]:
        """One continuous timeline of the steps, and the batches of the epoch."""
        progress, palette = phase.progress, self.palette
        total = progress.total or 1
        timeline = self.known.timeline.get(phase.name)
        numbers = f"  {words.percent(progress.fraction).strip():>4}  {progress.step:,}/{total:,}"
        at, batch = words.epoch_and_batch(progress)
        epoch = f"  E{at}"
        long = max(10, min(WIDEST, width - 4 - len(numbers) - len(epoch)))
        above, bar = step_bar(
            progress.step,
            total,
            long,
            epochs=timeline.epochs if timeline else (),
            evaluations=timeline.evaluations if timeline else (),
            palette=palette,
        )
        lines = [Text("    ") + bar + Text(numbers)]
        if above.plain.strip():
            lines.insert(0, Text("    ") + above)
        if progress.batches:
            wide = max(10, min(30, width - 24))
            batches = Text.assemble("    ", (f"E{at}".ljust(5), "bold"))
            batches += batch_bar(batch, progress.batches, wide, palette=palette)
            batches.append(f"  {batch:,}/{progress.batches:,}")
            batches.append(" batches", style=palette.faint)
            legend = self._legend(timeline, long)
            if batches.cell_len + len(legend) <= width:
                batches.append(legend, style=palette.faint)
            lines.append(batches)
        elif progress.epoch:
            lines[-1].append(epoch, style="bold")
        return lines

    def _legend(self, timeline: PhaseTimelineView | None, long: int) -> str:
        if timeline is None or not (timeline.epochs or timeline.evaluations):
            return ""
        _, every = thinned(timeline.epochs, long // 3)
        ends = "epoch end" if every == 1 else f"every {ordinal(every)} epoch end"
        return f"   ┿ {ends}" + ("  ┷ evaluation" if timeline.evaluations else "")

    def _ladder(self, ladder: LadderView) -> Text:
        text = Text.assemble("    ", ("stopping", f"bold {self.palette.warn}"), f"  asked by {one_line(ladder.rung)}")
        if ladder.next_rung:
            text.append(f"  ›  {one_line(ladder.next_rung)}", style=self.palette.faint)
            if ladder.next_at:
                text.append(f" in {words.length(seconds_until(ladder.next_at))}", style=self.palette.warn)
        return text


def seconds_until(at: str) -> float:
    """Negative: it is over."""
    try:
        return (datetime.fromisoformat(at) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
