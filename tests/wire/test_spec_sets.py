"""`--set` changes a spec before it is judged, and the text that a run keeps says the same."""

import pytest

from whistlestop.domain.errors import SpecInvalid
from whistlestop.wire.spec import Secret
from whistlestop.wire.spec_file import apply_sets, parse_spec

TEXT = """\
name: x
phases:
  - name: train
    command: python train.py
    env: &shared {LR: 0.5, SEED: 1}
    grace: 2m
  - name: more
    command: |
      set -e
      python more.py
    env: *shared
"""


@pytest.mark.parametrize("path", ["phases.0.env.LR", "phases.train.env.LR"])
def test_a_phase_is_named_by_number_or_by_name(path: str) -> None:
    spec = parse_spec(TEXT, [f"{path}=0.1"])
    assert spec.phases[0].env["LR"] == "0.1"
    assert spec.phases[1].env["LR"] == "0.5", "the other user of the alias is not touched"


def test_values_may_be_flow_values() -> None:
    spec = parse_spec(
        TEXT,
        ["phases.train.command=[a, 'b c', 3]", "phases.more.env.T={secret: KEY}", "phases.0.checkpoint.keep=9"],
    )
    assert spec.phases[0].command == ("a", "b c", "3")
    assert spec.phases[1].env["T"] == Secret("KEY")
    assert spec.phases[0].checkpoint.keep == 9


def test_an_empty_value_is_the_empty_string_and_a_value_may_hold_anything() -> None:
    spec = parse_spec(TEXT, ["phases.0.env.A=", "phases.0.env.B=x=y: z # no comment"])
    assert spec.phases[0].env["A"] == ""
    assert spec.phases[0].env["B"] == "x=y: z # no comment"


def test_the_phase_of_a_short_spec_can_be_named_too() -> None:
    short = "name: x\ncommand: a\n"
    assert parse_spec(short, ["phases.0.env.A=1", "phases.main.slots=2", "env.B=2"]) == parse_spec(
        "name: x\ncommand: a\nenv: {A: 1, B: 2}\nslots: 2\n"
    )


def test_a_set_can_supply_what_the_file_lacks() -> None:
    assert parse_spec("command: a", ["name=given"]).name == "given"


@pytest.mark.parametrize(
    ("change", "path", "hint"),
    [
        ("phases.0.slot=2", "phases.0.slot", 'did you mean "slots"?'),
        ("phases.trian.slots=2", "phases.trian.slots", 'did you mean "train"?'),
        ("phases.7.slots=2", "phases.7.slots", None),
        ("phases.0.grace.flag=1m", "phases.0.grace.flag", None),
        ("nonsense", "nonsense", "write --set phases.0.env.LR=0.1"),
        ("=3", "", "write --set phases.0.env.LR=0.1"),
        ("a..b=3", "a..b", "write --set phases.0.env.LR=0.1"),
        ("phases.0.env.A=[1", "phases.0.env.A", None),
        ("phases.0.env.A=a\0b", "phases.0.env.A", None),
        ("budgt=3", "budgt", 'did you mean "budget"?'),
    ],
)
def test_a_path_that_is_not_there_is_a_mistake_without_a_line(change: str, path: str, hint: str | None) -> None:
    with pytest.raises(SpecInvalid) as caught:
        parse_spec(TEXT, [change])
    assert [(p.path, p.line, p.hint) for p in caught.value.problems] == [(path, None, hint)]


def test_the_resolved_text_means_the_same_and_is_kept_as_it_is_without_changes() -> None:
    sets = ["phases.train.env.LR=1e-4", "phases.0.env.YES=no", "name=other", "phases.more.slots=3"]
    assert parse_spec(apply_sets(TEXT, sets)) == parse_spec(TEXT, sets)
    assert "python more.py" in apply_sets(TEXT, sets).splitlines()[-8:][0] or "set -e" in apply_sets(TEXT, sets)
    assert apply_sets(TEXT, []) == TEXT
