"""When a training stops by itself: the rules as frozen values, and how they are read from a spec. What they have seen
so far is not theirs: that is sdk/live_rules.py."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from whistlestop.domain.errors import BadRequest, Problem


class Rule:
    """`a & b` fires when both have fired, `a | b` when one of them does."""

    def __and__(self, other: "Rule") -> "Rule":
        return all_of(self, other) if isinstance(other, Rule) else NotImplemented

    def __or__(self, other: "Rule") -> "Rule":
        return any_of(self, other) if isinstance(other, Rule) else NotImplemented


@dataclass(frozen=True)
class Plateau(Rule):
    """No improvement by more than `min_delta` in `patience` evaluations."""

    metric: str
    patience: int = 5
    min_delta: float = 0.0
    mode: str = "min"


@dataclass(frozen=True)
class Above(Rule):
    metric: str
    value: float
    equal: bool = False  # "acc >= 0.9"


@dataclass(frozen=True)
class Below(Rule):
    metric: str
    value: float
    equal: bool = False


@dataclass(frozen=True)
class MaxTime(Rule):
    seconds: float  # of training, over all attempts


@dataclass(frozen=True)
class MaxSteps(Rule):
    steps: int


@dataclass(frozen=True)
class NonFinite(Rule):
    metrics: tuple[str, ...] = ()  # empty: all


@dataclass(frozen=True)
class PrivacyBudget(Rule):
    """Steps of the subsampled Gaussian mechanism (DP-SGD), counted by an accountant that the program has."""

    epsilon: float
    delta: float
    noise_multiplier: float
    sample_rate: float
    accountant: str = "rdp"


@dataclass(frozen=True)
class AllOf(Rule):
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class AnyOf(Rule):
    rules: tuple[Rule, ...]


RuleSpec: TypeAlias = Rule

NAMES = ("plateau", "above", "below", "max_time", "max_steps", "non_finite", "privacy_budget", "all", "any", "rule")
ACCOUNTANTS = ("rdp", "prv", "pld")
MOST_STEPS = 1 << 62
MAX_DEPTH = 16
TIMES = '"90s", "10 minutes", "2h", "1d12h" or a number of seconds'
TEXTS = 'write "loss < 0.1", "val_acc > 0.9" or "non_finite"'

_COMPARISON = re.compile(r"([^<>=]*[^<>=\s])\s*(<=|>=|<|>)\s*([^<>=\s]+)")
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]*)\s*(?:,|and)?\s*")
_SECONDS = {
    "w": 604800, "week": 604800, "d": 86400, "day": 86400, "h": 3600, "hr": 3600, "hour": 3600,
    "m": 60, "min": 60, "minute": 60, "s": 1, "sec": 1, "second": 1,
}  # fmt: skip


def read_rules(given: Sequence[Any]) -> tuple[RuleSpec, ...]:
    """The rules of a spec, in its order. BadRequest names every mistake."""
    rules, problems = judge_rules(given)
    _raise(problems)
    return rules


def read_rule(given: Any) -> RuleSpec:
    """One rule: a mapping with its name, or a text."""
    reader = _Reader()
    rule = reader.rule(given, "", 0)
    _raise(reader.problems)
    assert rule is not None
    return rule


def judge_rules(given: Sequence[Any]) -> tuple[tuple[RuleSpec, ...], list[Problem]]:
    """The rules that make sense, and what is wrong with the others; paths begin with the rule's index."""
    reader = _Reader()
    read = [reader.rule(item, str(index), 0) for index, item in enumerate(given)]
    return tuple(rule for rule in read if rule is not None), reader.problems


def all_of(*rules: Rule) -> Rule:
    """Fires when all of them have fired, not necessarily at the same step."""
    return AllOf(_joined("all_of", AllOf, rules))


def any_of(*rules: Rule) -> Rule:
    """Fires when one of them does."""
    return AnyOf(_joined("any_of", AnyOf, rules))


def read_seconds(value: Any) -> float:
    """ "2h", "2 hours", "1d12h" or a number of seconds. ValueError with words for a person."""
    if isinstance(value, str):
        seconds = _text_seconds(value.strip().lower())
    else:
        try:
            seconds = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            seconds = math.nan
    if not math.isfinite(seconds):
        raise ValueError(f"is not a length of time; write {TIMES}")
    if seconds <= 0:
        raise ValueError("must be longer than zero")
    return seconds


