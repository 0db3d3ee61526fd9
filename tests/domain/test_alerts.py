"""Which event becomes which alert, when capacity is lost too often, and when a receiver is tried again."""

import pytest

from whistlestop.domain.alerts import (
    DEFAULT,
    EVENTS,
    GIVE_UP,
    KINDS,
    LONGEST_PAUSE,
    SAYS,
    AlertKind,
    kind_of,
    often,
    pause_after,
)


@pytest.mark.parametrize(
    ("event", "data", "kind"),
    [
        ("run_failed", {}, AlertKind.FAILED),
        ("run_completed", {}, AlertKind.DONE),
        ("run_killed", {}, AlertKind.KILLED),
        ("run_waiting", {}, None),
        ("run_waiting", {"attention": "no checkpoint can be used"}, AlertKind.ATTENTION),
        ("stuck", {}, AlertKind.STUCK),
        ("guard", {"do": "kill"}, AlertKind.GUARD),
        ("finding", {"cause": "non_finite", "weight": "fatal"}, AlertKind.NON_FINITE),
        ("finding", {"cause": "stuck", "weight": "fatal"}, AlertKind.STUCK),
        ("finding", {"cause": "diverging", "weight": "fatal"}, AlertKind.FINDING),
        ("finding", {"cause": "overfitting", "weight": "bad"}, AlertKind.FINDING),
        ("finding", {"cause": "plateaued", "weight": "hint"}, None),
        ("finding_over", {"cause": "non_finite"}, None),
        ("checkpoint_too_old", {}, AlertKind.CHECKPOINT_TOO_OLD),
        ("budget_80", {}, AlertKind.BUDGET_80),
        ("checkpoint", {}, None),
    ],
)
def test_an_event_becomes_an_alert_by_its_kind_and_its_data(
    event: str, data: dict[str, str], kind: AlertKind | None
) -> None:
    assert kind_of(event, data) is kind
    assert kind is None or event in EVENTS


def test_every_kind_has_its_words_and_a_kill_is_told_only_to_those_who_ask() -> None:
    assert set(SAYS) == set(AlertKind)
    assert AlertKind.TEST not in KINDS
    assert set(KINDS) - set(DEFAULT) == {AlertKind.KILLED}


def test_three_losses_in_an_hour_are_told_once_until_an_hour_was_better() -> None:
    # Minutes: three close ones, more of them, a long rest, and again.
    at = [0, 20, 40, 55, 70, 300, 310, 320, 500]
    told = [minute for index, minute in enumerate(at) if often([60.0 * each for each in at[index::-1]][:4])]
    assert told == [40, 320]


def test_losses_that_are_further_apart_are_told_never() -> None:
    at = [3601.0 * index / 2 for index in range(20)]
    assert not any(often(at[index::-1][:4]) for index in range(20))


def test_a_receiver_is_tried_again_soon_then_rarely_and_for_days() -> None:
    pauses = [pause_after(failures) for failures in range(1, 2000)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(pauses) == LONGEST_PAUSE
    assert sum(pauses) > 3 * 86400
    assert GIVE_UP >= 3 * 86400
