"""The top of the page: which run, how it is, since when, for how long still, and what it costs."""

from rich.text import Text
from textual.widget import Widget

from whistlestop.cli import words
from whistlestop.cli.run_view import credits_line, one_line
from whistlestop.cli.watching.known import Known
from whistlestop.cli.watching.style import Palette


class Header(Widget):
    """Two lines; drawn anew on every tick."""

    def __init__(self, known: Known, palette: Palette) -> None:
        super().__init__(id="header")
        self.known, self.palette = known, palette

    def render(self) -> Text:
        width = max(20, self.size.width or self.app.size.width - 2)
        first, second = title(self.known, self.palette, width), facts(self.known, self.palette)
        first.truncate(width, overflow="ellipsis")
        second.truncate(width, overflow="ellipsis")
        return Text("\n").join((first, second))


def title(known: Known, palette: Palette, width: int) -> Text:
    """The status is always seen: a long name gives way to it, and a reason to both."""
    run = known.run
    status = words.status(run)
    name = Text(one_line(run.name), style="bold")
    name.truncate(max(8, width - len(status) - len(str(run.number)) - 6), overflow="ellipsis")
    symbol, colour = words.SYMBOLS[run.status]
    style = palette.of(colour)
    text = Text.assemble((f"{symbol} ", style), (f"#{run.number} ", palette.faint), name, "  ")
    text.append(status, style=f"bold {style}")
    waits = words.with_times(run.queue.waits_for) if run.queue and run.status == "queued" else ""
    why = run.reason or (f"waits for {waits}" if waits else "")
    if why:
        text.append(f"  {one_line(why)}", style=palette.faint)
    return text


def facts(known: Known, palette: Palette) -> Text:
    run, left = known.run, known.time_left()
    parts = [(words.length(known.elapsed()), "elapsed")]
    if left is not None and run.status not in words.ENDED:
        parts.append((words.length(left), "left"))
    used, _, rest = credits_line(run).partition(" ")
    parts.append((used, f"credits {rest}"))
    parts.append((one_line(run.project), ""))
    text = Text()
    for number, (value, unit) in enumerate(parts):
        text.append("  ·  " if number else "  ", style=palette.line)
        text.append(value)
        text.append(f" {unit}" if unit else "", style=palette.faint)
    return text
