"""What the page draws, without a server: braille, marks, names, times."""

import math

import pytest
from rich.text import Text

from whistlestop.cli import words
from whistlestop.cli.watching import braille, monitor
from whistlestop.cli.watching.braille import Line, draw, short
from whistlestop.cli.watching.known import Known, Progressed
from whistlestop.cli.watching.names import ordered
from whistlestop.cli.watching.style import DARK, LIGHT, looks_dark
from whistlestop.wire.api import ProgressView, RunView
from whistlestop.wire.charts import SeriesSummary


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def dots(lines: list[Text], colour: str) -> set[tuple[int, int]]:
    """Row and column of every letter of this colour that has dots."""
    found = set()
    for row, line in enumerate(lines):
        for span in line.spans:
            if str(span.style) == colour:
                found |= {(row, at) for at in range(span.start, span.end) if "\u2801" <= line.plain[at] <= "\u28ff"}
    return found


def test_a_chart_has_exactly_the_size_it_is_given() -> None:
    rising = Line(x=list(range(500)), last=[float(at) for at in range(500)])
    for width, height in ((18, 4), (60, 10), (200, 50)):
        made = draw([rising], width, height, log=False, palette=DARK)
        assert len(made) == height
        assert max(line.cell_len for line in made) <= width
    top, *_, bottom, steps = plain(draw([rising], 60, 10, log=False, palette=DARK))
    assert top.lstrip().startswith("499")
    assert top.rstrip() > top[:20]
    assert bottom.lstrip().startswith("0")
    assert steps.split() == ["0", "499"]


def test_a_spike_of_one_step_is_seen_in_the_band() -> None:
    line = Line(x=[10, 20, 30, 40], last=[1.0] * 4, low=[1.0] * 4, high=[1.0, 1.0, 9.0, 1.0])
    made = draw([line], 40, 9, log=False, palette=DARK)
    assert any(row == 0 for row, _ in dots(made, DARK.band))
    assert {row for row, _ in dots(made, DARK.accent)} == {7}


def test_values_that_are_not_finite_are_marked_and_leave_a_gap() -> None:
    line = Line(x=[0, 50, 100], last=[1.0, None, 2.0], odd=[(50, "nan")])
    made = draw([line], 40, 6, log=False, palette=LIGHT)
    assert made[0].plain.count("✗") == 1
    nothing = plain(
        draw([Line(x=[1, 2], last=[None, None], odd=[(1, "nan"), (2, "inf")])], 60, 6, log=False, palette=DARK)
    )
    assert any("only inf, nan" in text for text in nothing)
    assert any("no values yet" in text for text in plain(draw([], 40, 6, log=False, palette=DARK)))


def test_a_log_scale_leaves_out_what_is_not_positive() -> None:
    line = Line(x=[0, 1, 2, 3], last=[-1.0, 1e-4, 1e-2, 1.0])
    made = plain(draw([line], 40, 9, log=True, palette=DARK))
    assert made[0].split()[0] == "1"
    assert made[7].split()[0] == "1.0e-04"
    assert made[4].split()[0] == "0.01"
    flat = plain(draw([Line(x=[0, 1], last=[-1.0, 0.0])], 60, 9, log=True, palette=DARK))
    assert any("nothing to show on a log scale" in text for text in flat)


def test_what_a_later_attempt_has_replaced_is_dimmed() -> None:
    old = Line(x=[50, 60], last=[9.0, 9.0], superseded=True)
    new = Line(x=[0, 100], last=[0.0, 10.0])
    assert dots(draw([new, old], 60, 9, log=False, palette=DARK), DARK.line)


@pytest.mark.parametrize("values", [[5.0, 5.0], [0.0, 0.0], [1e308, -1e308], [1e-300, 2e-300], [math.pi]])
def test_no_range_of_values_is_too_odd_to_draw(values: list[float]) -> None:
    line = Line(x=list(range(len(values))), last=list(values))
    for log in (False, True):
        assert len(draw([line], 40, 8, log=log, palette=DARK)) == 8


