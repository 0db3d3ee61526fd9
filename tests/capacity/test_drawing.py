"""Time lines for the terminal and as a picture."""

from xml.etree import ElementTree

from whistlestop.capacity.drawing import Lane, line, picture, there
from whistlestop.capacity.simulation import FIRM, Piece
from whistlestop.capacity.traces import Trace

PIECES = [
    Piece("spot", False, 0, 60),
    Piece("spot", True, 60, 180),
    Piece(None, False, 180, 240),
    Piece(FIRM, True, 240, 300),
]


def test_a_line_says_what_it_was_on() -> None:
    assert line(PIECES, 360, 6) == "░██·▓ "


def test_a_column_is_what_most_of_it_was() -> None:
    assert line(PIECES, 360, 2)[0] == "█"
    assert line([], 360, 3) == "   "


def test_what_there_was_is_drawn_alike() -> None:
    pieces = there(Trace("a", 60.0, [True, True, False, True]), 0.0, 240.0)
    assert [(piece.since, piece.until) for piece in pieces] == [(0, 120), (180, 240)]


def test_a_picture_is_well_formed_whatever_the_names_are() -> None:
    drawn = picture([Lane("<b>&", "a < b", PIECES), Lane("pool", "as it was", PIECES, True)], 360, title="1 < 2")
    root = ElementTree.fromstring(drawn)
    names = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"<b>&", "a < b", "1 < 2", "deadline", "spot", "on-demand"} <= set(names)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}title"))) == 8
