"""How often the diagnosis is right, on what was recorded of real trainings: `whistlestop.testing.score_cases` prints
the same for people."""

import socket
import sys
from collections import Counter
from pathlib import Path

import pytest
import zstandard

from whistlestop.diagnosis.findings import Cause
from whistlestop.testing import case_library
from whistlestop.testing.case_library import Case
from whistlestop.testing.case_plans import HEALTHY, SPLITS
from whistlestop.testing.score_cases import Verdict, mistakes, share_alarmed, share_right, table, verdicts

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return list(case_library.load(RECORDED))


@pytest.fixture(scope="module")
def found(cases: list[Case]) -> list[Verdict]:
    return verdicts(cases)


def test_there_are_enough_cases_of_enough_kinds(cases: list[Case]) -> None:
    faulty = [case for case in cases if case.label != HEALTHY]
    real = [case for case in faulty if not case.replayed]
    assert len(real) >= 240
    assert len({case.label for case in real}) >= 24
    assert len(cases) - len(faulty) >= 240
    assert len({case.kind for case in cases if case.label == HEALTHY}) >= 17
    assert {case.label for case in faulty} <= set(Cause)
    assert len({case.name for case in cases}) == len(cases)


def test_every_kind_is_in_both_halves_and_about_as_often(cases: list[Case]) -> None:
    tuning, held_out = (Counter(case.label for case in cases if case.split == split) for split in SPLITS)
    assert set(tuning) == set(held_out)
    assert all(abs(count - held_out[label]) <= 0.2 * count + 1 for label, count in tuning.items())


@pytest.mark.parametrize("split", SPLITS)
def test_the_first_cause_is_right_in_19_of_20_failures(found: list[Verdict], split: str) -> None:
    said = f"{table(found)}\n" + "\n".join(mistakes(found))
    print(said)
    assert share_right(found, split) >= 0.95, said
    assert share_right(found, split, replayed=False) >= 0.95, said


@pytest.mark.parametrize("split", SPLITS)
def test_at_most_one_in_a_hundred_healthy_runs_is_alarmed_about(found: list[Verdict], split: str) -> None:
    assert share_alarmed(found, split) <= 0.01, "\n".join(mistakes(found))


def test_nothing_of_the_machine_they_were_recorded_on_is_in_them() -> None:
    for path in RECORDED.iterdir():
        text = zstandard.decompress(path.read_bytes()).decode()
        for name in (socket.gethostname(), sys.prefix, "/tmp/", "whistle-cases"):
            assert name not in text, f"{name} in {path.name}"


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in RECORDED.iterdir()) < 6_000_000


@pytest.mark.parametrize("split", SPLITS)
def test_paces_are_whole_trainings(split: str) -> None:
    paces = list(case_library.paces(RECORDED, split))
    assert len(paces) >= 75
    assert len({each["kind"] for each in paces}) >= 7
    for each in paces:
        assert each["steps"][-1] == each["total"], each["name"]
        assert sorted(each["steps"]) == each["steps"]
        assert sorted(each["times"]) == each["times"], each["name"]
