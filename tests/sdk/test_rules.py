"""Live stop rules: when they fire, in which words, and that a resume is not seen in them."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whistlestop.domain.errors import BadRequest
from whistlestop.domain.reasons import StopReason
from whistlestop.sdk.rules import (
    Fired,
    Moment,
    Rule,
    Rules,
    above,
    all_of,
    any_of,
    below,
    max_steps,
    max_time,
    non_finite,
    plateau,
    privacy_budget,
    when,
)


def make(*code: Any, spec: Any = (), warnings: list[str] | None = None) -> Rules:
    def warn(text: str) -> None:
        assert warnings is not None, text
        warnings.append(text)

    return Rules.make(code, json.dumps(list(spec)), warn=warn)


def at(step: int, seconds: float = 0.0, spent: int = 0, **values: float) -> Moment:
    return Moment(step, seconds, values, values, spent)


def feed(rules: Rules, values: Sequence[float], metric: str = "loss") -> tuple[int, list[Fired]] | None:
    """The step at which it fires, with a value before each step."""
    for step, value in enumerate(values, 1):
        if fired := rules.look(at(step, **{metric: value})):
            return step, fired
    return None


def test_a_plateau_fires_with_the_numbers() -> None:
    rules = make(plateau("val_loss", patience=2, min_delta=0.001))
    assert rules.look(at(200, val_loss=0.3)) == []
    assert rules.look(at(400, val_loss=0.213)) == []
    assert rules.look(at(500)) == []
    assert rules.look(at(600, val_loss=0.2125)) == []
    text = "val_loss has not improved by more than 0.001 for 2 evaluations; its best was 0.213 at step 400"
    assert rules.look(at(800, val_loss=0.2121)) == [Fired(StopReason.EARLY, text)]


def test_a_plateau_may_look_for_the_largest_value() -> None:
    assert feed(make(plateau("loss", patience=2, mode="max")), [1, 2, 3, 2, 3, 4]) == (
        5,
        [Fired(StopReason.EARLY, "loss has not improved for 2 evaluations; its best was 3 at step 3")],
    )


def test_a_value_that_is_no_number_is_an_evaluation_without_improvement() -> None:
    nan = math.nan
    assert feed(make(plateau("loss", patience=2)), [1, nan, 0.5, nan, nan]) is not None
    found = feed(make(plateau("loss", patience=3)), [nan, nan, nan])
    assert found == (3, [Fired(StopReason.EARLY, "loss has not improved for 3 evaluations; it never was a number")])
    assert feed(make(above("loss", 0), below("loss", 0), "loss >= 0", "loss <= 0"), [nan, nan]) is None


@pytest.mark.parametrize(
    ("rule", "values", "step", "text"),
    [
        (above("loss", 0.9), [0.5, 0.9, 0.91], 3, "loss is 0.91 at step 3, above its threshold 0.9"),
        (below("loss", 0.1), [0.5, 0.1, 0.05], 3, "loss is 0.05 at step 3, below its threshold 0.1"),
        ("loss >= 0.9", [0.5, 0.9], 2, "loss is 0.9 at step 2, at its threshold 0.9"),
        ("loss <= 0.1", [0.5, -math.inf], 2, "loss is -inf at step 2, below its threshold 0.1"),
    ],
)
def test_a_threshold_fires_when_it_is_crossed(rule: Any, values: list[float], step: int, text: str) -> None:
    assert feed(make(rule), values) == (step, [Fired(StopReason.THRESHOLD, text)])


def test_steps_and_time_have_their_moment_without_a_value() -> None:
    rules = make(max_steps(100), max_time("1h 30m"))
    assert (rules.next_step(0), rules.next_seconds()) == (100, 5400)
    assert rules.look(at(99, 5399)) == []
    assert rules.look(at(100, 5430)) == [
        Fired(StopReason.THRESHOLD, "100 steps are done; the limit is 100", exact=True),
        Fired(StopReason.TIME_LIMIT, "trained for 1 h 30 min 30 s; the limit is 1 h 30 min"),
    ]


def test_a_value_that_is_not_finite_poisons_the_checkpoints_from_then_on() -> None:
    rules = make(non_finite("loss"))
    assert rules.look(at(1, loss=1.0, other=math.inf)) == []
    assert not rules.poisoned
    assert rules.look(at(2, loss=-math.inf)) == [Fired(StopReason.NON_FINITE, "loss is -inf at step 2")]
    assert rules.look(at(3, loss=1.0)) == []
    assert rules.poisoned
    again = make(non_finite("loss"))
    again.load(json.loads(json.dumps(rules.state())))
    assert not again.poisoned  # whoever goes on from it has chosen to


def test_all_metrics_are_watched_for_what_is_not_finite() -> None:
    rules = make(spec=["non_finite"])
    assert rules.watches is None
    assert rules.look(at(1, a=math.nan, b=1.0, c=math.inf))[0].text == "a is nan, c is inf at step 1"


def test_only_what_is_needed_is_watched() -> None:
    assert make().empty
    assert make().watches == frozenset()
    assert (make().next_step(5), make().next_seconds()) == (math.inf, math.inf)
    assert make(plateau("a"), above("b", 1) & below("c", 1), max_steps(5)).watches == {"a", "b", "c"}
    assert make(plateau("a"), lambda moment: False).watches is None


def test_a_function_of_the_program_fires_by_truth_or_by_words() -> None:
    def weary(moment: Moment) -> Any:
        return moment.step >= 3

    rules = make(weary, when(lambda moment: "it is late" if moment.step >= 3 else ""), when(weary, "enough"))
    assert rules.next_step(7) == 8
    assert rules.look(at(2)) == []
    first, second, third = rules.look(at(3))
    assert first.reason is StopReason.CUSTOM
    assert "weary" in first.text
    assert "step 3" in first.text
    assert (second.text, third.text) == ("it is late", "enough")


def test_a_function_that_raises_is_warned_of_once_and_ignored() -> None:
    warnings: list[str] = []
    calls: list[int] = []

    def broken(moment: Moment) -> bool:
        calls.append(moment.step)
        raise ZeroDivisionError("no")

    rules = make(broken, max_steps(3), warnings=warnings)
    assert [len(rules.look(at(step))) for step in (1, 2, 3)] == [0, 0, 1]
    assert calls == [1]
    assert len(warnings) == 1
    assert "broken" in warnings[0]
    assert "ZeroDivisionError" in warnings[0]
    assert rules.next_step(1) == 3


def test_several_rules_fire_at_once_in_the_users_order() -> None:
    rules = make(below("loss", 0.1), max_steps(5), spec=["non_finite", "loss < 0.2"])
    fired = rules.look(at(5, loss=-math.inf))
    assert [found.reason for found in fired] == [
        StopReason.THRESHOLD,
        StopReason.THRESHOLD,
        StopReason.NON_FINITE,
        StopReason.THRESHOLD,
    ]


def test_both_have_to_fire_but_not_at_once() -> None:
    rules = make(plateau("loss", patience=1) & max_steps(10))
    assert rules.next_step(0) == 10
    assert rules.look(at(1, loss=1.0)) == []
    assert rules.look(at(2, loss=1.0)) == []
    assert rules.look(at(3, loss=0.5)) == []
    assert rules.look(at(10)) == [
        Fired(
            StopReason.EARLY,
            "loss has not improved for 1 evaluation; its best was 1 at step 1 and 10 steps are done; the limit is 10",
        )
    ]
    assert rules.next_step(10) == math.inf, "a run that is continued behind its stop is not asked at every step"


def test_one_of_two_is_enough() -> None:
    rules = make(any_of(above("loss", 9), all_of(below("loss", 1), max_steps(2))))
    assert rules.look(at(1, loss=0.5)) == []
    (fired,) = rules.look(at(2))
    assert fired.text == "loss is 0.5 at step 1, below its threshold 1 and 2 steps are done; the limit is 2"
    one, other = make(below("loss", 1) | max_steps(2)).look(at(2, loss=0.5))
    assert one.text == "loss is 0.5 at step 2, below its threshold 1"
    assert other.text == "2 steps are done; the limit is 2"
    (both,) = make(all_of(below("loss", 1) | max_steps(2), above("loss", 0))).look(at(2, loss=0.5))
    assert both.text.startswith("loss is 0.5 at step 2, below its threshold 1; 2 steps are done; the limit is 2 and ")


def test_a_bad_rule_in_the_code_is_refused_and_one_in_the_spec_is_warned_of() -> None:
    for bad in (lambda: plateau("", patience=1), lambda: max_time("soon"), lambda: make(7), lambda: make("loss")):
        with pytest.raises(BadRequest):
            bad()
    with pytest.raises(BadRequest, match="takes rules"):
        all_of(max_steps(1), lambda moment: True)  # type: ignore[arg-type]
    warnings: list[str] = []
    rules = make(spec=[{"platou": {}}, "loss < 0.1"], warnings=warnings)
    assert rules.watches == {"loss"}
    assert len(warnings) == 1
    assert 'did you mean "plateau"?' in warnings[0]
    for text in ("{", "7", '{"a": 1}'):
        assert Rules.make([], text, warn=warnings.append).empty
    assert len(warnings) == 4


# --- privacy ------------------------------------------------------------------------------------------------------


def test_the_privacy_rule_fires_before_the_step_that_would_exceed_the_budget() -> None:
    rules = make(privacy_budget(1.0, spent=lambda steps: steps / 100))
    assert rules.privacy is not None
    assert rules.privacy.limit_steps == 100
    rules.check()
    assert rules.next_step(40) == 40, "how much is spent is only known after a first look"
    assert rules.look(at(40, spent=60)) == []
    assert rules.next_step(40) == 80
    assert rules.look(at(79, spent=99)) == []
    (fired,) = rules.look(at(80, spent=100))
    assert fired == Fired(
        StopReason.PRIVACY_BUDGET,
        "the privacy budget of epsilon 1 allows 100 steps; 100 were run, 20 of them discarded, and one more would "
        "exceed it",
        exact=True,
    )
    assert make(privacy_budget(1.0, spent=lambda steps: steps / 100)).look(at(99)) == []
    assert make(privacy_budget(1.0, spent=lambda steps: steps / 100)).look(at(100))


def test_of_several_budgets_the_strictest_one_counts() -> None:
    rules = make(
        privacy_budget(2.0, spent=lambda n: n / 10), privacy_budget(1.0, spent=lambda n: n / 10) | max_steps(5)
    )
    assert rules.privacy is not None
    assert rules.privacy.limit_steps == 10


def test_every_rank_stops_by_itself_before_the_budget_is_exceeded() -> None:
    rules = make(plateau("loss"), privacy_budget(1.0, spent=lambda n: n / 10) | below("loss", 0) | max_steps(7))
    for rank in (0, 1):
        own = rules.for_rank(rank)
        assert own.privacy is not None
        assert own.look(at(6)) == []
        assert [fired.exact for fired in own.look(at(10))] == [True, True]


def test_a_budget_is_worked_out_once() -> None:
    asked: list[int] = []

    def spent(steps: int) -> float:
        asked.append(steps)
        return steps / 1000

    rules = make(privacy_budget(5.0, spent=spent))
    for step in range(5001):
        assert bool(rules.look(at(step))) == (step == 5000)
    assert len(asked) < 40


@pytest.mark.parametrize(
    "spent", [lambda steps: math.nan, lambda steps: 1 / 0, lambda steps: None, lambda steps: "a lot"]
)
def test_a_budget_that_cannot_be_computed_lets_no_step_run(spent: Callable[[int], float]) -> None:
    warnings: list[str] = []
    rules = make(privacy_budget(5.0, spent=spent), warnings=warnings)
    with pytest.raises(BadRequest, match="can't be computed"):
        rules.check()
    assert len(warnings) == 1
    (fired,) = rules.look(at(0))
    assert fired.reason is StopReason.PRIVACY_BUDGET
    assert rules.next_step(0) == 0


@pytest.mark.parametrize(
    "spec", ['[{"privacy_budget": {"epsilon": 8}}]', '[{"any": [{"privacy_budget": 3}]}]', '[{"privacy_budget"']
)
def test_a_budget_in_the_spec_that_cannot_be_read_lets_no_step_run(spec: str) -> None:
    warnings: list[str] = []
    rules = Rules.make([], spec, warn=warnings.append)
    with pytest.raises(BadRequest, match="stop_when"):
        rules.check()
    assert rules.look(at(0))
    assert "No step is run" in warnings[0]


def test_a_budget_needs_numbers_and_a_function() -> None:
    for epsilon in (0, -1, math.inf, math.nan, "8"):
        with pytest.raises(BadRequest, match="above zero"):
            privacy_budget(epsilon, spent=lambda steps: 0)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="must be a function"):
        privacy_budget(8, spent=3)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="can't wait"):
        privacy_budget(8, spent=lambda steps: 0) & max_steps(5)


# --- resume -------------------------------------------------------------------------------------------------------

SIMPLE = st.one_of(
    st.builds(
        plateau,
        st.sampled_from("ab"),
        patience=st.integers(1, 4),
        min_delta=st.sampled_from([0.0, 0.5]),
        mode=st.sampled_from(["min", "max"]),
    ),
    st.builds(above, st.sampled_from("ab"), st.sampled_from([0.0, 2.5])),
    st.builds(below, st.sampled_from("ab"), st.sampled_from([0.0, -2.5])),
    st.builds(max_steps, st.integers(1, 20)),
    st.builds(max_time, st.integers(1, 60)),
    st.builds(lambda names: non_finite(*names), st.lists(st.sampled_from("ab"), unique=True)),
)
RULES = st.lists(
    st.recursive(
        SIMPLE,
        lambda inner: st.builds(all_of, inner, inner) | st.builds(any_of, inner, inner),
        max_leaves=4,
    ),
    max_size=4,
)
VALUES = st.lists(
    st.dictionaries(st.sampled_from("ab"), st.sampled_from([0.0, 1.0, 2.0, 3.0, -3.0]) | st.floats()), max_size=25
)


@given(RULES, VALUES, st.sets(st.integers(0, 25)))
def test_no_rule_notices_a_resume(code: list[Rule], values: list[dict[str, float]], cuts: set[int]) -> None:
    straight, resumed = make(*code), make(*code)
    for step, found in enumerate(values, 1):
        moment = Moment(step, 3.0 * step, found, found)
        assert straight.look(moment) == resumed.look(moment)
        if step in cuts:
            saved = json.dumps(resumed.state(), allow_nan=False)
            resumed = make(*code)
            resumed.load(json.loads(saved))
        assert resumed.state() == straight.state()
        assert resumed.next_step(step) == straight.next_step(step)
        assert resumed.next_seconds() == straight.next_seconds()


@given(RULES, VALUES)
def test_a_rule_is_always_asked_before_the_step_that_it_names(code: list[Rule], values: list[dict[str, float]]) -> None:
    """Who looks only when something was logged, or at the step and time that were named, misses nothing."""
    eager, lazy = make(*code), make(*code)
    for step, found in enumerate(values, 1):
        moment = Moment(step, 3.0 * step, found, found)
        due = bool(found) or step >= lazy.next_step(step - 1) or moment.seconds >= lazy.next_seconds()
        fired = eager.look(moment)
        if due:
            assert [each.text for each in lazy.look(moment)] == [each.text for each in fired]
        if fired:
            assert due
            return


def test_after_a_change_of_the_rules_what_fits_is_kept_and_the_rest_is_told() -> None:
    before = make(plateau("a", patience=5), plateau("b"), plateau("b"), all_of(above("a", 1), max_steps(9)))
    before.look(at(7, a=2.0, b=3.0))
    warnings: list[str] = []
    after = make(plateau("b"), plateau("a", patience=2), plateau("c"), max_steps(3), warnings=warnings)
    after.load(before.state())
    assert after.look(at(1, a=5.0)) == []
    (fired,) = after.look(at(2, a=5.0))
    assert "its best was 2 at step 7" in fired.text
    told = "\n".join(warnings)
    assert len(warnings) == 3
    assert "knows nothing of the stop rule plateau(c" in told
    assert "plateau(b, min_delta=0.0, mode=min) #2 is no longer there" in told
    assert "all(a > 1.0, max_steps(9)) is no longer there" in told


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["rules", "best", "waited", "best_step", "fired", "parts", "plateau(a, min_delta=0.0, mode=min)"]
                ),
                inner,
            )
        ),
    )
)
def test_a_state_that_makes_no_sense_is_told_and_never_raised(state: Any) -> None:
    rules = make(plateau("a") & max_steps(3), plateau("a"), warnings=[])
    rules.load(state)
    rules.load({"rules": {"plateau(a, min_delta=0.0, mode=min)": state}})
    json.dumps(rules.state(), allow_nan=False)
    rules.look(at(3, a=1.0))
