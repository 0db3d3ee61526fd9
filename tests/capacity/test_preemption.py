"""The rate at which a pool is taken away without notice."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from whistlestop.capacity.preemption import Tenure, unnoticed_rate

HOUR = 3600.0
tenures = st.lists(st.builds(Tenure, st.floats(0, 1e7), st.booleans(), st.booleans()), max_size=50)


def test_a_pool_without_a_record_is_taken_for_one_that_reclaims_every_two_hours() -> None:
    assert unnoticed_rate([]) == pytest.approx(1 / (2 * HOUR))


def test_the_record_outweighs_the_assumption_after_some_hours() -> None:
    calm = unnoticed_rate([Tenure(98 * HOUR, lost=False)])
    harsh = unnoticed_rate([Tenure(0.5 * HOUR, lost=True)] * 20)
    assert calm == pytest.approx(1 / (100 * HOUR))
    assert harsh == pytest.approx(21 / (12 * HOUR))


def test_a_loss_that_was_announced_in_time_for_a_save_is_not_counted() -> None:
    noticed = [Tenure(HOUR, lost=True, saved_at_end=True)] * 5
    assert unnoticed_rate(noticed) == pytest.approx(1 / (7 * HOUR))


@given(tenures)
def test_it_is_a_rate_whatever_the_record_says_and_every_further_loss_raises_it(record: list[Tenure]) -> None:
    rate = unnoticed_rate(record)
    assert 0 < rate < float("inf")
    assert unnoticed_rate([*record, Tenure(0.0, lost=True)]) > rate
