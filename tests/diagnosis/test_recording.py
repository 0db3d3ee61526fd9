"""Evidence goes into a file and comes back as it was; and can be cut to what it was earlier."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as some

from whistlestop.diagnosis.evidence import End, Evidence, HostRecord, Line, Odd, Place, Series, Told
from whistlestop.diagnosis.recording import cut, from_json, to_json

numbers = some.floats(allow_nan=False, allow_infinity=False)
times = some.floats(0, 2e9)
words = some.text(max_size=20)
steps = some.integers(0, 2**53)
json_values: Any = some.recursive(
    some.none() | some.booleans() | numbers | words,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)


@some.composite
def series(draw: Any) -> Series:
    points = draw(some.lists(some.tuples(steps, numbers, times), max_size=5))
    columns = tuple(zip(*points, strict=True)) if points else ((), (), ())
    odd = draw(some.none() | some.builds(Odd, steps, some.sampled_from(["nan", "inf", "-inf"]), times))
    kind = draw(some.sampled_from(["program", "system"]))
    return Series(draw(words), *columns, rank=draw(some.integers(0, 9)), kind=kind, odd=odd)


def several(of: Any) -> Any:
    return some.lists(of, max_size=3).map(tuple)


evidence = some.builds(
    Evidence,
    now=times,
    kind=some.sampled_from(["train", "task"]),
    status=words,
    place=some.builds(Place, words, steps, steps, steps, steps, times, times, times, some.none() | times),
    series=several(series()),
    ends=several(
        some.builds(
            End, steps, words, words, words, some.none() | steps, some.none() | words, some.none() | steps, times
        )
    ),
    lines=several(some.builds(Line, times, words, steps, words, steps)),
    told=several(some.builds(Told, times, words, words, some.dictionaries(words, json_values, max_size=3), steps)),
    hosts=several(some.builds(HostRecord, words, steps, steps, steps)),
    aims=some.dictionaries(words, some.sampled_from(["min", "max"]), max_size=3),
    attempts=steps,
    price=numbers,
    spent=numbers,
)


@given(evidence)
@settings(max_examples=60)
def test_what_is_written_is_read_back_exactly(seen: Evidence) -> None:
    assert from_json(json.loads(json.dumps(to_json(seen)))) == seen


@given(evidence, times)
@settings(max_examples=60)
def test_nothing_of_what_came_later_is_in_a_cut(seen: Evidence, at: float) -> None:
    """Points come in the order of their times, as they do from the store."""
    ordered = tuple(
        Series(each.name, each.steps, each.values, tuple(sorted(each.times)), each.rank, each.kind, each.odd)
        for each in seen.series
    )
    early = cut(Evidence(**{**vars(seen), "series": ordered}), at)
    moments = [
        *(moment for each in early.series for moment in each.times),
        *(each.odd.at for each in early.series if each.odd is not None),
        *(each.at for part in (early.ends, early.lines, early.told) for each in part),
    ]
    assert all(moment <= at for moment in moments)
    assert (early.now, early.status, early.place.ended_at) == (at, "running", None)


def test_a_cut_stands_where_the_last_point_before_it_was_made() -> None:
    curve = Series("loss", (0, 1, 2, 3), (4.0, 3.0, 2.0, 1.0), (10.0, 11.0, 12.0, 13.0), odd=Odd(3, "nan", 13.0))
    seen = Evidence(20.0, status="completed", place=Place(step=4, total=4, started_at=8.0, ended_at=14.0), spent=6.0)
    early = cut(Evidence(**{**vars(seen), "series": (curve,)}), 11.0)
    assert early.series[0].values == (4.0, 3.0)
    assert early.series[0].odd is None
    assert (early.place.step, early.place.progress_at, early.place.total) == (2, 11.0, 4)
    assert early.spent == 3.0
