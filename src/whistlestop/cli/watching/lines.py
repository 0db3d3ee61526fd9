"""Log and events: lines that grow at the end, by the thousand, and can be searched."""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollTo
from textual.strip import Strip

from whistlestop.cli import words
from whistlestop.cli.log_lines import tame
from whistlestop.cli.run_view import one_line
from whistlestop.cli.watching.pane import Pane
from whistlestop.cli.watching.style import Palette
from whistlestop.wire.api import EventView, LogLineView

Row = tuple[tuple[str, str], ...]  # pieces of text, each with the name of its colour in the palette, or a style
KEPT = 20_000  # lines; `whistle logs` has all of them
DROPPED = 2_000  # of the oldest at once: moving the rest costs the same for one and for many
LONGEST = 4_000  # letters of a line that are shown


class LinePane(Pane, ScrollView, can_focus=True):
    """Stays at the end as long as it is there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("g", "scroll_home", show=False),
        Binding("G", "scroll_end", show=False),
        Binding("n", "next_match(1)", show=False),
        Binding("N", "next_match(-1)", show=False),
    ]
    following = var(True)

    def __init__(self, title: str, palette: Palette, *, id: str) -> None:
        super().__init__(title, id=id)
        self.palette = palette
        self.rows: list[Row] = []
        self.sought = ""
        self._at_match: int | None = None
        self._widest = 0
        self._missed = 0

    def add(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        following = self.following
        self.rows += rows
        self._widest = max(self._widest, *(sum(cell_len(text) for text, _ in row) for row in rows))
        if len(self.rows) > KEPT:
            gone = max(DROPPED, len(self.rows) - KEPT)
            del self.rows[:gone]
            self._at_match = None
            if not following:  # what is read stays where it is
                self.scroll_to(y=max(0, self.scroll_offset.y - gone), animate=False, immediate=True)
        self.virtual_size = Size(self._widest, len(self.rows))
        if following:
            self._to_end()
        else:
            self._missed += len(rows)
        self._say()
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self.following and new_value >= self.max_scroll_y:
            self.following, self._missed = True, 0
            self._say()

    def on_resize(self) -> None:
        if self.following:
            self._to_end()

    def _to_end(self) -> None:
        self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True, force=True)

    # Only a person leaves the end. To tell it by the position would take every new layout for one.

    def action_scroll_up(self) -> None:
        self.following = False
        super().action_scroll_up()

    def action_page_up(self) -> None:
        self.following = False
        super().action_page_up()

    def action_scroll_home(self) -> None:
        self.following = False
        super().action_scroll_home()

    def action_scroll_end(self) -> None:
        self.following, self._missed = True, 0
        self._say()
        self._to_end()

    def on_mouse_scroll_up(self) -> None:
        self.following = False

    def _on_scroll_to(self, message: ScrollTo) -> None:
        self.following = False
        super()._on_scroll_to(message)

    # --- search --------------------------------------------------------------------------------------------------

    def seek(self, text: str) -> int:
        """Mark every line with this text, any case, and go to the last one. How many there are."""
        self.sought, self._at_match = text.casefold(), None
        found = self._matches()
        if found:
            self.action_next_match(-1)
        self._say()
        self.refresh()
        return len(found)

    def action_next_match(self, by: int) -> None:
        found = self._matches()
        if not found:
            return
        here = self._at_match if self._at_match is not None else len(self.rows)
        after = [at for at in found if at > here] if by > 0 else [at for at in found if at < here]
        self._at_match = (after[0] if by > 0 else after[-1]) if after else (found[0] if by > 0 else found[-1])
        self.following = False
        self.scroll_to(y=max(0, self._at_match - self.size.height // 2), animate=False, immediate=True)
        self._say()
        self.refresh()

    def _matches(self) -> list[int]:
        if not self.sought:
            return []
        return [at for at, row in enumerate(self.rows) if self.sought in "".join(text for text, _ in row).casefold()]

    def _say(self) -> None:
        """Only words of our own here: Textual reads markup in it."""
        if self.sought:
            found = self._matches()
            at = found.index(self._at_match) + 1 if self._at_match in found else 0
            self.border_subtitle = f"{at} of {len(found)} matches · n next · N before · esc ends"
        elif not self.following and self._missed:
            self.border_subtitle = f"↓ {self._missed:,} new · G goes there"
        else:
            self.border_subtitle = ""

    # --- drawing -------------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        left, top = self.scroll_offset
        width, at = self.size.width, top + y
        base = Style.parse(f"{self.palette.ink} on {self.palette.paper}")
        if at >= len(self.rows):
            return Strip.blank(width, base)
        segments = []
        for text, colour in self.rows[at]:
            style = base + Style.parse(getattr(self.palette, colour, colour)) if colour else base
            segments += list(self._marked(text, style, chosen=at == self._at_match))
        return Strip(segments).crop_extend(left, left + width, base).apply_offsets(left, at)

    def _marked(self, text: str, style: Style, *, chosen: bool) -> list[Segment]:
        folded = text.casefold()
        if not self.sought or len(folded) != len(text):  # letters that fold to two are not marked, only found
            return [Segment(text, style)]
        mark = Style.parse(f"{self.palette.paper} on {self.palette.warn if chosen else self.palette.accent}")
        made, start = [], 0
        while (found := folded.find(self.sought, start)) >= 0:
            end = found + len(self.sought)
            made += [Segment(text[start:found], style), Segment(text[found:end], style + mark)]
            start = end
        return [*made, Segment(text[start:], style)]


def log_row(line: LogLineView, *, phases: bool) -> Row:
    colour = {"error": "bad", "warning": "warn", "debug": "faint"}.get(line.level, "")
    where = f"{one_line(line.phase)}/{line.attempt} " if phases or line.attempt > 1 else ""
    rank = f"rank {line.rank} " if line.rank else ""
    text = tame(line.text, coloured=False)[:LONGEST].expandtabs(4)
    if line.stream == "sys":
        colour, text = "info", f"whistle: {text}"
    head = f"{words.local_time(line.at, date=False)} {where}{rank}"
    return (head, "faint"), (_visible(text), colour)


def event_row(event: EventView) -> Row:
    where = f"{event.phase}/{event.attempt} " if event.attempt else f"{event.phase} " if event.phase else ""
    who = event.actor if event.actor not in ("whistlestop", "runner", "program") else ""
    ours = event.scope == "run"
    return (
        (f"{words.local_time(event.at, date=False)} ", "faint"),
        (one_line(where) + " " if where else "", "faint"),
        (one_line(words.with_times(event.text))[:LONGEST], "bold" if ours else ""),
        (f"  by {one_line(who)}" if who else "", "accent"),
    )


def _visible(text: str) -> str:
    """What steers is gone by now; what is left and has no shape (half characters, marks of direction) is shown so."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
