"""The page itself: its panes, its keys, and what moves by itself."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import DescendantFocus, Resize
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from whistlestop.cli import words
from whistlestop.cli.failures import printable
from whistlestop.cli.verbs import sentence
from whistlestop.cli.watching import stakes
from whistlestop.cli.watching.charts import ChartPane
from whistlestop.cli.watching.dialogs import Confirm, Help, Picker
from whistlestop.cli.watching.feed import MARKS, Feed
from whistlestop.cli.watching.header import Header
from whistlestop.cli.watching.known import Connection, Failed, Fresh, Known, Over, Progressed
from whistlestop.cli.watching.lines import LinePane, event_row, log_row
from whistlestop.cli.watching.phases import PhasePane
from whistlestop.cli.watching.reading import Drawn, read_charts
from whistlestop.cli.watching.style import DARK, LIGHT, Palette, name_of
from whistlestop.client.client import Client
from whistlestop.domain.errors import NotFound, ServerUnreachable, WhistleError
from whistlestop.wire.api import Done, EventView, LogLineView, RunView
from whistlestop.wire.timeline import TimelineView

if TYPE_CHECKING:
    from whistlestop.cli.watching.app import WatchApp

TICK = 0.1
AT_ONCE = 5000  # messages per tick: keys are answered in between
CHARTS_EVERY, TIMELINE_EVERY, RUN_EVERY = 1.0, 1.0, 5.0  # seconds
ON_THE_BAR = ("evaluation", "epoch")  # marks of the step monitor; among the events they would bury the others
PANES = ("phases", "charts", "log", "events")
NARROW, LOW, SHORT = 90, 28, 18  # columns and rows below which one pane is shown at a time, and without a frame


class Page(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "stop", "Stop"),
        Binding("p", "pause", "Pause"),
        Binding("p", "resume", "Resume"),
        Binding("k", "kill", "Kill"),
        Binding("tab", "pane(1)", "Pane"),
        Binding("shift+tab", "pane(-1)", show=False),
        Binding("c", "pick", "Charts"),
        Binding("l", "log_scale", "Log scale"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("t", "theme", show=False),
        Binding("escape", "end_search", show=False),
        Binding("question_mark", "help", "Keys", key_display="?"),
        Binding("q", "leave", "Leave"),
        Binding("ctrl+c,ctrl+q", "leave", show=False, priority=True),
    ]

    def __init__(self, client: Client, known: Known, feed: Feed, palette: Palette, *, stay: bool) -> None:
        super().__init__()
        self.client, self.known, self.feed, self.palette, self.stay = client, known, feed, palette, stay
        self.header = Header(known, palette)
        self.phases = PhasePane(known, palette)
        self.charts = ChartPane(palette)
        self.log_pane = LinePane("Log", palette, id="log")
        self.event_pane = LinePane("Events", palette, id="events")
        self._searched = self.log_pane
        self._wants = {"charts": True, "timeline": True}
        self._next_at = {"charts": 0.0, "timeline": 0.0, "run": time.monotonic() + RUN_EVERY}
        self._drawn_at = 0.0
        self._drawn_height = 0
        self._keys_for = known.run.status
        self._pane, self._going = PANES[0], False

    def compose(self) -> ComposeResult:
        yield self.header
        yield Static(id="banner", markup=False)
        yield self.phases
        yield self.charts
        with Horizontal(id="below"):
            yield self.log_pane
            yield self.event_pane
        yield Input(id="search", placeholder="search, any case · enter goes to the last match")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.add_class("on-charts")
        self.phases.focus()
        self.set_interval(TICK, self._tick)

    def on_resize(self, event: Resize) -> None:
        compact = event.size.width < NARROW or event.size.height < LOW
        self.set_class(compact, "compact")
        self.set_class(event.size.height < SHORT, "short")

    # --- what moves by itself ------------------------------------------------------------------------------------

    def _tick(self) -> None:
        taken = self._take()
        now = time.monotonic()
        if taken or now - self._drawn_at >= 0.5:
            self._drawn_at = now
            self._redraw()
        if self.known.lost_at is not None:
            return
        for what, fetch, every in (
            ("charts", self._read_charts, CHARTS_EVERY),
            ("timeline", self._read_timeline, TIMELINE_EVERY),
        ):
            if self._wants[what] and now >= self._next_at[what]:
                self._wants[what], self._next_at[what] = False, now + every
                fetch()
        if now >= self._next_at["run"] and self.known.run.status not in words.ENDED:
            self._next_at["run"] = now + RUN_EVERY
            self._read_run()
        if self.known.over and not self.stay and not self._reading():
            self.app.exit(self.known.run)

    def _take(self) -> bool:
        """What the stream has said since, applied in order."""
        taken = False
        lines, events = [], []
        for said in self.feed.take(AT_ONCE):
            taken = True
            match said:
                case LogLineView():
                    lines.append(log_row(said, phases=len(self.known.run.phases) > 1))
                case EventView():
                    if said.kind not in ON_THE_BAR:
                        events.append(event_row(said))
                    self._wants["timeline"] |= said.kind in MARKS
                case RunView():
                    self.known.take_run(said)
                    self._keys()
                case Progressed():
                    self.known.take_progress(said)
                case TimelineView():
                    self.known.take_timeline(said)
                case Fresh():
                    self._wants["charts"] = True
                case Connection(stands):
                    self._connected(stands)
                case Over(run):
                    self._ended(run)
                case Failed(error):
                    cast("WatchApp", self.app).fail(error)
        self.log_pane.add(lines)
        self.event_pane.add(events)
        return taken

    def _connected(self, stands: bool) -> None:
        self.known.take_connection(stands)
        if stands:  # whatever was missed
            self._wants.update(charts=True, timeline=True)
            self._next_at["run"] = 0.0

    def _ended(self, run: RunView | None) -> None:
        if run is None:
            cast("WatchApp", self.app).fail(NotFound(f"Run {words.name(self.known.run)} was deleted."))
            return
        self.known.take_run(run)
        self.known.over = True
        self._wants["charts"] = True
        self._keys()

    def _keys(self) -> None:
        """Which verbs there are depends on the status alone; the bar of keys is not drawn anew without need."""
        if self._keys_for != self.known.run.status:
            self._keys_for = self.known.run.status
            self.refresh_bindings()

    def _reading(self) -> bool:
        """Somebody is in the middle of something: the end of the run must not take it away."""
        return self.app.screen is not self or bool(self.log_pane.sought) or not self.log_pane.following

    def _redraw(self) -> None:
        self.header.refresh()
        height = self.phases.get_content_height(self.size, self.size, self.phases.size.width)
        self.phases.refresh(layout=height != self._drawn_height)
        self._drawn_height = height
        banner = self.query_one("#banner", Static)
        lost = self.known.lost_for
        text = ""
        if lost is not None:
            text = f"The server has been lost for {words.length(lost)}: this is how it was then. Trying again …"
        elif self.known.over:
            text = f"The run has {self.known.run.status}. q leaves." if self.known.run.status != "killed" else (
                "The run was killed. q leaves."
            )  # fmt: skip
        banner.set_class(bool(text), "shown")
        banner.set_class(lost is not None, "lost")
        banner.update(text)

    # --- questions to the server, none of them in the way of a key -------------------------------------------------

    @work(exclusive=True, group="charts")
    async def _read_charts(self) -> None:
        phase = self.phases.chosen
        wanted = phase.name if phase else None
        given = self.known.run.id, wanted, self.phases.by_hand, self.charts
        drawn = await self._ask(read_charts, self.client, *given)
        if isinstance(drawn, Drawn):
            self.charts.show(drawn.phase, drawn.names, drawn.lines, drawn.last)
        else:
            self._wants["charts"] = True

    @work(exclusive=True, group="timeline")
    async def _read_timeline(self) -> None:
        found = await self._ask(self.client.timeline, self.known.run.id)
        if isinstance(found, TimelineView):
            self.known.take_timeline(found)

    @work(exclusive=True, group="run")
    async def _read_run(self) -> None:
        """Costs go on while nothing else happens."""
        found = await self._ask(self.client.run, self.known.run.id)
        if isinstance(found, RunView) and not self.known.over:
            self.known.take_run(found)

    async def _ask(self, question: Callable[..., Any], *given: Any) -> Any:
        """None where the server is away or has nothing: the stream says so if it matters."""
        try:
            return await asyncio.to_thread(question, *given)
        except WhistleError:
            return None

    def on_chart_pane_wanted(self) -> None:
        self._wants["charts"], self._next_at["charts"] = True, 0.0

    def on_phase_pane_chosen(self) -> None:
        self.charts.forget()
        self.on_chart_pane_wanted()

    # --- verbs -----------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        waiting, ended = self.known.run.status == "waiting", self.known.run.status in words.ENDED
        match action:
            case "pause":
                return not waiting and not ended
            case "resume":
                return waiting
            case "stop" | "kill":
                return not ended
            case _:
                return True

    def action_stop(self) -> None:
        phase = self.phases.chosen
        if phase is None or phase.kind != "train":
            name = phase.name if phase else "this"
            self._say(f"{name} is a task: it has no step to stop at. Choose a train phase with ↑ and ↓.", "warning")
        elif phase.status not in ("pending", "running"):
            self._say(f"{phase.name} has already {phase.status}. Choose another phase with ↑ and ↓.", "warning")
        else:
            self._confirm("stop", phase.name)

    def action_pause(self) -> None:
        self._confirm("pause", None)

    def action_resume(self) -> None:
        self._confirm("resume", None)

    def action_kill(self) -> None:
        self._confirm("kill", None)

    @work(group="verb", exclusive=True)
    async def _confirm(self, verb: Any, phase: str | None) -> None:
        run = self.known.run
        try:
            told = None if verb == "resume" else await asyncio.to_thread(
                self.client.consequences, run.id, verb, phase=phase
            )  # fmt: skip
            if told is not None and told.refused:
                self._say(f"{sentence(told.refused)} {sentence(told.hint) if told.hint else ''}", "warning")
                return
            run = self.known.run
            question = stakes.question(verb, run, phase)
            note = await self.app.push_screen_wait(Confirm(verb, question, stakes.facts(verb, run, told), self.palette))
            if note is not None:
                done = await asyncio.to_thread(self._act, verb, run.id, phase, note)
                self.known.take_run(done.run)
                self._say(sentence(done.text), "information")
        except ServerUnreachable:
            self._say("The server can't be reached: nothing was asked of it. Try again when it is back.", "error")
        except WhistleError as error:
            self._say(f"{sentence(error.text)} {error.hint or ''}", "error")
        self._keys()

    def _act(self, verb: str, run: str, phase: str | None, note: str) -> Done:
        match verb:
            case "stop":
                return self.client.stop(run, phase=phase, note=note)
            case "pause":
                return self.client.pause(run, note=note)
            case "resume":
                return self.client.resume(run, note=note)
            case _:
                return self.client.kill(run, note=note)

    def _say(self, text: str, severity: Any) -> None:
        self.notify(printable(text).strip(), severity=severity, markup=False, timeout=6)

    # --- keys that only look ---------------------------------------------------------------------------------------

    def action_pane(self, by: int) -> None:
        self.to_pane(PANES[(PANES.index(self._pane) + by) % len(PANES)])

    def to_pane(self, name: str) -> None:
        self._pane, self._going = name, True
        if name != "phases":
            for each in PANES:
                self.set_class(each == name, f"on-{each}")
        if self.query_one(f"#{name}").focusable:
            self._arrive()  # at once: the next key may be meant for it
        else:  # where one pane is shown at a time, it takes the focus only once it is shown
            self.call_after_refresh(self._arrive)

    def _arrive(self) -> None:
        self._going = False
        if not self.query_one("#search").display:  # whoever types there stays there
            self.set_focus(self.query_one(f"#{self._pane}"))

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        # On the way to another pane the focus is wherever a hidden one has left it.
        if not self._going and event.widget.id in PANES:
            self._pane = event.widget.id
        if isinstance(event.widget, LinePane):
            self._searched = event.widget

    def action_pick(self) -> None:
        if not self.charts.names:
            self._say("There are no metrics yet.", "information")
            return
        picker = Picker(self.charts.names, self.charts.chosen)
        self.app.push_screen(picker, lambda names: None if names is None else self.charts.choose(names))

    def action_log_scale(self) -> None:
        self.charts.toggle_log()

    def action_help(self) -> None:
        self.app.push_screen(Help(self.palette))

    def action_theme(self) -> None:
        self.palette = LIGHT if self.palette.dark else DARK
        self.app.theme = name_of(dark=self.palette.dark)
        for part in (self.header, self.phases, self.charts, self.log_pane, self.event_pane):
            part.palette = self.palette
            part.refresh()

    def action_search(self) -> None:
        self.to_pane(str(self._searched.id))
        search = self.query_one("#search", Input)
        search.display = True
        self.set_focus(search)  # at once: the next letter may be typed already

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.display = False
        self._searched.focus()
        if event.value and not self._searched.seek(event.value):
            self._say("Nothing here has this text. `whistle logs --grep` searches the whole log.", "information")
            self._searched.seek("")

    def action_end_search(self) -> None:
        search = self.query_one("#search", Input)
        search.display = False
        search.value = ""
        self._searched.seek("")
        self._searched.focus()

    def action_leave(self) -> None:
        self.app.exit(self.known.run if self.known.over else None)
