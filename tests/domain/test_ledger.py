"""Every second of an attempt is of one kind."""

import math
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from whistlestop.domain.ledger import DAY, Facts, Kind, Piece, Save, by_day, split


def seconds(facts: Facts) -> dict[Kind, float]:
    return {piece.kind: round(piece.seconds, 6) for piece in split(facts)}


def test_an_attempt_waits_starts_redoes_trains_saves_and_stops() -> None:
    facts = Facts(
        queued_at=0.0,
        started_at=30.0,
        loop_at=40.0,
        steps=100,
        known_steps=25,
        progress_at=148.0,
        saves=[Save(until=80.0, seconds=5.0), Save(until=120.0, seconds=5.0)],
        stopping_at=150.0,
        ended_at=157.0,
    )
    assert seconds(facts) == {
        Kind.QUEUED: 30.0,
        Kind.STARTING: 10.0,
        Kind.REDONE: 25.0,
        Kind.PRODUCTIVE: 75.0,
        Kind.SAVING: 10.0,
        Kind.STOPPING: 7.0,
    }


def test_what_ends_before_its_first_step_has_only_started() -> None:
    assert seconds(Facts(started_at=0, ended_at=60, loop_at=20)) == {Kind.STARTING: 60}
    assert seconds(Facts(started_at=0, ended_at=60)) == {Kind.STARTING: 60}
    assert seconds(Facts(started_at=0, ended_at=60, stopping_at=45)) == {Kind.STARTING: 45, Kind.STOPPING: 15}


def test_a_program_without_a_loop_is_productive_from_its_start() -> None:
    assert seconds(Facts(started_at=0, ended_at=60, loop_at=2, counts=False)) == {Kind.STARTING: 2, Kind.PRODUCTIVE: 58}


def test_what_makes_no_step_for_several_of_its_own_is_stalled() -> None:
    facts = Facts(started_at=0, ended_at=300, loop_at=0, steps=100, progress_at=100)
    assert seconds(facts) == {Kind.PRODUCTIVE: 100, Kind.STALLED: 200}
    slow = Facts(started_at=0, ended_at=300, loop_at=0, steps=4, progress_at=100)
    assert seconds(slow) == {Kind.PRODUCTIVE: 300}, "ten of its steps are 250 seconds"
    asked = Facts(started_at=0, ended_at=300, loop_at=0, steps=100, progress_at=100, stopping_at=200)
    assert seconds(asked) == {Kind.PRODUCTIVE: 100, Kind.STALLED: 100, Kind.STOPPING: 100}


def test_what_was_busy_behind_its_last_step_is_not_stalled() -> None:
    done = Facts(started_at=0, ended_at=300, loop_at=0, steps=100, progress_at=100, busy=True)
    assert seconds(done) == {Kind.PRODUCTIVE: 300}
    saved = Facts(started_at=0, ended_at=300, loop_at=0, steps=100, progress_at=100, saves=[Save(150, 50)])
    assert seconds(saved) == {Kind.PRODUCTIVE: 100, Kind.SAVING: 50, Kind.STALLED: 150}


def test_a_save_in_the_time_it_was_given_to_end_belongs_to_the_stop() -> None:
    facts = Facts(
        started_at=0, ended_at=110, loop_at=0, steps=10, progress_at=100, stopping_at=100, saves=[Save(108, 8)]
    )
    assert seconds(facts) == {Kind.PRODUCTIVE: 100, Kind.STOPPING: 10}


def test_what_never_ran_is_free() -> None:
    assert split(Facts(started_at=100, ended_at=100)) == []
    assert split(Facts(started_at=100, ended_at=100, queued_at=40)) == [Piece(Kind.QUEUED, 40, 100)]


def test_a_piece_over_midnight_is_one_of_each_day() -> None:
    cut = by_day([Piece(Kind.PRODUCTIVE, DAY - 10, 2 * DAY + 5), Piece(Kind.SAVING, 3 * DAY, 4 * DAY)])
    assert [(piece.since / DAY, piece.seconds) for piece in cut] == [
        (pytest.approx(1 - 10 / DAY), 10),
        (1, DAY),
        (2, 5),
        (3, DAY),
    ]


times = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1000) | st.floats(1.7e9, 1.8e9)
maybe = st.none() | times
anything = st.builds(
    Facts,
    started_at=times,
    ended_at=times,
    queued_at=maybe,
    loop_at=maybe,
    counts=st.booleans(),
    steps=st.integers(-5, 2**53),
    known_steps=st.integers(-5, 2**53),
    progress_at=maybe,
    busy=st.booleans(),
    saves=st.lists(st.builds(Save, until=times, seconds=times), max_size=5),
    stopping_at=maybe,
)


@given(anything)
def test_the_pieces_join_from_the_queue_to_the_end_whatever_was_said(facts: Facts) -> None:
    pieces = split(facts)
    paid = [piece for piece in pieces if piece.kind is not Kind.QUEUED]
    assert all(piece.until > piece.since for piece in pieces)
    assert all(first.until == second.since for first, second in pairwise(pieces))
    assert len({piece.kind for piece in pieces}) == len(pieces)
    if paid:
        assert (paid[0].since, paid[-1].until) == (facts.started_at, facts.ended_at)
    else:
        assert not (math.isfinite(facts.started_at) and facts.ended_at > facts.started_at) or math.isinf(facts.ended_at)
    cut = by_day(pieces)
    assert all(first.until == second.since for first, second in pairwise(cut))
    assert [(cut[0].since, cut[-1].until)] == [(pieces[0].since, pieces[-1].until)] if pieces else cut == []
