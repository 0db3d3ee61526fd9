"""What is still to come: how long until the end and at what cost, and where the main metric will be by then."""

from dataclasses import dataclass

from whistlestop.diagnosis import extrapolation, names
from whistlestop.diagnosis.evidence import Evidence, Series
from whistlestop.diagnosis.extrapolation import Ahead
from whistlestop.domain.estimates import Left, Pace, seconds_left

LEAST = 12  # points of a metric before it is extrapolated
SEEN = 0.1  # of the way, before anything is said about its end


@dataclass(frozen=True)
class Gain:
    """The main metric at the end, and by how much that is better than now. In eight of ten runs within the band."""

    metric: str
    aim: str  # min or max
    now: float  # smoothed
    end: Ahead
    noise: float  # what the smoothed curve jumps by
    curve: tuple[tuple[float, float], ...]  # step and value so far, smoothed: to be drawn
    ahead: tuple[Ahead, ...]  # from now to the end

    @property
    def better(self) -> tuple[float, float, float]:
        """Improvement until the end: at least, likely, at most. Below 0 it gets worse."""
        if self.aim == "max":
            return self.end.low - self.now, self.end.likely - self.now, self.end.high - self.now
        return self.now - self.end.high, self.now - self.end.likely, self.now - self.end.low

    @property
    def distinct(self) -> bool:
        """It can be told from noise."""
        least, likely, _ = self.better
        return least > 0 and likely > self.noise

    @property
    def none_left(self) -> bool:
        """Even in a good case what is to come is no more than noise."""
        return self.better[2] <= self.noise


@dataclass(frozen=True)
class Forecast:
    left: Left | None  # seconds; None: too early, or nobody knows how many steps there are
    cost: Left | None  # credits
    gain: Gain | None

    @property
    def known(self) -> bool:
        return self.left is not None


def forecast(evidence: Evidence) -> Forecast:
    left = time_left(evidence)
    cost = left.times(evidence.price) if left is not None else None
    return Forecast(left, cost, _gain(evidence))


def time_left(evidence: Evidence) -> Left | None:
    place = evidence.place
    return seconds_left(pace(evidence), place.total - place.step) if place.total else None


def pace(evidence: Evidence) -> Pace:
    """By its reports of progress; where nobody has kept them, by the times of its points."""
    place, known = evidence.place, Pace()
    for step, at in evidence.marks or _marks(evidence):
        known = known.told(step, at)
    return known.told(place.step, place.progress_at) if known.last and place.step > known.last[0] else known


def main_metric(evidence: Evidence) -> tuple[Series, str] | None:
    """The one that the spec names; else a validation's; else the loss. None where no metric has to get better: the
    losses of adversaries rise and fall as they like."""
    known = [each for each in evidence.series if each.kind == "program" and not each.rank and len(each.steps) >= LEAST]
    for name, aim in evidence.aims.items():
        for each in known:
            if each.name == name:
                return each, aim
    if names.is_game(evidence.series):
        return None
    validations = [each for each in known if names.read(each.name).validation and names.sign(each, {})]
    validations.sort(key=lambda each: (names.sign(each, {}) != 1, -len(each.steps), each.name))
    for each in [*validations, *names.losses(known, {})]:
        return each, "min" if names.sign(each, {}) == 1 else "max"
    return None


def _marks(evidence: Evidence) -> list[tuple[int, float]]:
    """Of the newest attempt's loop, by the metric that was logged most often."""
    place = evidence.place
    own = [each for each in evidence.series if each.kind == "program" and not each.rank]
    most = max(own, key=lambda each: len(each.steps), default=None)
    marks = sorted(zip(most.times, most.steps, strict=True)) if most is not None else []
    begin = [(place.resumed_step, place.loop_started_at)] if place.loop_started_at else []
    return [*begin, *((step, at) for at, step in marks if at >= place.loop_started_at)]


def _gain(evidence: Evidence) -> Gain | None:
    place, found = evidence.place, main_metric(evidence)
    if found is None or not place.total or place.step < SEEN * place.total:
        return None
    series, aim = found
    known = extrapolation.extrapolate(series.steps, series.values, place.total)
    if known is None:
        return None
    return Gain(series.name, aim, known.now, known.ahead[-1], known.noise, known.curve, known.ahead)
