"""The charts: as many as the pane has room for, in pages, of the chosen phase."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Resize
from textual.message import Message

from whistlestop.cli import words
from whistlestop.cli.run_view import one_line
from whistlestop.cli.watching.braille import GUTTER, Line, draw
from whistlestop.cli.watching.pane import Pane
from whistlestop.cli.watching.style import Palette

WIDE, TALL = 44, 7  # what one chart would like to have at least
GAP = 3  # letters between two of them


class ChartPane(Pane):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,left_square_bracket", "page(-1)", "Charts before", show=False),
        Binding("right,right_square_bracket", "page(1)", "Further charts", show=False),
        Binding("z,enter", "zoom", "One large chart", show=False),
    ]

    class Wanted(Message):
        """Other charts than before are to be shown, or at another width."""

    def __init__(self, palette: Palette) -> None:
        super().__init__("Charts", id="charts")
        self.palette = palette
        self.phase: str | None = None
        self.names: Sequence[str] = ()  # in order
        self.chosen: Sequence[str] | None = None  # by the person, instead of all
        self.lines: Mapping[str, Sequence[Line]] = {}
        self.last: Mapping[str, float | None] = {}
        self.log_scale, self.zoomed = False, False
        self._first = 0

    # --- what is shown -------------------------------------------------------------------------------------------

    @property
    def listed(self) -> list[str]:
        return [name for name in self.names if self.chosen is None or name in self.chosen]

    @property
    def shown(self) -> list[str]:
        columns, rows = self._grid()
        first = min(self._first, max(0, len(self.listed) - 1))
        return self.listed[first : first + columns * rows]

    @property
    def room(self) -> int:
        """As many charts at most are seen at once."""
        return max(1, (self.size.width + GAP) // (WIDE + GAP)) * max(1, self.size.height // TALL)

    @property
    def dots(self) -> int:
        """Across one chart."""
        return max(16, (self._chart_width(self._grid()[0]) - GUTTER - 1) * 2)

    def show(
        self,
        phase: str | None,
        names: Sequence[str],
        lines: Mapping[str, Sequence[Line]],
        last: Mapping[str, float | None],
    ) -> None:
        known = self.lines if phase == self.phase else {}  # equal names in two phases are two series
        self.phase, self.names, self.lines, self.last = phase, names, {**known, **lines}, last
        title = Content(f"Charts · {one_line(phase)}" if phase else "Charts")  # a string would be read as markup
        self.border_title = title
        self._say()
        self.refresh()

    def forget(self) -> None:
        """Another phase was chosen."""
        self.names, self.lines, self._first, self.chosen = (), {}, 0, None
        self.refresh()

    def choose(self, names: Sequence[str] | None) -> None:
        self.chosen, self._first = names or None, 0
        self._changed()

    def toggle_log(self) -> None:
        self.log_scale = not self.log_scale
        self._say()
        self.refresh()

    def action_page(self, by: int) -> None:
        columns, rows = self._grid()
        first = self._first + by * columns * rows
        if 0 <= first < len(self.listed):
            self._first = first
            self._changed()

    def action_zoom(self) -> None:
        self.zoomed = not self.zoomed
        self._changed()

    def on_resize(self, _: Resize) -> None:
        self._changed()

    def _changed(self) -> None:
        self._say()
        self.post_message(self.Wanted())
        self.refresh()

    def _say(self) -> None:
        columns, rows = self._grid()
        per_page = columns * rows
        pages = -(-len(self.listed) // per_page)
        parts = [f"{self._first // per_page + 1} of {pages} · ← →"] if pages > 1 else []
        if self.log_scale:
            parts.insert(0, "log scale")
        self.border_subtitle = " · ".join(parts)

    # --- drawing -------------------------------------------------------------------------------------------------

    def _grid(self) -> tuple[int, int]:
        if self.zoomed:
            return 1, 1
        columns = max(1, (self.size.width + GAP) // (WIDE + GAP))
        rows = max(1, self.size.height // TALL)
        wanted = max(1, len(self.listed))
        columns = min(columns, wanted)
        # Four charts are a square rather than three and one.
        if wanted == 4 and columns == 3 and rows >= 2:
            columns = 2
        return columns, min(rows, -(-wanted // columns))

    def _chart_width(self, columns: int) -> int:
        return (self.size.width - GAP * (columns - 1)) // columns

    def render(self) -> Text:
        if not self.listed:
            return Text("No metrics yet.", style=self.palette.faint)
        columns, rows = self._grid()
        width, height = self._chart_width(columns), self.size.height // rows
        charts = [self._chart(name, width, height) for name in self.shown]
        lines = []
        for row in range(0, len(charts), columns):
            beside = charts[row : row + columns]
            for at in range(height):
                line = Text(no_wrap=True)
                for number, chart in enumerate(beside):
                    piece = chart[at].copy()
                    piece.truncate(width, pad=True)
                    line.append_text(piece)
                    line.append(" " * GAP if number + 1 < len(beside) else "")
                lines.append(line)
        return Text("\n").join(lines)

    def _chart(self, name: str, width: int, height: int) -> list[Text]:
        last = self.last.get(name)
        value = words.number(last) if name in self.last else ""
        title = Text(no_wrap=True)
        title.append(" " * (GUTTER + 1))
        title.append(one_line(name), style="bold")
        title.truncate(max(8, width - len(value) - 2), overflow="ellipsis")
        title.append(f"  {value}", style=self.palette.accent if last is not None else self.palette.bad)
        body = height - 2 if height > 5 else height - 1
        if body < 3 or width < GUTTER + 8:
            return [title, *(Text() for _ in range(height - 1))]
        lines = draw(self.lines.get(name, ()), width, body, log=self.log_scale, palette=self.palette)
        return [title, *lines, *(Text() for _ in range(height - 1 - body))]
