"""Answers of Ray's agents overtake each other on their way."""

from whistlestop.engines.ray.answers import Answers


def test_an_answer_to_an_earlier_question_does_not_take_the_place_of_a_later_one() -> None:
    """Else a runner that has just been started is unknown for a moment, and is taken for one that did not come up."""
    answers = Answers()
    assert answers.of("n1") is None
    assert answers.take("n1", 2, {"a-1": "running"})
    assert not answers.take("n1", 1, {})
    assert answers.of("n1") == {"a-1": "running"}
    assert not answers.take("n1", 3, {"a-1": "running"})
    assert answers.take("n1", 4, {"a-1": "ended"})


def test_another_agent_counts_from_the_beginning_and_what_the_last_one_said_stands_until_then() -> None:
    answers = Answers()
    answers.take("n1", 7, {"a-1": "running"})
    answers.begin_anew("n1")
    assert answers.of("n1") == {"a-1": "running"}
    assert answers.take("n1", 1, {"a-1": "dead"})
    answers.forget("n1")
    assert answers.of("n1") is None
