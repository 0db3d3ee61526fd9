import random

import numpy
import pytest

from whistlestop.domain.errors import BadRequest
from whistlestop.sdk.parts import pack, part_of, unpack


class Model:
    def __init__(self) -> None:
        self.weight = 1.0

    def state_dict(self) -> dict[str, float]:
        return {"weight": self.weight}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.weight = state["weight"]


def test_state_dicts_mappings_and_lists_come_back_in_place() -> None:
    model, mapping, items = Model(), {"a": [1]}, [1, 2]
    parts = {name: part_of(name, thing) for name, thing in {"m": model, "d": mapping, "l": items}.items()}
    stored = {name: pack(part.save()) for name, part in parts.items()}
    model.weight = 5.0
    mapping["b"] = [2]
    items.clear()
    for name, part in parts.items():
        part.load(unpack(stored[name]))
    assert (model.weight, mapping, items) == (1.0, {"a": [1]}, [1, 2])


@pytest.mark.parametrize("make", [lambda: random.Random(5), lambda: numpy.random.default_rng(5)])
def test_random_generators_go_on_with_the_same_numbers(make: object) -> None:
    generator = make()  # type: ignore[operator]
    part = part_of("rng", generator)
    stored = pack(part.save())
    expected = [generator.random() for _ in range(5)]
    part.load(unpack(stored))
    assert [generator.random() for _ in range(5)] == expected


def test_what_has_no_state_is_refused_with_advice() -> None:
    with pytest.raises(BadRequest) as caught:
        part_of("x", 5)
    assert "run.saves" in str(caught.value.hint)
