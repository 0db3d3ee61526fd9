"""Budgets by the real accountants: the limit is the last step within them, and a real private training agrees."""

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from whistlestop.domain.errors import BadRequest
from whistlestop.domain.reasons import StopReason
from whistlestop.integrations.opacus import any_epsilon_of, dp_epsilon, epsilon_of
from whistlestop.sdk.privacy import limit_steps
from whistlestop.sdk.rules import Moment, Rules, privacy_budget
from whistlestop.testing.missing import missing

NOISE, RATE, DELTA = 1.0, 0.1, 1e-5


def need(package: str) -> None:
    if find_spec(package) is None:
        missing(f"the package {package}")


PLD = pytest.param("dp_accounting pld", marks=pytest.mark.long)


@pytest.fixture(params=["opacus rdp", "opacus prv", "dp_accounting rdp", PLD])
def spent(request: pytest.FixtureRequest) -> Callable[[int], float]:
    package, accountant = request.param.split()
    need(package)
    make = epsilon_of if package == "opacus" else dp_epsilon
    return make(NOISE, RATE, DELTA, accountant=accountant)


def test_the_limit_is_that_of_a_linear_search(spent: Callable[[int], float]) -> None:
    known: dict[int, float] = {}

    def once(steps: int) -> float:
        if steps not in known:
            known[steps] = spent(steps)
        return known[steps]

    budget = once(6) + 1e-6
    limit = limit_steps(once, budget)
    slowly = next(steps for steps in range(1000) if once(steps + 1) > budget)
    assert limit == slowly == 6
    assert once(limit) <= budget < once(limit + 1)
    assert [once(steps) for steps in range(1, 8)] == sorted(once(steps) for steps in range(1, 8))


def test_a_larger_budget_has_its_limit_at_the_edge() -> None:
    need("opacus")
    spent = epsilon_of(1.1, 0.01, DELTA)
    limit = limit_steps(spent, 4.0)
    assert limit > 1000
    assert spent(limit) <= 4.0 < spent(limit + 1)


def test_both_packages_count_alike() -> None:
    need("opacus")
    need("dp_accounting")
    assert epsilon_of(NOISE, RATE, DELTA)(50) == pytest.approx(dp_epsilon(NOISE, RATE, DELTA)(50), rel=0.02)


def test_a_real_private_training_stops_at_the_last_step_within_its_budget() -> None:
    need("opacus")
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the frameworks' own
        from opacus import PrivacyEngine

        torch.manual_seed(0)
        data = torch.utils.data.TensorDataset(torch.randn(100, 3), torch.randn(100, 1))
        model: Any = torch.nn.Linear(3, 1)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        engine = PrivacyEngine(accountant="rdp")
        model, optimizer, loader = engine.make_private(
            module=model,
            optimizer=optimizer,
            data_loader=torch.utils.data.DataLoader(data, batch_size=10),
            noise_multiplier=NOISE,
            max_grad_norm=1.0,
        )
        rate = 1 / len(loader)
        spent = epsilon_of(NOISE, rate, DELTA)
        budget = spent(25) + 1e-6
        rules = Rules.make([privacy_budget(budget, spent=spent)], "[]", warn=pytest.fail)
        rules.check()
        assert rules.privacy is not None

        def one_step(batch: Any) -> None:
            optimizer.zero_grad()
            inputs, targets = batch
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()

        step, batches = 0, (batch for _ in range(10) for batch in loader)
        while not (fired := rules.look(Moment(step, 0.0, {}, {}))):
            one_step(next(batches))
            step += 1
        assert fired[0].reason is StopReason.PRIVACY_BUDGET
        assert step == rules.privacy.limit_steps == 25
        assert engine.get_epsilon(DELTA) == pytest.approx(spent(25), rel=1e-9)
        assert engine.get_epsilon(DELTA) <= budget
        one_step(next(batches))
        assert engine.get_epsilon(DELTA) > budget


SPEC = [{"privacy_budget": {"epsilon": 4, "delta": DELTA, "noise_multiplier": 1.1, "sample_rate": 0.01}}]


def test_a_budget_in_the_spec_is_computed_by_the_package_that_is_there() -> None:
    need("opacus")
    rules = Rules.make([], json.dumps(SPEC), warn=pytest.fail)
    rules.check()
    assert rules.privacy is not None
    assert rules.privacy.limit_steps == limit_steps(epsilon_of(1.1, 0.01, DELTA), 4.0)


WITHOUT = """
import json, sys
for package in sys.argv[2:]:
    sys.modules[package] = None  # as if it were not installed
from whistlestop.sdk.rules import Moment, Rules
from whistlestop.domain.errors import BadRequest
told = []
rules = Rules.make([], sys.argv[1], warn=told.append)
try:
    rules.check()
    error = None
except BadRequest as found:
    error = [found.text, found.hint]
fired = [found.text for found in rules.look(Moment(0, 0.0, {}, {}))]
print(json.dumps([rules.privacy.limit_steps, error, told, fired]))
"""


def without(*packages: str) -> Any:
    program = [sys.executable, "-W", "ignore", "-c", WITHOUT, json.dumps(SPEC), *packages]
    return json.loads(subprocess.run(program, check=True, capture_output=True, text=True, timeout=120).stdout)


@pytest.mark.long
def test_without_opacus_the_other_package_computes_it() -> None:
    need("dp_accounting")
    limit, error, told, fired = without("opacus")
    assert (error, told, fired) == (None, [], [])
    assert limit == limit_steps(dp_epsilon(1.1, 0.01, DELTA), 4.0)


def test_without_any_package_no_step_is_run() -> None:
    limit, (text, hint), told, fired = without("opacus", "dp_accounting")
    assert limit == 0
    assert 'no package with the "rdp" accountant (opacus or dp-accounting)' in text
    assert hint == "pip install opacus"
    assert len(told) == 1
    assert text in told[0]
    assert fired == [text]


def test_an_accountant_that_a_package_does_not_have_is_refused() -> None:
    with pytest.raises(BadRequest, match='Opacus has no "pld"'):
        epsilon_of(NOISE, RATE, DELTA, accountant="pld")
    with pytest.raises(BadRequest, match='dp-accounting has no "prv"'):
        dp_epsilon(NOISE, RATE, DELTA, accountant="prv")
    with pytest.raises(BadRequest, match="has no package"):
        any_epsilon_of(NOISE, RATE, DELTA, accountant="gdp")
