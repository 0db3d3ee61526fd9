"""A cluster that has taken a job twice: one start is the attempt's."""

from whistlestop.server.services.starts import Starts


def test_the_first_start_of_each_node_has_the_attempt_however_often_it_asks() -> None:
    starts = Starts()
    assert [starts.is_first("t", 0, start) for start in ("one", "two", "one")] == [True, False, True]
    assert starts.is_first("t", 1, "two"), "another node of the same attempt"
    assert starts.is_first("u", 0, "two"), "the attempt was launched again"


def test_it_does_not_grow_without_end() -> None:
    starts = Starts(most=2)
    assert all(starts.is_first(token, 0, "one") for token in "abc")
    assert len(starts._first) == 2
