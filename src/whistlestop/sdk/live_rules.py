"""Stop rules at work: what each has seen so far, and whether it fires now. The values they are made from are frozen."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from whistlestop.domain.errors import BadRequest
from whistlestop.domain.reasons import StopReason
from whistlestop.domain.stop_rules import (
    Above,
    AllOf,
    AnyOf,
    Below,
    MaxSteps,
    MaxTime,
    NonFinite,
    Plateau,
    PrivacyBudget,
    Rule,
)
from whistlestop.sdk.moment import NEVER, Fired, Moment
from whistlestop.sdk.privacy import epsilon_by_accountant, limit_steps

Warn = Callable[[str], None]


@dataclass(frozen=True)
class When(Rule):
    """The program's own rule."""

    ask: Callable[[Moment], Any]
    text: str | None = None


@dataclass(frozen=True)
class PrivacyBound(Rule):
    """A privacy budget with the program's own accounting."""

    epsilon: float
    spent: Callable[[int], float]
    private = True


def live(rule: Rule, warn: Warn) -> "Live":
    for kind, made in _LIVE.items():
        if isinstance(rule, kind):
            return made(rule, warn)
    raise BadRequest(f"{rule!r} is not a stop rule")


class Live:
    """One rule at work."""

    watches: frozenset[str] | None = frozenset()  # None: all names
    fresh: Mapping[str, Any] | None = None  # the state of a rule that has seen nothing; None: it has no state

    def __init__(self, rule: Any, warn: Warn) -> None:
        self.rule = rule
        self.warn = warn
        self.parts: tuple[Live, ...] = ()

    @property
    def identity(self) -> str:
        """What its state depends on, in words. Two rules with the same one could swap their states."""
        raise NotImplementedError

    def look(self, moment: Moment) -> Fired | None:
        raise NotImplementedError

    def again(self, moment: Moment) -> Fired | None:
        """It had fired when the checkpoint was made; whether it still does, as it is now."""
        return None

    def next_step(self, step: int) -> float:
        return NEVER

    def next_seconds(self) -> float:
        return NEVER

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over a state; TypeError, ValueError or KeyError if it is none."""


class LivePlateau(Live):
    rule: Plateau

    def __init__(self, rule: Plateau, warn: Warn) -> None:
        super().__init__(rule, warn)
        self.watches = frozenset({rule.metric})
        self.best: float | None = None
        self.best_step = 0
        self.waited = 0  # evaluations since the best one
        self.fresh = self.state()

    @property
    def identity(self) -> str:
        # Without the patience: who changes it keeps the best value and the count.
        return f"plateau({self.rule.metric}, min_delta={self.rule.min_delta!r}, mode={self.rule.mode})"

    def look(self, moment: Moment) -> Fired | None:
        value = moment.values.get(self.rule.metric)
        if value is None:
            return None
        if self._improves(value):
            self.best, self.best_step, self.waited = float(value), int(moment.step), 0
            return None
        self.waited += 1
        return self.again(moment)

    def again(self, moment: Moment) -> Fired | None:
        return Fired(StopReason.EARLY, self._text()) if self.waited >= self.rule.patience else None

    def _improves(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        by = self.best - value if self.rule.mode == "min" else value - self.best
        return by > self.rule.min_delta  # inf - inf is NaN: no improvement

    def _text(self) -> str:
        by = f" by more than {self.rule.min_delta:g}" if self.rule.min_delta else ""
        best = "it never was a number" if self.best is None else f"its best was {self.best:g} at step {self.best_step}"
        return f"{self.rule.metric} has not improved{by} for {_evaluations(self.waited)}; {best}"

    def state(self) -> dict[str, Any]:
        # As text where JSON has no word for it.
        best = self.best if self.best is None or math.isfinite(self.best) else str(self.best)
        return {"best": best, "best_step": self.best_step, "waited": self.waited}

    def load(self, state: Mapping[str, Any]) -> None:
        best = None if state["best"] is None else float(state["best"])
        best_step, waited = int(state["best_step"]), int(state["waited"])
        if (best is not None and math.isnan(best)) or waited < 0:
            raise ValueError
        self.best, self.best_step, self.waited = best, best_step, waited


class LiveThreshold(Live):
    rule: Above | Below

    def __init__(self, rule: Above | Below, warn: Warn) -> None:
        super().__init__(rule, warn)
        self.watches = frozenset({rule.metric})

    @property
    def identity(self) -> str:
        return f"{self.rule.metric} {self._sign} {self.rule.value!r}"

    @property
    def _sign(self) -> str:
        return (">" if isinstance(self.rule, Above) else "<") + ("=" if self.rule.equal else "")

    def look(self, moment: Moment) -> Fired | None:
        value = moment.values.get(self.rule.metric)
        if value is None:
            return None
        beyond = value > self.rule.value if isinstance(self.rule, Above) else value < self.rule.value
        if not beyond and not (self.rule.equal and value == self.rule.value):  # a NaN is neither
            return None
        where = "at" if value == self.rule.value else "above" if isinstance(self.rule, Above) else "below"
        return Fired(
            StopReason.THRESHOLD,
            f"{self.rule.metric} is {value:g} at step {moment.step}, {where} its threshold {self.rule.value:g}",
        )

    def again(self, moment: Moment) -> Fired | None:
        return self.look(moment._replace(values=moment.latest))


class LiveMaxTime(Live):
    rule: MaxTime

    @property
    def identity(self) -> str:
        return f"max_time({self.rule.seconds!r} s)"

    def look(self, moment: Moment) -> Fired | None:
        if moment.seconds < self.rule.seconds:
            return None
        text = f"trained for {lasting(moment.seconds)}; the limit is {lasting(self.rule.seconds)}"
        return Fired(StopReason.TIME_LIMIT, text)

    def next_seconds(self) -> float:
        return self.rule.seconds


class LiveMaxSteps(Live):
    rule: MaxSteps

    @property
    def identity(self) -> str:
        return f"max_steps({self.rule.steps})"

    def look(self, moment: Moment) -> Fired | None:
        if moment.step < self.rule.steps:
            return None
        return Fired(StopReason.THRESHOLD, f"{moment.step} steps are done; the limit is {self.rule.steps}", exact=True)

    def next_step(self, step: int) -> float:
        return self.rule.steps


class LiveNonFinite(Live):
    rule: NonFinite
    poisoned = False

    def __init__(self, rule: NonFinite, warn: Warn) -> None:
        super().__init__(rule, warn)
        self.watches = frozenset(rule.metrics) if rule.metrics else None

    @property
    def identity(self) -> str:
        return f"non_finite({', '.join(self.rule.metrics)})"

    def look(self, moment: Moment) -> Fired | None:
        names: Iterable[str] = self.rule.metrics or moment.values
        odd = [
            f"{name} is {moment.values[name]}"
            for name in names
            if name in moment.values and not math.isfinite(moment.values[name])
        ]
        if not odd:
            return None
        self.poisoned = True
        return Fired(StopReason.NON_FINITE, f"{', '.join(odd)} at step {moment.step}")


class LiveWhen(Live):
    rule: When
    watches = None
    broken = False

    @property
    def identity(self) -> str:
        return f"when({self.rule.text or self._name})"

    @property
    def _name(self) -> str:
        return getattr(self.rule.ask, "__qualname__", type(self.rule.ask).__name__)

    def look(self, moment: Moment) -> Fired | None:
        if self.broken:
            return None
        try:
            answer = self.rule.ask(moment)
            if not answer:
                return None
        except Exception as error:
            self.broken = True
            self.warn(f"the stop rule {self._name} raised {error!r} at step {moment.step}; it is ignored from now on")
            return None
        text = answer if isinstance(answer, str) else self.rule.text
        return Fired(StopReason.CUSTOM, text or f"the program's rule {self._name} fired at step {moment.step}")

    def next_step(self, step: int) -> float:
        return NEVER if self.broken else step + 1


class LivePrivacy(Live):
    """Fires before the step that would exceed the budget."""

    rule: PrivacyBound | PrivacyBudget
    _limit: int | None = None
    _last: tuple[int, int] | None = None  # step and spent steps at the last look
    problem: BadRequest | None = None

    @property
    def identity(self) -> str:
        return f"privacy_budget({self.rule.epsilon!r})"

    @property
    def limit_steps(self) -> int:
        """The largest number of steps within the budget; 0 if nobody can tell: `problem` says why."""
        if self._limit is None:
            try:
                rule = self.rule
                spent = rule.spent if isinstance(rule, PrivacyBound) else epsilon_by_accountant(rule)
                self._limit = limit_steps(spent, rule.epsilon)
            except BadRequest as error:
                self._refuse(error)
        return self._limit or 0

    def _refuse(self, error: BadRequest) -> None:
        self._limit, self.problem = 0, error
        self.warn(f"{error.text}. No step is run, since nobody could tell whether it exceeds the budget")

    def look(self, moment: Moment) -> Fired | None:
        spent = moment.spent or moment.step
        self._last = moment.step, spent
        if spent + 1 <= self.limit_steps:
            return None
        if self.problem is not None:
            return Fired(StopReason.PRIVACY_BUDGET, self.problem.text, exact=True)
        discarded = f", {spent - moment.step} of them discarded" if spent > moment.step else ""
        return Fired(
            StopReason.PRIVACY_BUDGET,
            f"the privacy budget of epsilon {self.rule.epsilon:g} allows {self.limit_steps} steps; "
            f"{spent} were run{discarded}, and one more would exceed it",
            exact=True,
        )

    def next_step(self, step: int) -> float:
        if self._last is None:
            return step  # how much was spent is not known yet: look at once
        return self._last[0] + self.limit_steps - self._last[1]


class UnreadablePrivacy(LivePrivacy):
    """A budget in the spec that can't be read. To leave it out would be to train without one."""

    def __init__(self, error: BadRequest, warn: Warn) -> None:
        super().__init__(None, warn)
        self._refuse(error)

    @property
    def identity(self) -> str:
        return "privacy_budget(?)"


