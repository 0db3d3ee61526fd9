"""Charts out of braille dots: two by four of them in every letter. Pure: numbers in, lines of text out."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from whistlestop.cli.watching.style import Palette

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column inside one letter
GUTTER = 9  # letters for the numbers on the left
SMALLEST = (GUTTER + 8, 3)


@dataclass(frozen=True)
class Line:
    x: Sequence[float]
    last: Sequence[float | None]
    low: Sequence[float | None] | None = None  # None: every bucket is one point
    high: Sequence[float | None] | None = None
    superseded: bool = False
    odd: Sequence[tuple[float, str]] = ()  # where a value was not finite, and which


@dataclass
class Canvas:
    columns: int
    rows: int
    bits: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bits = [[0] * self.columns for _ in range(self.rows)]

    def dot(self, x: int, y: int) -> None:
        """From the lower left corner."""
        if 0 <= x < self.columns * 2 and 0 <= y < self.rows * 4:
            down = self.rows * 4 - 1 - y
            self.bits[down // 4][x // 2] |= _DOTS[down % 4][x % 2]

    def stroke(self, x0: int, y0: int, x1: int, y1: int) -> None:
        count = max(abs(x1 - x0), abs(y1 - y0), 1)
        for at in range(count + 1):
            self.dot(round(x0 + (x1 - x0) * at / count), round(y0 + (y1 - y0) * at / count))


@dataclass(frozen=True)
class Scale:
    low: float
    high: float
    dots: int
    log: bool = False

    def at(self, value: float) -> int | None:
        """The dot for a value; None: it has no place here (not positive on a log scale)."""
        if self.log and value <= 0:
            return None
        low, high, here = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        if high / 2 <= low / 2:  # halves: the whole range may be more than a float holds
            return self.dots // 2
        return min(self.dots - 1, max(0, round((here / 2 - low / 2) / (high / 2 - low / 2) * (self.dots - 1))))

    def value(self, share: float) -> float:
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            return float(10 ** (low + (high - low) * share))
        return self.low * (1 - share) + self.high * share


def draw(lines: Sequence[Line], width: int, height: int, *, log: bool, palette: Palette) -> list[Text]:
    """`height` lines of `width` letters: the plot with its numbers on the left, and the steps below."""
    columns, rows = width - GUTTER - 1, height - 1
    scale_y = _scale_y(lines, rows * 4, log)
    scale_x = _scale_x(lines, columns * 2)
    if scale_y is None or scale_x is None:
        return _nothing(lines, width, height, log, palette)
    old, band, course = (Canvas(columns, rows) for _ in range(3))
    for line in lines:
        _course(old if line.superseded else course, line, scale_x, scale_y)
        if not line.superseded:
            _band(band, line, scale_x, scale_y)
    odd = {(scale_x.at(x) or 0) // 2 for line in lines if not line.superseded for x, _ in line.odd}
    made = []
    for row in range(rows):
        letters = []
        layers = ((course.bits[row], palette.accent), (band.bits[row], palette.band), (old.bits[row], palette.line))
        for column in range(columns):
            bits, style = next(((layer[column], style) for layer, style in layers if layer[column]), (0, ""))
            letters.append((chr(0x2800 + bits) if bits else " ", style))
        if row == 0:
            for column in odd:
                letters[column] = ("✗", palette.bad)
        made.append(joined([(_label(row, rows, scale_y).rjust(GUTTER) + " ", palette.faint), *letters]))
    made.append(_below(scale_x, width, columns, palette))
    return made


def joined(letters: Iterable[tuple[str, str]]) -> Text:
    """Neighbours of one colour become one piece: a terminal draws pieces, not letters."""
    groups = itertools.groupby(letters, key=lambda pair: pair[1])
    return Text.assemble(*(("".join(text for text, _ in group), style) for style, group in groups), no_wrap=True)


def short(value: float) -> str:
    """Three digits that matter: 0.213, 1.2e-05, 12.5k, 3M"""
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e15 or size < 1e-3:
        return f"{value:.1e}"
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.3g}"


def _course(canvas: Canvas, line: Line, scale_x: Scale, scale_y: Scale) -> None:
    before: tuple[int, int] | None = None
    for x, value in zip(line.x, line.last, strict=True):
        at = None if value is None else scale_y.at(value)
        if at is None:
            before = None  # a gap is shown as one
            continue
        here = (scale_x.at(x) or 0, at)
        canvas.stroke(*(before or here), *here)
        before = here


def _band(canvas: Canvas, line: Line, scale_x: Scale, scale_y: Scale) -> None:
    """From the lowest to the highest of every bucket: a spike of one step is seen."""
    if line.low is None or line.high is None:
        return
    for x, low, high in zip(line.x, line.low, line.high, strict=True):
        top = None if high is None else scale_y.at(high)
        if low is None or top is None:
            continue
        bottom = scale_y.at(low)
        column = scale_x.at(x) or 0
        for y in range(0 if bottom is None else bottom, top + 1):
            canvas.dot(column, y)


def _scale_y(lines: Sequence[Line], dots: int, log: bool) -> Scale | None:
    current = [line for line in lines if not line.superseded] or list(lines)
    found = [value for line in current for value in _values(line) if not log or value > 0]
    if not found:
        return None
    low, high = min(found), max(found)
    if low == high and not log:
        room = abs(low) * 0.1 or 1.0
        low, high = low - room, high + room
    return Scale(low, high, dots, log)


def _scale_x(lines: Sequence[Line], dots: int) -> Scale | None:
    found = [x for line in lines for ends in (line.x[:1], line.x[-1:]) for x in ends]
    if not found:
        return None
    low, high = min(found), max(found)
    return Scale(0 if 0 < low < high / 20 else low, high, dots)  # a bucket is told by its last step, not its first


def _values(line: Line) -> Iterable[float]:
    for part in (line.last, line.low, line.high):
        yield from (value for value in part or () if value is not None and math.isfinite(value))


def _label(row: int, rows: int, scale: Scale) -> str:
    if row == 0:
        return short(scale.high)
    if row == rows - 1:
        return short(scale.low)
    return short(scale.value(0.5)) if rows >= 5 and row == rows // 2 else ""


def _below(scale: Scale, width: int, columns: int, palette: Palette) -> Text:
    first, last = short(scale.low), short(scale.high)
    room = max(1, columns - len(first) - len(last))
    text = " " * (GUTTER + 1) + (first + " " * room + last if scale.high > scale.low else first)
    return Text(text[:width], style=palette.faint, no_wrap=True)


def _nothing(lines: Sequence[Line], width: int, height: int, log: bool, palette: Palette) -> list[Text]:
    kinds = sorted({kind for line in lines for _, kind in line.odd})
    if kinds:
        says = f"no finite value so far, only {', '.join(kinds)}"
    elif log and any(line.x for line in lines):
        says = "no value above 0: nothing to show on a log scale"
    else:
        says = "no values yet"
    blank = [Text("", no_wrap=True) for _ in range(height)]
    blank[height // 2] = Text(says[:width].center(width), style=palette.faint, no_wrap=True)
    return blank
