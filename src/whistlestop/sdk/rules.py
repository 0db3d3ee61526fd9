"""Stop rules for people who write programs, and the whole list of a run: what the loop asks, saves and restores."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from whistlestop.domain.errors import BadRequest
from whistlestop.domain.stop_rules import AnyOf, NonFinite, Rule, all_of, any_of, judge_rules, read_rule
from whistlestop.sdk.live_rules import (
    Live,
    LiveMaxSteps,
    LiveNonFinite,
    LivePrivacy,
    PrivacyBound,
    UnreadablePrivacy,
    Warn,
    When,
    live,
)
from whistlestop.sdk.moment import NEVER, Fired, Moment

__all__ = [
    "Fired", "Moment", "Rule", "Rules", "above", "all_of", "any_of", "below", "max_steps", "max_time", "non_finite",
    "plateau", "privacy_budget", "when",
]  # fmt: skip


def plateau(metric: str, *, patience: int = 5, min_delta: float = 0.0, mode: str = "min") -> Rule:
    """Stop when `metric` has not improved by more than `min_delta` for `patience` evaluations (values logged)."""
    return read_rule({"plateau": {"metric": metric, "patience": patience, "min_delta": min_delta, "mode": mode}})


def above(metric: str, value: float) -> Rule:
    """Stop when `metric` is above `value`."""
    return read_rule({"above": {"metric": metric, "value": value}})


def below(metric: str, value: float) -> Rule:
    """Stop when `metric` is below `value`."""
    return read_rule({"below": {"metric": metric, "value": value}})


def max_time(length: str | float) -> Rule:
    """Stop after so much training, over all attempts: "2 hours", "90m", or seconds."""
    return read_rule({"max_time": length})


def max_steps(steps: int) -> Rule:
    """Stop when so many steps are done."""
    return read_rule({"max_steps": steps})


def non_finite(*metrics: str) -> Rule:
    """Stop when one of these metrics (without any: one of all) is NaN or infinite."""
    return read_rule({"non_finite": list(metrics)}) if metrics else NonFinite()


def privacy_budget(epsilon: float, *, spent: Callable[[int], float]) -> Rule:
    """Stop before the step that would exceed `epsilon`. `spent(steps)` is the epsilon of so many steps; it never
    falls. `whistlestop.integrations.opacus` has such functions."""
    if isinstance(epsilon, str | bool) or not math.isfinite(bound := float(epsilon)) or bound <= 0:
        raise BadRequest(f"privacy_budget({epsilon!r}): epsilon must be a number above zero")
    if not callable(spent):
        raise BadRequest(
            "privacy_budget(…, spent=…): `spent` must be a function from a number of steps to the epsilon they cost",
            hint="spent=whistlestop.integrations.opacus.epsilon_of(noise_multiplier, sample_rate, delta)",
        )
    return PrivacyBound(bound, spent)


def when(ask: Callable[[Moment], Any], text: str | None = None) -> Rule:
    """Stop when `ask(moment)` is true, or a text: the reason in words. It is asked before every step."""
    if not callable(ask):
        raise BadRequest(f"when({ask!r}): expected a function that takes a Moment")
    return When(ask, text)


class Rules:
    """All stop rules of a run: those of its code, then those of its spec."""

    def __init__(self, rules: Sequence[Live], *, warn: Warn) -> None:
        self._rules = tuple(rules)
        self._warn = warn
        everything = list(_walk(self._rules))
        self._private = [rule for rule in everything if isinstance(rule, LivePrivacy)]
        self._non_finite = [rule for rule in everything if isinstance(rule, LiveNonFinite)]
        names = [rule.watches for rule in self._rules]
        self.watches: frozenset[str] | None = (
            None if None in names else frozenset().union(*(each for each in names if each))
        )
        self.empty = not self._rules

    @classmethod
    def make(
        cls, code: Sequence[Rule | Callable[[Moment], Any] | str | Mapping[str, Any]], spec_json: str, *, warn: Warn
    ) -> "Rules":
        """BadRequest for a bad rule in the code. One in the spec is warned of and left out, unless it is about
        privacy: then no step is run."""
        given = [_from_code(rule) for rule in ([code] if isinstance(code, str | Mapping | Rule) else code)]
        return cls([*(part for rule in given for part in _lives(rule, warn)), *_from_spec(spec_json, warn)], warn=warn)

    def for_rank(self, rank: int) -> "Rules":
        """Rank 0 decides by its metrics. The others stop by themselves where all stop at the same step, and know when
        a value of theirs is not finite."""
        if rank == 0:
            return self
        everywhere = LiveMaxSteps | LivePrivacy | LiveNonFinite
        return Rules([rule for rule in self._rules if isinstance(rule, everywhere)], warn=self._warn)

    @property
    def privacy(self) -> LivePrivacy | None:
        """The privacy rule; with several the one that allows the fewest steps."""
        return min(self._private, key=lambda rule: rule.limit_steps, default=None)

    def check(self) -> None:
        """To be called when the loop begins: BadRequest if there is a privacy budget that can't be computed."""
        privacy = self.privacy
        if privacy is not None and privacy.problem is not None:
            raise privacy.problem

    @property
    def poisoned(self) -> bool:
        """A value was not finite: checkpoints from now on are not healthy."""
        return any(rule.poisoned for rule in self._non_finite)

    def next_step(self, step: int) -> float:
        """The step before which `look` is needed even if nothing was logged."""
        return min((rule.next_step(step) for rule in self._rules), default=NEVER)

    def next_seconds(self) -> float:
        """The training seconds from which on `look` is needed even if nothing was logged."""
        return min((rule.next_seconds() for rule in self._rules), default=NEVER)

    def look(self, moment: Moment) -> list[Fired]:
        """The rules that fire now, in the user's order: the first is decisive."""
        return [found for rule in self._rules if (found := rule.look(moment))]

    def again(self, moment: Moment) -> list[Fired]:
        """Those that had ended this training already, and still would."""
        return [found for rule in self._rules if (found := rule.again(moment))]

    def state(self) -> dict[str, Any]:
        """For the checkpoint; JSON."""
        states = {name: rule.state() for name, rule in self._named() if rule.fresh is not None}
        return {"rules": states}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint. What does not fit, since the rules have changed, is warned of. Whoever goes on from
        a checkpoint that is not healthy has chosen to: that is not handed on."""
        if not isinstance(state, Mapping) or not isinstance(states := state.get("rules", {}), Mapping):
            self._warn("the checkpoint's stop rules can't be read; all rules begin anew")
            return
        left = dict(states)
        for name, rule in self._named():
            if rule.fresh is None:
                continue
            own = left.pop(name, None)
            if own is None:
                self._warn(f"the checkpoint knows nothing of the stop rule {name}; it begins anew")
                continue
            try:
                rule.load(own)
            except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError):
                rule.load(rule.fresh)
                self._warn(f"what the checkpoint knows of the stop rule {name} can't be read; it begins anew")
        for name, own in left.items():
            self._warn(f"the checkpoint's stop rule {name} is no longer there; what it knew is dropped: {_brief(own)}")

    def _named(self) -> Iterator[tuple[str, Live]]:
        """With a name of its own for each: the same rule twice has the same identity."""
        seen: dict[str, int] = {}
        for rule in self._rules:
            identity = rule.identity
            seen[identity] = count = seen.get(identity, 0) + 1
            yield (identity if count == 1 else f"{identity} #{count}"), rule


def _walk(rules: Sequence[Live]) -> Iterator[Live]:
    for rule in rules:
        yield rule
        yield from _walk(rule.parts)


def _lives(rule: Rule, warn: Warn) -> Iterator[Live]:
    """`a | b` in the list is the same as a and b: so a privacy budget is never hidden in another rule."""
    for part in rule.rules if isinstance(rule, AnyOf) else (rule,):
        yield live(part, warn)


def _from_code(given: Any) -> Rule:
    if isinstance(given, Rule):
        return given
    if isinstance(given, str | Mapping):
        return read_rule(given)
    if callable(given):
        return when(given)
    raise BadRequest(
        f"stop_when has {given!r}, which is not a stop rule",
        hint='stop_when=[whistlestop.plateau("val_loss"), "loss < 0.1"]',
    )


def _from_spec(spec_json: str, warn: Warn) -> Iterator[Live]:
    try:
        given = json.loads(spec_json or "[]")
        if not isinstance(given, list):
            raise ValueError("not a list")
    except ValueError as error:
        yield from _left_out(BadRequest(f"the spec's stop_when can't be read: {error}"), spec_json, warn)
        return
    for item in given:
        rules, problems = judge_rules([item])
        if problems:
            words = "; ".join(f"{problem.text} ({problem.path})" for problem in problems)
            mistake = BadRequest(f"a rule in the spec's stop_when has a mistake: {words}", hint=problems[0].hint)
            yield from _left_out(mistake, json.dumps(item), warn)
        for rule in rules:
            yield from _lives(rule, warn)


def _left_out(error: BadRequest, text: str, warn: Warn) -> Iterator[Live]:
    if "privacy" in text.lower():
        yield UnreadablePrivacy(error, warn)
    else:
        warn(f"{error.text}. It is left out" + (f" ({error.hint})" if error.hint else ""))


def _brief(state: Any) -> str:
    return json.dumps(state, default=str)[:200]