class LiveAny(Live):
    rule: AnyOf

    def __init__(self, rule: AnyOf | AllOf, warn: Warn) -> None:
        super().__init__(rule, warn)
        self.parts = tuple(live(part, warn) for part in rule.rules)
        names = [part.watches for part in self.parts]
        self.watches = None if None in names else frozenset().union(*(each for each in names if each))
        if any(part.fresh is not None for part in self.parts):
            self.fresh = self.state()

    @property
    def identity(self) -> str:
        return f"any({', '.join(part.identity for part in self.parts)})"

    def look(self, moment: Moment) -> Fired | None:
        fired = [found for part in self.parts if (found := part.look(moment))]
        return Fired(fired[0].reason, "; ".join(found.text for found in fired)) if fired else None

    def again(self, moment: Moment) -> Fired | None:
        return next((found for part in self.parts if (found := part.again(moment))), None)

    def next_step(self, step: int) -> float:
        return min(part.next_step(step) for part in self.parts)

    def next_seconds(self) -> float:
        return min(part.next_seconds() for part in self.parts)

    def state(self) -> dict[str, Any]:
        return {"parts": [part.state() for part in self.parts]}

    def load(self, state: Mapping[str, Any]) -> None:
        for part, own in zip(self.parts, state["parts"], strict=True):
            part.load(own)


