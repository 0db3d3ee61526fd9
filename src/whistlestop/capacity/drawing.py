"""Time lines of a simulated job: for the terminal, and as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from whistlestop.capacity.simulation import FIRM, TICK, Piece
from whistlestop.capacity.traces import Trace

_WAITS, _STARTS, _SPOT, _FIRM = "·", "░", "█", "▓"
LEGEND: Final = f"{_SPOT} spot  {_FIRM} on-demand  {_STARTS} starting  {_WAITS} waiting"
_COLOURS: Final = {_SPOT: "#2b6cb0", _FIRM: "#d97706", _STARTS: "#7f8a96", _WAITS: "#d9dde2"}
_NAMES: Final = {_SPOT: "spot", _FIRM: "on-demand", _STARTS: "starting", _WAITS: "waiting"}
_ROW, _LEFT, _WIDTH, _TOP = 34, 170, 900, 44


def there(trace: Trace, start: float, time: float) -> list[Piece]:
    """When a pool could be had, drawn as if somebody had been on it."""
    found: list[Piece] = []
    for tick in range(int(time / TICK)):
        if trace.at(start + tick * TICK):
            since = found.pop().since if found and found[-1].until == tick * TICK else tick * TICK
            found.append(Piece(trace.name, True, since, (tick + 1) * TICK))
    return found


def line(pieces: Sequence[Piece], time: float, width: int) -> str:
    """What it was on for most of each column; blank when it was on nothing: it is done, or there was nothing."""
    drawn = []
    for column in range(width):
        since, until = column * time / width, (column + 1) * time / width
        shares: dict[str, float] = {}
        for piece in pieces:
            both = min(until, piece.until) - max(since, piece.since)
            if both > 0:
                shares[_kind(piece)] = shares.get(_kind(piece), 0.0) + both
        there = sum(shares.values()) >= (until - since) / 2
        drawn.append(max(shares, key=lambda kind: shares[kind]) if there else " ")
    return "".join(drawn)


@dataclass(frozen=True)
class Lane:
    name: str
    words: str  # below the name
    pieces: Sequence[Piece]
    faint: bool = False  # what there was, not what was used


def picture(lanes: Sequence[Lane], time: float, *, title: str) -> str:
    """An SVG: name, words below it, and the time line of each. Readable on light and dark ground."""
    height = _TOP + _ROW * len(lanes) + 52
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {height}" '
        'font-family="system-ui, sans-serif" font-size="13" fill="#5b6570">',
        f'<text x="12" y="24" font-size="15" font-weight="600">{escape(title)}</text>',
    ]
    for index, lane in enumerate(lanes):
        top = _TOP + index * _ROW
        parts.append(f'<text x="12" y="{top + 12}" font-weight="600">{escape(lane.name)}</text>')
        parts.append(f'<text x="12" y="{top + 26}" font-size="11">{escape(lane.words)}</text>')
        parts.append(f'<g opacity="{0.4 if lane.faint else 1}">')
        for piece in lane.pieces:
            left, wide = _LEFT + piece.since / time * _WIDTH, (piece.until - piece.since) / time * _WIDTH
            kind = _kind(piece)
            where = f"{escape(piece.on or 'waiting')}, {piece.since / 3600:.1f} h to {piece.until / 3600:.1f} h"
            parts.append(
                f'<rect x="{left:.1f}" y="{top}" width="{max(wide, 0.3):.1f}" height="22" fill="{_COLOURS[kind]}">'
                f"<title>{where}</title></rect>"
            )
        parts.append("</g>")
    bottom = _TOP + _ROW * len(lanes)
    for hours in _marks(time / 3600):
        x = _LEFT + hours * 3600 / time * _WIDTH
        parts.append(f'<text x="{x:.1f}" y="{bottom + 12}" font-size="11" text-anchor="middle">{hours:g} h</text>')
    parts.append(
        f'<line x1="{_LEFT + _WIDTH}" y1="{_TOP - 6}" x2="{_LEFT + _WIDTH}" y2="{bottom}" stroke="#c0392b"/>'
        f'<text x="{_LEFT + _WIDTH}" y="{_TOP - 12}" text-anchor="end" font-size="11">deadline</text>'
    )
    for index, (kind, name) in enumerate(_NAMES.items()):
        x = _LEFT + index * 120
        parts.append(f'<rect x="{x}" y="{bottom + 24}" width="12" height="12" fill="{_COLOURS[kind]}"/>')
        parts.append(f'<text x="{x + 18}" y="{bottom + 34}" font-size="11">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _kind(piece: Piece) -> str:
    if piece.on is None:
        return _WAITS
    if not piece.working:
        return _STARTS
    return _FIRM if piece.on == FIRM else _SPOT


def _marks(hours: float) -> list[float]:
    step = next(each for each in (0.25, 0.5, 1, 2, 4, 6, 12, 24, 48, 96, 168, 1e9) if hours / each <= 10)
    return [step * index for index in range(int(hours / step) + 1)]
