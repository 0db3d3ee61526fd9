"""Three cases made afresh on a real server, and judged: what was recorded is what such runs look like today."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from whistlestop.diagnosis.findings import Weight
from whistlestop.diagnosis.judge import judge
from whistlestop.testing.case_plans import HEALTHY, Plan, plans
from whistlestop.testing.record_cases import Recorder
from whistlestop.testing.server import ServerProcess

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def recorder(shared_server: ServerProcess, tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(shared_server, PROGRAMS, tmp_path)
    yield made
    made.close()


def plan(kind: str) -> Plan:
    return next(each for each in plans() if each.kind == kind)


@pytest.mark.parametrize("kind", ["bad_sample", "module_missing"])
def test_a_fresh_fault_is_named(recorder: Recorder, kind: str) -> None:
    case = recorder.record(plan(kind))
    found = judge(case.evidence)
    assert found
    assert found[0].cause == case.label


def test_a_fresh_healthy_run_is_left_in_peace(recorder: Recorder) -> None:
    case = recorder.record(plan("plain"))
    assert case.label == HEALTHY
    assert case.evidence.status == "completed"
    assert len(case.evidence.series[0].steps) == case.evidence.place.total
    assert [each.says for each in judge(case.evidence) if each.weight is not Weight.HINT] == []
