"""Advice as it is printed: the verdict, why, the evidence, the choices with their prices, and the curve drawn on."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from rich.console import RenderableType
from rich.text import Text

from whistlestop.cli import words
from whistlestop.cli.failures import printable
from whistlestop.cli.output import console, table
from whistlestop.cli.watching.braille import GUTTER, Line, draw
from whistlestop.cli.watching.style import DARK, LIGHT, looks_dark
from whistlestop.wire.advice import AdviceView, AheadView, BandView, ChoiceView, FoundView, GainView

VERDICTS = {
    "kill": ("✗ Kill it", "red"),
    "stop": ("■ Stop it now, and keep what there is", "yellow"),
    "wait": ("… Wait", "green"),
    "fix_and_continue": ("↻ Fix, and continue from its checkpoint", "yellow"),
    "rerun": ("↻ Fix, and run it again", "yellow"),
    "nothing": ("✓ Nothing to do", "green"),
}
CHOICES = {"wait": "wait", "stop": "stop now", "kill": "kill", "continue": "fix and continue"}
STEEP = 15  # times the lowest value: then what is to come is seen on a log scale only
LINES = 14  # of evidence below one finding
WIDEST, TALL = 100, 10  # letters of the chart


def advice_view(advice: AdviceView) -> Iterator[RenderableType]:
    verdict, colour = VERDICTS[advice.verdict]
    name = printable(f"#{advice.number} {advice.name}{f', {advice.phase}' if advice.phase else ''}")
    yield Text.assemble((verdict, f"bold {colour}"), f"  {name}", ("" if advice.sure else "  (not sure)", "dim"))
    yield Text(printable(advice.reason))
    if advice.do:
        yield Text(printable(advice.do))
    for finding in advice.findings:
        yield Text()
        yield from _finding(finding, advice.do)
    if advice.choices:
        yield Text()
        yield _choices(advice.choices)
    if advice.gain is not None:
        yield Text()
        yield from _gain(advice.gain)


def _finding(finding: FoundView, said: str) -> Iterator[Text]:
    colour = {"fatal": "red", "bad": "yellow"}.get(finding.weight, "dim")
    sure = f"  {finding.cause}, {finding.confidence:.0%} sure"
    yield Text.assemble(("● ", colour), (printable(finding.headline), "bold"), (sure, "dim"))
    yield Text(f"  {printable(finding.says)}")
    lines = [line for said in finding.evidence for line in said.splitlines()]
    yield from (Text(f"  │ {printable(line)}", style="dim") for line in lines[:LINES])
    if len(lines) > LINES:
        yield Text(f"  │ and {len(lines) - LINES} lines more: --json has them all", style="dim")
    if not said.startswith(finding.do):
        yield Text(f"  → {printable(finding.do)}")


def _choices(choices: Sequence[ChoiceView]) -> RenderableType:
    made = table("choice", "time", "credits", "saves", "loses", "where", right=("saves",))
    made.columns[-1].header = "you get"
    for each in choices:
        lost = f"{each.lost_steps:,} steps" if each.lost_steps else "nothing"
        made.add_row(
            CHOICES[each.verb],
            "now" if each.seconds is not None and not each.seconds.high else _band(each.seconds, words.length),
            _band(each.credits, words.amount),
            words.amount(each.saves) if each.saves is not None else "–",
            lost,
            printable(each.gets),
        )
    return made


def _band(band: BandView | None, say: Callable[[float | None], str]) -> str:
    if band is None:
        return "unknown"
    low, likely, high = (say(value) for value in (band.low, band.likely, band.high))
    return likely if low == high else f"{likely} ({low} to {high})"


def _gain(gain: GainView) -> Iterator[RenderableType]:
    number = words.number
    better = f"{number(gain.better.likely)} better ({number(gain.better.low)} to {number(gain.better.high)})"
    brings = f"{better}, more than its noise" if gain.distinct else "not to be told from its noise"
    end = f"{number(gain.end.likely)} ({number(gain.end.low)} to {number(gain.end.high)}) at the end"
    yield Text.assemble((printable(gain.metric), "bold"), f"  {number(gain.now)} now, {end}: {brings}")
    width = min(WIDEST, console().width)
    if width < GUTTER + 20:
        return
    past = Line([step for step, _ in gain.curve], [value for _, value in gain.curve])
    ahead = list(_dense(gain.ahead, 2 * width // max(1, len(gain.ahead)) + 1))
    coming = Line(
        [each.step for each in ahead],
        [each.likely for each in ahead],
        [each.low for each in ahead],
        [each.high for each in ahead],
    )
    seen = [value for _, value in gain.curve] + [each.low for each in gain.ahead]
    steep = min(seen) > 0 and max(seen) > STEEP * min(seen)
    yield from draw([past, coming], width, TALL, log=steep, palette=DARK if looks_dark() else LIGHT)


def _dense(ahead: Sequence[AheadView], count: int) -> Iterator[AheadView]:
    """A band in every column, not only where it was computed."""
    for one, other in pairwise(ahead):
        for part in range(count):
            share = part / count
            yield AheadView.model_construct(
                step=one.step + (other.step - one.step) * share,
                low=one.low + (other.low - one.low) * share,
                likely=one.likely + (other.likely - one.likely) * share,
                high=one.high + (other.high - one.high) * share,
            )
    yield from ahead[-1:]
