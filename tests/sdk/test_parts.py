import pickle
import random

import numpy
import pytest
import torch

from whistlestop.domain.errors import BadRequest
from whistlestop.sdk.parts import Part, part_of


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
    stored = {name: pickle.dumps(part.save()) for name, part in parts.items()}
    model.weight = 5.0
    mapping["b"] = [2]
    items.clear()
    for name, part in parts.items():
        part.load(pickle.loads(stored[name]))
    assert (model.weight, mapping, items) == (1.0, {"a": [1]}, [1, 2])


@pytest.mark.parametrize("make", [lambda: random.Random(5), lambda: numpy.random.default_rng(5)])
def test_random_generators_go_on_with_the_same_numbers(make: object) -> None:
    generator = make()  # type: ignore[operator]
    part = part_of("rng", generator)
    stored = pickle.dumps(part.save())
    expected = [generator.random() for _ in range(5)]
    part.load(pickle.loads(stored))
    assert [generator.random() for _ in range(5)] == expected


def test_what_has_no_state_is_refused_with_advice() -> None:
    with pytest.raises(BadRequest) as caught:
        part_of("x", 5)
    assert "run.saves" in str(caught.value.hint)


def test_only_what_copies_its_state_is_given_maps_of_the_checkpoint() -> None:
    model = torch.nn.Linear(2, 2)
    copying = [model, torch.optim.AdamW(model.parameters()), torch.ones(3), numpy.ones(3)]
    assert [part_of("it", thing).copies for thing in copying] == [True] * 4
    keeping: list[object] = [Model(), {"a": 1}, [1], random.Random(5), torch.Generator()]
    assert [part_of("it", thing).copies for thing in keeping] == [False] * 5
    assert not Part(dict, print).copies


def test_an_optimizer_has_its_own_state_after_a_restore() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    rate = torch.tensor(0.5)
    optimizer = torch.optim.AdamW([weight], lr=rate, foreach=False)
    optimizer.step()
    given = optimizer.state_dict()
    kept = {key: value.clone() for key, value in given["state"][0].items()}
    other = torch.optim.AdamW([weight], lr=torch.tensor(0.1), foreach=False)
    part_of("optimizer", other).load(given)
    other.step()
    assert all(torch.equal(given["state"][0][key], value) for key, value in kept.items())
    assert other.state[weight]["step"] == 2
    assert other.param_groups[0]["lr"] == rate
