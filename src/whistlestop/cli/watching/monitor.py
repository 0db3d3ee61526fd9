"""The step monitor and the batch monitor, drawn. Pure: a phase's numbers in, text out.

    │    ╷    │       a tall mark at every epoch end, a short one at every evaluation
━━━━┿━━━━┷━━━━┿────   steps done, steps to come
"""

from collections.abc import Collection, Sequence

from rich.text import Text

from whistlestop.cli.watching.braille import joined
from whistlestop.cli.watching.style import Palette

DONE, AHEAD = "━", "─"
EPOCH = {True: "┿", False: "┼"}  # the foot of a tall mark, in the done part and ahead
EVALUATION = {True: "┷", False: "┴"}


def step_bar(
    step: int, total: int, width: int, *, epochs: Sequence[int], evaluations: Sequence[int], palette: Palette
) -> tuple[Text, Text]:
    """The row above, with the tops of the tall marks, and the bar itself."""
    full = _done(step, total, width)
    shown, _ = thinned(epochs, width // 3)
    tall = _cells(shown, total, width)
    short = _cells(evaluations, total, width) - tall
    if len(short) > width // 2:  # a bar of nothing but marks would say less
        few, _ = thinned(evaluations, width // 4)
        short = _cells(few, total, width) - tall
    above, bar = [], []
    for cell in range(width):
        done = cell < full
        above.append(("│" if cell in tall else " ", palette.faint if done else palette.line))
        letter = EPOCH[done] if cell in tall else EVALUATION[done] if cell in short else DONE if done else AHEAD
        bar.append((letter, palette.accent if done else palette.line))
    return joined(above), joined(bar)


def batch_bar(batch: int, batches: int, width: int, *, palette: Palette) -> Text:
    full = _done(batch, batches, width)
    return Text.assemble((DONE * full, palette.info), (AHEAD * (width - full), palette.line), no_wrap=True)


def thinned(marks: Sequence[int], most: int) -> tuple[Sequence[int], int]:
    """At most so many of them, evenly: every one, every 2nd, 5th, 10th …; and which of these."""
    every = 1
    while len(marks) // every > max(1, most):
        every = every * 5 // 2 if str(every)[0] == "2" else every * 2
    return marks[every - 1 :: every], every


def _done(step: int, total: int, width: int) -> int:
    return min(width, max(0, step) * width // max(1, total))  # never full before the end


def _cells(marks: Collection[int], total: int, width: int) -> set[int]:
    return {min(width - 1, mark * width // max(1, total)) for mark in marks if 0 < mark <= total}
