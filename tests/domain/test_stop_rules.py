"""Stop rules are read as they are meant, and a mistake is told in words with the nearest valid one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whistlestop.domain.errors import BadRequest, Problem
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
    all_of,
    judge_rules,
    read_rules,
    read_seconds,
)

BUDGET = {"epsilon": 8, "delta": 1e-5, "noise_multiplier": 1.1, "sample_rate": 0.01}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (
            {"plateau": {"metric": "val_loss", "patience": 3, "min_delta": 0.001, "mode": "max"}},
            Plateau("val_loss", 3, 0.001, "max"),
        ),
        ({"plateau": {"metric": "val_loss"}}, Plateau("val_loss")),
        ({"plateau": "val_loss"}, Plateau("val_loss")),
        ({"above": {"metric": "acc", "value": 0.95}}, Above("acc", 0.95)),
        ({"below": {"metric": "loss", "value": 1}}, Below("loss", 1.0)),
        ({"max_time": "2h"}, MaxTime(7200)),
        ({"max_time": 90}, MaxTime(90)),
        ({"max_steps": 1000}, MaxSteps(1000)),
        ({"non_finite": ["loss", "grad_norm"]}, NonFinite(("loss", "grad_norm"))),
        ({"non_finite": "loss"}, NonFinite(("loss",))),
        ({"non_finite": None}, NonFinite()),
        ("non_finite", NonFinite()),
        ("loss < 0.1", Below("loss", 0.1)),
        ("val_acc>0.9", Above("val_acc", 0.9)),
        ("val/acc top-1 >= 9e-1", Above("val/acc top-1", 0.9, equal=True)),
        ("loss <= -1", Below("loss", -1.0, equal=True)),
        ({"rule": "loss < 0.1"}, Below("loss", 0.1)),
        ({"privacy_budget": BUDGET}, PrivacyBudget(8.0, 1e-5, 1.1, 0.01)),
        ({"all": ["loss < 0.1", {"max_steps": 10}]}, AllOf((Below("loss", 0.1), MaxSteps(10)))),
        (
            {"any": ["a < 1", {"all": ["b < 1", "c < 1"]}]},
            AnyOf((Below("a", 1.0), AllOf((Below("b", 1.0), Below("c", 1.0))))),
        ),
    ],
)
def test_a_rule_is_read_as_it_is_meant(written: Any, meant: Rule) -> None:
    assert read_rules([written]) == (meant,)


@pytest.mark.parametrize(
    ("written", "path", "words", "hint"),
    [
        ({"platou": {"metric": "a"}}, "0.platou", "not a stop rule", 'did you mean "plateau"?'),
        ("platou", "0", "not a stop rule", 'did you mean "plateau"?'),
        ("loss", "0", "not a stop rule", "loss < 0.1"),
        ("loss < low", "0", '"low" is not a number', "loss < 0.1"),
        ("loss < nan", "0", "finite", "loss < 0.1"),
        ("0.1 < loss < 0.2", "0", "not a stop rule", "loss < 0.1"),
        ("", "0", "not a stop rule", "loss < 0.1"),
        (7, "0", "must be a rule", "loss < 0.1"),
        ({}, "0", "must be a rule", "loss < 0.1"),
        ({"max_steps": 1, "max_time": 1}, "0", "more than one rule", "entry of its own"),
        ({"plateau": {"metric": "a", "patiense": 3}}, "0.plateau.patiense", "unknown key", 'mean "patience"?'),
        ({"plateau": {"patience": 3}}, "0.plateau", "`metric` is missing", "plateau: {metric: val_loss"),
        ({"plateau": {"metric": "a", "patience": 0}}, "0.plateau.patience", "from 1 on", None),
        ({"plateau": {"metric": "a", "patience": True}}, "0.plateau.patience", "from 1 on", None),
        ({"plateau": {"metric": "a", "min_delta": -1}}, "0.plateau.min_delta", "must not be negative", None),
        ({"plateau": {"metric": "a", "mode": "low"}}, "0.plateau.mode", "min or max", None),
        ({"plateau": {"metric": " "}}, "0.plateau.metric", "name of a metric", None),
        ({"plateau": 5}, "0.plateau", "must be a mapping", "plateau: {"),
        ({"above": {"metric": "a", "value": "0.9"}}, "0.above.value", "finite number", None),
        ({"above": {"metric": "a", "value": float("inf")}}, "0.above.value", "finite number", None),
        ({"max_steps": 1.5}, "0.max_steps", "from 1 on", None),
        ({"max_time": "soon"}, "0.max_time", "not a length of time", None),
        ({"max_time": 0}, "0.max_time", "longer than zero", None),
        ({"non_finite": 3}, "0.non_finite", "list of metrics", "non_finite: [loss]"),
        ({"non_finite": ["a", 3]}, "0.non_finite.1", "name of a metric", None),
        ({"all": []}, "0.all", "list of rules", "all: ["),
        ({"any": [{"all": ["los"]}]}, "0.any.0.all.0", "not a stop rule", "loss < 0.1"),
        ({"all": ["a < 1", {"privacy_budget": BUDGET}]}, "0.all", "can't wait for another", "rule of its own"),
        ({"privacy_budget": {**BUDGET, "sample_rate": 2}}, "0.privacy_budget.sample_rate", "at most 1", None),
        ({"privacy_budget": {**BUDGET, "delta": 0}}, "0.privacy_budget.delta", "above 0 and below 1", None),
        ({"privacy_budget": {**BUDGET, "accountant": "rpd"}}, "0.privacy_budget.accountant", "rdp or prv", None),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_to_do(written: Any, path: str, words: str, hint: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        read_rules([written])
    (problem,) = caught.value.problems
    assert problem.path == path
    assert words in problem.text
    assert words in caught.value.text
    assert problem.hint is None if hint is None else hint in (problem.hint or "")


def test_every_mistake_is_told_and_the_good_rules_are_kept() -> None:
    rules, problems = judge_rules(["loss < 0.1", "x", {"plateau": {"patience": 0, "mod": "min"}}, {"max_steps": 5}])
    assert rules == (Below("loss", 0.1), MaxSteps(5))
    assert [problem.path for problem in problems] == ["1", "2.plateau.mod", "2.plateau", "2.plateau.patience"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("2 hours", 7200), ("1d12h", 129600), ("1 h 30 min", 5400), ("1 hour and 5 seconds", 3605),
     ("45", 45), (0.5, 0.5), ("2 Days", 172800)],
)  # fmt: skip
def test_lengths_of_time_are_read_as_people_write_them(text: Any, seconds: float) -> None:
    assert read_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1h", "2 fortnights", "1 2", None, True, float("nan"), [1], "1" * 61])
def test_what_is_no_length_of_time_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="length of time"):
        read_seconds(text)


def test_rules_are_joined_by_operators_and_flattened() -> None:
    a, b, c = Below("a", 1.0), Below("b", 1.0), Below("c", 1.0)
    assert (a & b) & c == AllOf((a, b, c))
    assert a | (b | c) == AnyOf((a, b, c))
    assert a & b | c == AnyOf((AllOf((a, b)), c))
    with pytest.raises(TypeError):
        a & (lambda moment: True)  # type: ignore[operator]
    with pytest.raises(BadRequest, match="can't wait"):
        all_of(a, PrivacyBudget(8, 1e-5, 1.1, 0.01))
    assert a | PrivacyBudget(8, 1e-5, 1.1, 0.01)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["a < 1", "non_finite"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["plateau", "above", "all", "any", "metric", "value", "patience", "max_time", "non_finite", "rule"]
            )
            | st.text(),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=3))
def test_whatever_is_given_is_read_or_refused_in_words(written: list[Any]) -> None:
    rules, problems = judge_rules(written)
    assert len(rules) + len({problem.path.split(".")[0] for problem in problems}) == len(written)
    for problem in problems:
        assert isinstance(problem, Problem)
        assert "\n" not in problem.text


def test_a_deep_nest_is_refused_not_crashed_on() -> None:
    nest: Any = "a < 1"
    for _ in range(3000):
        nest = {"any": [nest]}
    with pytest.raises(BadRequest, match="nested more than"):
        read_rules([nest])
