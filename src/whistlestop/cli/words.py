"""Times, amounts and statuses as people read them. Pure: no I/O, no tables."""

import math
import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whistlestop.wire.api import AtRiskView, ProgressView, RunView, StopReasonView

# A symbol as well as a colour: not everybody sees the colours, and a pipe carries none.
SYMBOLS = {
    "queued": ("○", "yellow"),
    "starting": ("◔", "cyan"),
    "running": ("●", "green"),
    "waiting": ("‖", "yellow"),
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "killed": ("■", "red"),
    "pending": ("·", "dim"),
    "skipped": ("–", "dim"),
    "started": ("●", "green"),
    "aborted": ("■", "yellow"),
    "preempted": ("↯", "yellow"),
    "lost": ("?", "red"),
}
ENDED = frozenset({"completed", "failed", "killed"})
_BARS = "▁▂▃▄▅▆▇█"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


def length(seconds: float | None) -> str:
    """42s, 3m12s, 1h05m, 2d03h"""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def hours(count: float) -> str:
    """42s, 3m12s, 3.4h, 1,234h"""
    if count < 1:
        return length(count * 3600)
    return f"{count:,.1f}h" if count < 100 else f"{count:,.0f}h"


def amount(credits: float | None) -> str:
    """1,234.50; a little is never nothing: <0.01"""
    if credits is None:
        return "–"
    return "<0.01" if 0 < credits < 0.005 else f"{credits:,.2f}"


def percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{math.floor(fraction * 100):3d}%"  # never 100 % before the end


def bar(fraction: float | None, width: int = 10) -> str:
    if fraction is None:
        return " " * width
    full = min(width, math.floor(max(0.0, fraction) * width))
    return "━" * full + "─" * (width - full)


def number(value: float | None) -> str:
    if value is None:
        return "nan"
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.4f}".rstrip("0").rstrip(".")
    return f"{value:.3e}"


def sparkline(values: Sequence[float | None], width: int = 24) -> str:
    """The course of a series in one line; each letter is the mean of its share. A gap is a value that is not finite."""
    if not values:
        return ""
    width = min(width, len(values))
    shares = [values[len(values) * at // width : len(values) * (at + 1) // width] for at in range(width)]
    means = [_mean([value for value in share if value is not None]) for share in shares]
    known = [mean for mean in means if mean is not None]
    if not known:
        return " " * width
    low, high = min(known), max(known)
    span = high - low
    if not span or not math.isfinite(span):
        return "".join(" " if mean is None else _BARS[0] for mean in means)
    return "".join(" " if mean is None else _BARS[min(7, int((mean - low) / span * 8))] for mean in means)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def local_time(at: str | None, *, date: bool = True) -> str:
    if not at:
        return "–"
    try:
        moment = datetime.fromisoformat(at).astimezone()
    except ValueError:
        return at
    return moment.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")


def short_time(at: str | None, beside: str) -> str:
    """14:03:59 of the same day, 03-01 14:03 of another"""
    if not at:
        return "–"
    moment, today = datetime.fromisoformat(at).astimezone(), datetime.fromisoformat(beside).astimezone()
    return moment.strftime("%H:%M:%S" if moment.date() == today.date() else "%m-%d %H:%M")


def with_times(text: str) -> str:
    """A sentence of the server: its moments by the reader's own calendar and clock, as all others beside it."""
    return _MOMENT.sub(lambda found: local_time(found.group()), text)


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def status(run: "RunView") -> str:
    """The status, and what is under way."""
    if run.requested:
        return f"{run.status}, {'killing' if run.requested == 'kill' else 'pausing'}"
    return "recovering" if run.recovering and run.status not in ENDED else run.status


def epoch_and_batch(progress: "ProgressView") -> tuple[int, int]:
    """Counting goes on behind the last batch, to an epoch that never begins: then it is the last one, and full."""
    done = progress.total is not None and progress.step >= progress.total and progress.batch == 0
    if done and progress.epoch and progress.batches:
        return progress.epoch - 1, progress.batches
    return progress.epoch, progress.batch


def steps(progress: "ProgressView") -> str:
    """120/1,000 steps, epoch 3"""
    if not progress.step and progress.total is None:
        return ""
    total = f"/{progress.total:,}" if progress.total is not None else ""
    return f"step {progress.step:,}{total}" + (f", epoch {progress.epoch}" if progress.epoch else "")


def at_risk(risk: "AtRiskView") -> str:
    """At risk now: 212 steps, 3m10s, 0.40 credits (since the checkpoint at step 500)"""
    since = f"since the checkpoint at step {risk.step:,}" if risk.step is not None else "there is no checkpoint yet"
    steps = f"{risk.steps:,} step{'s' if risk.steps != 1 else ''}"
    return f"At risk now: {steps}, {length(risk.seconds)}, {amount(risk.credits)} credits ({since})"


def risk_later(risk: "AtRiskView", step: int, seconds: float) -> "AtRiskView":
    """As it stands so many seconds after it was told, at that step."""
    more = {
        "steps": max(0, step - risk.from_step),
        "seconds": risk.seconds + seconds,
        "credits": risk.credits + seconds * risk.per_hour / 3600.0,
    }
    return risk.model_copy(update=more)


def stopped(reasons: Sequence["StopReasonView"]) -> list[str]:
    """Why a phase stopped, the decisive one first: its own words, behind the general one where they do not say it."""
    return [_stopped(reason) for reason in sorted(reasons, key=lambda reason: not reason.decisive)]


def _stopped(reason: "StopReasonView") -> str:
    from whistlestop.domain.reasons import STOP_SAYS, StopReason

    says = next((says for each, says in STOP_SAYS.items() if each.value == reason.reason), reason.reason)
    enough = (StopReason.CUSTOM, StopReason.COMPLETED, StopReason.UNKNOWN)
    if not reason.text:
        return says
    return reason.text if says in reason.text or reason.reason in enough else f"{says}: {reason.text}"


def name(run: "RunView") -> str:
    return f"#{run.number} ({run.name})"


def saved(run: "RunView") -> str:
    """What a kill leaves unspent, as far as it can be told."""
    if run.credits.saved is not None:
        return f"{amount(run.credits.saved)} saved"
    if run.credits.estimated is not None and run.status not in ENDED:
        return f"about {amount(max(0.0, run.credits.estimated - run.credits.used))} saved"
    return ""
