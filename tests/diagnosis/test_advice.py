"""The rules of advice, one by one: what is advised, how sure that is, and what the choices cost."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from whistlestop.diagnosis.advice import Verdict, advise
from whistlestop.diagnosis.choices import Verb
from whistlestop.diagnosis.evidence import Evidence, Odd, Place, Saved, Series
from whistlestop.diagnosis.findings import Cause, Finding, Weight
from whistlestop.domain.states import RunState

PRICE = 0.01


def running(step: int = 500, total: int = 1000, *, saved: tuple[int, ...] = (), flat: bool = False) -> Evidence:
    """One second a step; a loss that falls, or has come to rest."""
    steps = tuple(range(0, step, 5))
    values = tuple(1.0 if flat else 0.2 + 2.0 * 0.998**at for at in steps)
    noisy = tuple(value + 0.003 * (-1) ** at for at, value in enumerate(values))
    return Evidence(
        now=1000.0 + step,
        place=Place(step=step, total=total, loop_started_at=1000.0, progress_at=1000.0 + step),
        series=(Series("loss", steps, noisy, tuple(1000.0 + at for at in steps)),),
        price=PRICE,
        marks=tuple((at, 1000.0 + at) for at in range(0, step + 1, 10)),
        saved=tuple(Saved(each, 1000.0 + each) for each in saved),
    )


def found(cause: Cause, confidence: float = 0.95, step: int | None = None) -> Finding:
    return Finding(cause, confidence, "something was seen", step=step)


def test_a_healthy_run_that_improves_is_let_go_on_with_what_it_costs_and_brings() -> None:
    advice = advise(running(), [])
    assert (advice.verdict, advice.sure) == (Verdict.WAIT, True)
    assert advice.reason == "Nothing is wrong, and loss is still improving."
    assert advice.forecast.left is not None
    assert advice.forecast.left.likely == pytest.approx(500, rel=0.02)
    assert advice.forecast.cost is not None
    assert advice.forecast.cost.likely == pytest.approx(500 * PRICE, rel=0.02)
    by_verb = {choice.verb: choice for choice in advice.choices}
    assert by_verb[Verb.STOP].saves == by_verb[Verb.KILL].saves == advice.forecast.cost.likely
    assert by_verb[Verb.KILL].lost_steps == 500
    assert by_verb[Verb.KILL].gets == "metrics and logs alone"
    assert advice.choices[0].verb is Verb.WAIT


def test_nearly_done_and_improving_waits() -> None:
    advice = advise(running(850), [])
    assert (advice.verdict, advice.sure) == (Verdict.WAIT, True)
    assert advice.reason == "Nothing is wrong, and it is nearly done and still improving."


def test_a_gain_that_is_noise_is_said_to_be_and_is_no_reason_to_stop() -> None:
    advice = advise(running(flat=True), [])
    assert (advice.verdict, advice.sure) == (Verdict.WAIT, False)
    assert "can't be told from noise" in advice.reason
    assert advice.forecast.gain is not None
    assert not advice.forecast.gain.distinct


@pytest.mark.parametrize(
    "evidence", [running(30), replace(running(), place=Place(step=500, loop_started_at=1000.0)), Evidence(now=5.0)]
)
def test_it_says_that_it_is_too_early(evidence: Evidence) -> None:
    advice = advise(evidence, [])
    assert (advice.verdict, advice.sure) == (Verdict.WAIT, False)
    assert advice.reason.startswith("Too early to tell: ")


@pytest.mark.parametrize("cause", [Cause.NON_FINITE, Cause.DIVERGING])
def test_a_poisoned_run_goes_back_to_the_newest_checkpoint_from_before_else_it_is_killed(cause: Cause) -> None:
    trouble = found(cause, step=400)
    advice = advise(running(saved=(450, 350, 300)), [trouble])
    assert (advice.verdict, advice.goes_back_to) == (Verdict.FIX_AND_CONTINUE, 350)
    assert advice.choices[0].verb is Verb.CONTINUE
    assert advice.choices[0].lost_steps == 150
    assert advice.choices[0].seconds is not None
    assert advice.choices[0].seconds.likely == pytest.approx(650, rel=0.02)
    assert advice.forecast.gain is None, "where it was going it goes no more"
    late = advise(running(saved=(450,)), [trouble])
    assert (late.verdict, late.goes_back_to) == (Verdict.KILL, None)
    assert "no checkpoint from before" in late.reason


def test_a_checkpoint_that_a_rarely_logged_nan_may_have_reached_is_not_called_good() -> None:
    seen = running(saved=(400, 390, 290))
    loss = Series("loss", (100, 200, 300), (2.0, 1.0, 0.5), (1100.0, 1200.0, 1300.0), odd=Odd(400, "nan", 1400.0))
    advice = advise(replace(seen, series=(loss,)), [found(Cause.NON_FINITE, step=400)])
    assert advice.goes_back_to == 290


@pytest.mark.parametrize("cause", [cause for cause in Cause if found(cause).weight is Weight.FATAL])
def test_what_is_fatal_is_fixed_and_continued_or_killed_and_never_waited_for(cause: Cause) -> None:
    assert advise(running(saved=(300,)), [found(cause, step=320)]).verdict is Verdict.FIX_AND_CONTINUE
    assert advise(running(), [found(cause)]).verdict is Verdict.KILL
    weak = advise(running(), [found(cause, 0.6)])
    assert (weak.verdict, weak.sure) == (Verdict.WAIT, False)


def test_one_that_does_not_learn_is_killed_and_one_that_learns_no_more_is_stopped() -> None:
    assert advise(running(), [found(Cause.NOT_DECREASING)]).verdict is Verdict.KILL
    best = replace(running(), saved=(Saved(450, 0.0), Saved(200, 0.0, best=True)))
    advice = advise(best, [found(Cause.OVERFITTING)])
    assert advice.verdict is Verdict.STOP
    assert advice.do == "Stop it now: the best checkpoint, at step 200, is kept."
    assert advise(running(), [found(Cause.PLATEAUED)]).verdict is Verdict.STOP


@pytest.mark.parametrize("cause", [Cause.NOT_DECREASING, Cause.OVERFITTING, Cause.PLATEAUED])
def test_weak_signs_throw_no_work_away(cause: Cause) -> None:
    advice = advise(running(), [found(cause, 0.6)])
    assert (advice.verdict, advice.sure) == (Verdict.WAIT, False)


@pytest.mark.parametrize("cause", [Cause.SLOW_RANK, Cause.DATA_STARVED, Cause.THROTTLED, Cause.SAVES_FAIL])
def test_one_that_gets_on_at_too_high_a_cost_waits_and_is_told_so(cause: Cause) -> None:
    advice = advise(running(), [found(cause)])
    assert advice.verdict is Verdict.WAIT
    assert "higher cost" in advice.reason


def test_an_ended_run_is_continued_run_again_or_left_alone() -> None:
    failed = replace(running(saved=(300,)), status="failed")
    trouble = found(Cause.DEVICE_MEMORY)
    advice = advise(failed, [trouble])
    assert (advice.verdict, advice.goes_back_to, advice.choices) == (Verdict.FIX_AND_CONTINUE, 300, ())
    assert advise(replace(failed, saved=()), [trouble]).verdict is Verdict.RERUN
    assert "another time" in advise(failed, [found(Cause.NETWORK)]).reason
    unknown = advise(failed, [])
    assert (unknown.verdict, unknown.sure) == (Verdict.FIX_AND_CONTINUE, False)
    assert advise(replace(failed, status="killed"), []).verdict is Verdict.NOTHING
    assert advise(replace(failed, status="completed"), []).verdict is Verdict.NOTHING
    assert advise(replace(failed, status="waiting"), []).reason == "It holds no slots and costs nothing as it is."


@given(
    st.sampled_from([state.value for state in RunState]),
    st.lists(
        st.tuples(st.sampled_from(list(Cause)), st.floats(0.5, 1.0), st.none() | st.integers(0, 2000)), max_size=3
    ),
    st.integers(0, 1200),
    st.integers(0, 1000),
    st.lists(st.integers(0, 1000), max_size=3),
)
def test_whatever_was_found_it_says_one_thing_in_a_sentence(
    status: str, causes: list[tuple[Cause, float, int | None]], step: int, total: int, saved: list[int]
) -> None:
    seen = replace(running(step, total, saved=tuple(saved)), status=status)
    advice = advise(seen, [found(*each) for each in causes])
    assert advice.reason.endswith(".")
    assert (advice.choices != ()) == (status in ("running", "starting"))
    assert (advice.goes_back_to is not None) <= (advice.verdict is Verdict.FIX_AND_CONTINUE)
    if status in ("completed", "failed", "killed"):
        assert advice.verdict in (Verdict.FIX_AND_CONTINUE, Verdict.RERUN, Verdict.NOTHING)
    else:
        assert advice.verdict in (Verdict.KILL, Verdict.STOP, Verdict.WAIT, Verdict.FIX_AND_CONTINUE)