def _text_seconds(text: str) -> float:
    total, end = 0.0, 0
    while end < len(text) <= 60:
        part = _DURATION.match(text, end)
        unit = part[2] if part and len(part[2]) == 1 else (part[2].removesuffix("s") if part else "")
        if part is None or (unit not in _SECONDS and part[0] != text):
            return math.nan
        if unit and unit not in _SECONDS:
            return math.nan
        total += float(part[1]) * _SECONDS.get(unit, 1)
        end = part.end()
    return total if end else math.nan


def _joined(name: str, kind: type[AllOf] | type[AnyOf], rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    if not rules or any(not isinstance(rule, Rule) for rule in rules):
        raise BadRequest(f"{name}(…) takes rules", hint="put a function into whistlestop.when(…)")
    if kind is AllOf and any(spends_privacy(rule) for rule in rules):
        raise BadRequest(
            "a privacy budget can't wait for another rule: it would be overspent",
            hint="give it as a rule of its own, or join it with |",
        )
    # (a & b) & c is a & b & c: so its parts are told in one sentence.
    return tuple(part for rule in rules for part in (rule.rules if isinstance(rule, kind) else (rule,)))


def spends_privacy(rule: Rule) -> bool:
    if isinstance(rule, AllOf | AnyOf):
        return any(spends_privacy(part) for part in rule.rules)
    return isinstance(rule, PrivacyBudget) or getattr(rule, "private", False)


def _raise(problems: list[Problem]) -> None:
    if problems:
        first = problems[0]
        where = f"{first.path}: " if first.path else ""
        raise BadRequest(f"A stop rule has a mistake: {where}{first.text}.", hint=first.hint, problems=problems)


class _Reader:
    """Collects every mistake."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def wrong(self, path: str, text: str, hint: str | None = None) -> Rule | None:
        self.problems.append(Problem(path, text, None, hint))
        return None  # so that a reading can end with the mistake

    def rule(self, given: Any, path: str, depth: int) -> Rule | None:
        if depth > MAX_DEPTH:
            return self.wrong(path, f"rules are nested more than {MAX_DEPTH} deep")
        if isinstance(given, str):
            return self._text(given.strip(), path)
        if not isinstance(given, Mapping) or not given:
            return self.wrong(path, "must be a rule: a text, or a mapping with the name of one", TEXTS)
        unknown = [name for name in given if name not in NAMES]
        for name in unknown:
            self.wrong(
                _at(path, name), "is not a stop rule", _nearest(name, NAMES) or f"one of {', '.join(NAMES[:-1])}"
            )
        if unknown:
            return None
        if len(given) > 1:
            return self.wrong(path, f"is more than one rule: {', '.join(given)}", "make each an entry of its own")
        name, value = next(iter(given.items()))
        return self._named(name, value, _at(path, name), depth)

    def _named(self, name: str, value: Any, path: str, depth: int) -> Rule | None:
        if name == "rule":
            return self._text(value.strip() if isinstance(value, str) else "", path)
        if name in ("all", "any"):
            return self._joined(name, value, path, depth)
        if name == "non_finite":
            return self._non_finite(value, path)
        if name == "max_time":
            seconds = self._convert(read_seconds, value, path)
            return None if seconds is None else MaxTime(seconds)
        if name == "max_steps":
            steps = self._convert(_count, value, path)
            return None if steps is None else MaxSteps(steps)
        kind, converters, example = _KINDS[name]
        if name == "plateau" and isinstance(value, str):
            value = {"metric": value}
        if not isinstance(value, Mapping):
            return self.wrong(path, "must be a mapping", example)
        return self._made(kind, converters, value, path, example)

    def _made(
        self,
        kind: type[Rule],
        converters: Mapping[str, Callable[[Any], Any]],
        value: Mapping[str, Any],
        path: str,
        example: str,
    ) -> Rule | None:
        before = len(self.problems)
        for key in value:
            if key not in converters:
                self.wrong(_at(path, key), "unknown key", _nearest(key, converters) or example)
        for key in converters:
            if value.get(key) is None and not hasattr(kind, key):  # a field with a default is an attribute of its class
                self.wrong(path, f"`{key}` is missing", example)
        made = {
            key: self._convert(convert, value[key], _at(path, key))
            for key, convert in converters.items()
            if value.get(key) is not None
        }
        return kind(**made) if len(self.problems) == before else None

    def _joined(self, name: str, value: Any, path: str, depth: int) -> Rule | None:
        if not isinstance(value, list | tuple) or not value:
            return self.wrong(path, "must be a list of rules", f'{name}: ["loss < 0.1", {{max_steps: 1000}}]')
        rules = [self.rule(item, _at(path, index), depth + 1) for index, item in enumerate(value)]
        found = [rule for rule in rules if rule is not None]
        if len(found) < len(rules):
            return None
        try:
            return (all_of if name == "all" else any_of)(*found)
        except BadRequest as error:
            return self.wrong(path, error.text, error.hint)

    def _non_finite(self, value: Any, path: str) -> Rule | None:
        if value is None or value is True:
            return NonFinite()
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list | tuple):
            return self.wrong(path, "must be a list of metrics", "non_finite: [loss]")
        metrics = [self._convert(_metric, name, _at(path, index)) for index, name in enumerate(names)]
        return NonFinite(tuple(metrics)) if None not in metrics else None

    def _text(self, text: str, path: str) -> Rule | None:
        if text == "non_finite":
            return NonFinite()
        match = _COMPARISON.fullmatch(text)
        if match is None:
            name = text.split(":")[0].strip()
            if name in NAMES:
                return self.wrong(path, f"{name} needs more than its name", TEXTS)
            near = _nearest(name, NAMES[:-1]) if text[:1].isalpha() else None
            return self.wrong(path, f'"{_shown(text)}" is not a stop rule', near or TEXTS)
        metric, sign, number = match.groups()
        try:
            value = float(number)
        except ValueError:
            return self.wrong(path, f'"{_shown(number)}" is not a number', TEXTS)
        if not math.isfinite(value):
            return self.wrong(path, "must compare with a finite number", TEXTS)
        return (Above if sign[0] == ">" else Below)(metric, value, len(sign) == 2)

    def _convert(self, convert: Callable[[Any], Any], value: Any, path: str) -> Any:
        try:
            return convert(value)
        except ValueError as error:
            self.wrong(path, str(error))
            return None


def _at(path: str, key: object) -> str:
    return f"{path}.{_shown(key)}" if path else _shown(key)


def _shown(value: object, width: int = 40) -> str:
    words = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(str(value)[:1000].split()))
    return words if len(words) <= width else words[: width - 1] + "…"


def _nearest(word: object, words: Any) -> str | None:
    import difflib  # only after a mistake: the SDK is imported quickly

    close = difflib.get_close_matches(str(word)[:60].lower(), list(words), n=1, cutoff=0.6)
    return f'did you mean "{close[0]}"?' if close else None


def _metric(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > 200:
        raise ValueError(f'must be the name of a metric, not "{_shown(value)}"')
    return value.strip()


def _number(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, str | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f'must be a finite number, not "{_shown(value)}"')
    return number


def _within(low: float, high: float, words: str) -> Callable[[Any], float]:
    def convert(value: Any) -> float:
        number = _number(value)
        if not low < number <= high:
            raise ValueError(f'must be {words}, not "{_shown(value)}"')
        return number

    return convert


def _not_negative(value: Any) -> float:
    if (number := _number(value)) < 0:
        raise ValueError(f'must not be negative, and is "{_shown(value)}"')
    return number


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_STEPS:
        raise ValueError(f'must be a whole number from 1 on, not "{_shown(value)}"')
    return value


def _one_of(*words: str) -> Callable[[Any], str]:
    def convert(value: Any) -> str:
        if value not in words:
            raise ValueError(f'must be {" or ".join(words)}, not "{_shown(value)}"')
        return str(value)

    return convert


_THRESHOLD: Mapping[str, Callable[[Any], Any]] = {"metric": _metric, "value": _number}
_KINDS: Mapping[str, tuple[type[Rule], Mapping[str, Callable[[Any], Any]], str]] = {
    "plateau": (
        Plateau,
        {"metric": _metric, "patience": _count, "min_delta": _not_negative, "mode": _one_of("min", "max")},
        "plateau: {metric: val_loss, patience: 5}",
    ),
    "above": (Above, _THRESHOLD, "above: {metric: val_acc, value: 0.95}"),
    "below": (Below, _THRESHOLD, "below: {metric: loss, value: 0.1}"),
    "privacy_budget": (
        PrivacyBudget,
        {
            "epsilon": _within(0, math.inf, "above zero"),
            "delta": _within(0, 0.999999, "above 0 and below 1"),
            "noise_multiplier": _within(0, math.inf, "above zero"),
            "sample_rate": _within(0, 1, "above 0 and at most 1"),
            "accountant": _one_of(*ACCOUNTANTS),
        },
        "privacy_budget: {epsilon: 8, delta: 1e-5, noise_multiplier: 1.1, sample_rate: 0.01}",
    ),
}