def test_numbers_beside_a_chart_are_short() -> None:
    numbers = [0, 0.2134, 1.5e-5, 12.5, 1499, 12_500, 3_000_000, 2.5e9, -0.5, 1e20]
    assert [short(n) for n in numbers] == [
        "0", "0.213", "1.5e-05", "12.5", "1,499", "12.5k", "3M", "2.5G", "-0.5", "1.0e+20",
    ]  # fmt: skip
    assert all(len(short(value)) <= braille.GUTTER for value in (-1.234e-300, -999_999.0, -1.5e14))


def test_the_step_monitor_has_tall_marks_at_epochs_and_short_ones_at_evaluations() -> None:
    above, bar = monitor.step_bar(50, 100, 40, epochs=[25, 50, 75, 100], evaluations=[0, 10, 60], palette=DARK)
    assert [at for at, letter in enumerate(above.plain) if letter == "│"] == [10, 20, 30, 39]
    assert bar.plain[10] == "┿"
    assert bar.plain[30] == "┼"
    assert bar.plain[4] == "┷"
    assert bar.plain[24] == "┴"
    assert bar.plain.count("━") == 18
    assert len(bar.plain) == len(above.plain) == 40


def test_at_the_end_the_batch_monitor_shows_the_last_epoch_full_and_none_that_never_begins() -> None:
    assert words.epoch_and_batch(ProgressView(step=3000, total=3000, epoch=3, batch=0, batches=1000)) == (2, 1000)
    assert words.epoch_and_batch(ProgressView(step=2000, total=3000, epoch=2, batch=0, batches=1000)) == (2, 0)
    assert words.epoch_and_batch(ProgressView(step=2500, total=2500, epoch=2, batch=500, batches=1000)) == (2, 500)
    assert words.epoch_and_batch(ProgressView(step=2000, epoch=2, batch=0, batches=1000)) == (2, 0)


def test_marks_that_would_fill_the_bar_are_thinned() -> None:
    shown, every = monitor.thinned(list(range(10, 1001, 10)), 12)
    assert every == 10
    assert list(shown) == list(range(100, 1001, 100))
    above, bar = monitor.step_bar(1000, 1000, 60, epochs=range(1, 1001), evaluations=range(1, 1001), palette=DARK)
    assert above.plain.count("│") <= 20
    assert bar.plain.count("┷") <= 30
    assert monitor.thinned([], 5) == ([], 1)


def test_what_everybody_looks_at_comes_first() -> None:
    names = ["zeta", "system/cpu", "grad_norm", "lr", "val_loss", "train/loss", "accuracy", "rank/1/step_s"]
    kinds = {"system/cpu": "system", "rank/1/step_s": "rank"}
    given = [
        SeriesSummary(
            name=name, phase="train", kind=kinds.get(name, "program"), points=1, first_step=0, last_step=0,  # type: ignore[arg-type]
            low=0, high=0, last=0, last_at=0, nonfinite=0,
        )
        for name in names
    ]  # fmt: skip
    assert ordered(given, "train") == [
        "train/loss", "val_loss", "lr", "grad_norm", "accuracy", "zeta", "rank/1/step_s", "system/cpu",
    ]  # fmt: skip
    assert ordered(given, "other") == []


def test_times_go_on_by_themselves_and_stand_still_while_the_server_is_lost() -> None:
    now = [100.0]
    run = RunView(
        id="r", number=1, name="x", project="p", status="running", created_at="2026-01-01T00:00:00Z", elapsed_s=10,
        eta_s=60, phases=[{"name": "train", "kind": "train", "status": "running", "needs": []}],
    )  # type: ignore[list-item]  # fmt: skip
    known = Known(run, clock=lambda: now[0])
    now[0] += 5
    assert (known.elapsed(), known.time_left()) == (15, 55)
    known.take_progress(Progressed("train", ProgressView(step=5, total=10), 50.0))
    assert (known.elapsed(), known.time_left()) == (15, 50)
    known.take_connection(False)
    now[0] += 30
    known.take_connection(False)
    assert (known.elapsed(), known.lost_for) == (15, 30)
    known.take_connection(True)
    assert known.lost_for is None
    assert known.elapsed() == 45


def test_a_light_terminal_is_believed() -> None:
    assert looks_dark({})
    assert looks_dark({"COLORFGBG": "15;0"})
    assert not looks_dark({"COLORFGBG": "0;default;15"})
