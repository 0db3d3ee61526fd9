"""Which guards act: never too often, never in dry mode, never upon what is over, and the hardest alone."""

from datetime import timedelta

import hypothesis.strategies as st
from hypothesis import given

from whistlestop.diagnosis.evidence import Evidence, Odd, Series
from whistlestop.diagnosis.findings import Cause
from whistlestop.diagnosis.guards import Act, Action, Open, Scene, decide, safe_until
from whistlestop.domain.guarding import stop_by, stop_reason
from whistlestop.domain.reasons import StopReason
from whistlestop.wire.spec import Do, GuardSpec
from whistlestop.wire.spec_guards import CAUSES

NOW = 1_000.0
LIVE = Scene(attempt=1, live=True)
SOME = [Cause.NON_FINITE.value, Cause.STUCK.value, Cause.HOST_MEMORY.value]

guards = st.builds(
    GuardSpec,
    when=st.sampled_from(SOME).map(lambda cause: (cause,)),
    do=st.sampled_from(Do),
    holds=st.sampled_from([timedelta(), timedelta(seconds=30)]),
    confidence=st.sampled_from([0.5, 0.9, 1.0]),
    times=st.integers(1, 3),
    dry=st.booleans(),
)
scenes = st.builds(Scene, attempt=st.integers(1, 3), live=st.booleans(), ended=st.booleans(), ending=st.booleans())


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[GuardSpec], list[Open], Scene, float]:
    causes = draw(st.lists(st.sampled_from(SOME), unique=True))
    found = [
        Open(
            index,
            cause,
            draw(st.sampled_from([0.6, 0.95, 1.0])),
            "so it is",
            NOW - draw(st.sampled_from([0.0, 10.0, 60.0])),
            draw(st.integers(1, 3)),
        )
        for index, cause in enumerate(causes)
    ]
    return draw(st.lists(guards, max_size=5)), found, draw(scenes), NOW


def acting(actions: tuple[Action, ...]) -> list[Action]:
    return [each for each in actions if not each.dry and each.do is not Do.NOTIFY]


def opened(**more: object) -> Open:
    return Open(**{"id": 1, "cause": "non_finite", "confidence": 0.99, "says": "", "since": NOW, "attempt": 1} | more)  # type: ignore[arg-type]


def test_the_words_of_the_spec_are_the_causes() -> None:
    assert set(CAUSES) == {cause.value for cause in Cause}


@given(worlds())
def test_at_most_one_acts_the_hardest_and_only_upon_what_is_there(
    drawn: tuple[list[GuardSpec], list[Open], Scene, float],
) -> None:
    specs, found, scene, now = drawn
    actions = decide(specs, found, [], scene, now)
    assert len(acting(actions)) <= 1
    if scene.ending or not (scene.live or scene.ended):
        assert acting(actions) == []
    if not (scene.live or scene.ended):
        assert actions == ()
    for action in actions:
        guard = specs[action.guard]
        assert action.dry == guard.dry
        assert action.finding.cause in guard.when
        assert action.finding.attempt == scene.attempt
        assert action.finding.confidence >= guard.confidence
        assert now - action.finding.since >= guard.holds.total_seconds()
    wants_kill = any(
        guard.do is Do.KILL and not guard.dry and decide([guard], found, [], scene, now) != () for guard in specs
    )
    if wants_kill and not scene.ending:
        assert [each.do for each in acting(actions)] == [Do.KILL]


@given(st.lists(guards, min_size=1, max_size=4), st.integers(1, 12), st.booleans())
def test_no_guard_acts_more_often_than_it_may_over_any_number_of_attempts(
    specs: list[GuardSpec], attempts: int, twice: bool
) -> None:
    """Each attempt comes to the same three findings, and is looked at once or twice."""
    history: list[Act] = []
    number = 0
    for attempt in range(1, attempts + 1):
        found = [opened(id=(number := number + 1), cause=cause, since=0.0, attempt=attempt) for cause in SOME]
        for _ in range(1 + twice):
            done = decide(specs, found, history, Scene(attempt, live=True), NOW)
            history += [Act(each.guard, each.finding.id, each.do) for each in done]
    assert len({(act.guard, act.finding) for act in history}) == len(history)
    for index, guard in enumerate(specs):
        made = [act for act in history if act.guard == index and act.do is guard.do]
        if guard.repeats:
            assert len(made) <= guard.times


def test_what_was_done_as_often_as_it_may_be_is_followed_by_an_end() -> None:
    for do, instead in ((Do.ROLL_BACK, Do.STOP), (Do.RESTART, Do.FAIL)):
        guard = GuardSpec(("non_finite",), do, times=1)
        (first,) = decide([guard], [opened()], [], LIVE, NOW)
        assert (first.do, first.spent) == (do, False)
        again = opened(id=2, attempt=2)
        (second,) = decide([guard], [again], [Act(0, 1, do)], Scene(2, live=True), NOW)
        assert (second.do, second.spent) == (instead, True)
    (ended,) = decide([GuardSpec(("non_finite",), Do.ROLL_BACK, times=1)], [opened(id=2)], [Act(0, 1, Do.ROLL_BACK)],
                      Scene(1, ended=True), NOW)  # fmt: skip
    assert ended.do is Do.FAIL, "there is no program left that could be stopped"


def test_a_checkpoint_is_surely_good_only_up_to_the_last_good_value() -> None:
    every = Series("loss", tuple(range(40)), (0.0,) * 40, (0.0,) * 40, odd=Odd(40, "nan", 1.0))
    seldom = Series("loss", (10, 20, 30), (0.0,) * 3, (0.0,) * 3, odd=Odd(40, "nan", 1.0))
    never = Series("loss", (), (), (), odd=Odd(0, "nan", 1.0))
    assert safe_until(Evidence(NOW, series=(every,)), "non_finite", 40) == 39
    assert safe_until(Evidence(NOW, series=(seldom,)), "non_finite", 40) == 30
    assert safe_until(Evidence(NOW, series=(seldom, every)), "non_finite", 40) == 39
    assert safe_until(Evidence(NOW, series=(never,)), "non_finite", 0) == -1
    assert safe_until(Evidence(NOW, series=(seldom,)), "diverging", 35) == 34


def test_a_guards_stop_has_the_reason_that_fits() -> None:
    assert stop_reason(stop_by("non_finite")) is StopReason.NON_FINITE
    assert stop_reason(stop_by("plateaued")) is StopReason.EARLY
    assert stop_reason(stop_by("stuck")) is StopReason.CUSTOM
    assert stop_reason("somebody") is StopReason.MANUAL