class LiveAll(LiveAny):
    """Each part's firing is kept, with its words, until the others have fired too."""

    def __init__(self, rule: AllOf, warn: Warn) -> None:
        self.fired: list[Fired | None] = [None] * len(rule.rules)
        super().__init__(rule, warn)
        self.fresh = self.state()

    @property
    def identity(self) -> str:
        return f"all({', '.join(part.identity for part in self.parts)})"

    def look(self, moment: Moment) -> Fired | None:
        news = [part.look(moment) for part in self.parts]
        self.fired = [before or found for found, before in zip(news, self.fired, strict=True)]
        done = [found for found in self.fired if found is not None]
        # Only on something new: a run that is continued behind its stop has to be able to go on.
        if len(done) < len(self.fired) or not any(news):
            return None
        return Fired(done[0].reason, " and ".join(found.text for found in done))

    def again(self, moment: Moment) -> Fired | None:
        done = [found for found in self.fired if found is not None]
        if len(done) < len(self.fired):
            return None
        return Fired(done[0].reason, " and ".join(found.text for found in done))

    def next_step(self, step: int) -> float:
        return min((part.next_step(step) for part in self._open()), default=NEVER)

    def next_seconds(self) -> float:
        return min((part.next_seconds() for part in self._open()), default=NEVER)

    def _open(self) -> list[Live]:
        """Those that have to be asked without a value: the ones that have fired need not be."""
        return [part for part, found in zip(self.parts, self.fired, strict=True) if found is None]

    def state(self) -> dict[str, Any]:
        return {**super().state(), "fired": [found and [found.reason.value, found.text] for found in self.fired]}

    def load(self, state: Mapping[str, Any]) -> None:
        fired = [found and Fired(StopReason(found[0]), str(found[1])) for found in state["fired"]]
        if len(fired) != len(self.parts):
            raise ValueError
        super().load(state)
        self.fired = fired


_LIVE: Mapping[type[Rule], Callable[[Any, Warn], Live]] = {
    Plateau: LivePlateau,
    Above: LiveThreshold,
    Below: LiveThreshold,
    MaxTime: LiveMaxTime,
    MaxSteps: LiveMaxSteps,
    NonFinite: LiveNonFinite,
    When: LiveWhen,
    PrivacyBound: LivePrivacy,
    PrivacyBudget: LivePrivacy,
    AllOf: LiveAll,
    AnyOf: LiveAny,
}


def lasting(seconds: float) -> str:
    """ "1 h 30 min", "90 min", "2.5 s"."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def _evaluations(count: int) -> str:
    return "1 evaluation" if count == 1 else f"{count} evaluations"
