"""A change to a spec leaves the rest of its text alone, and means what the tree says it means."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whistlestop.domain.errors import SpecInvalid
from whistlestop.server.services import forms
from whistlestop.wire.mistakes import Mistakes
from whistlestop.wire.spec_edit import edit
from whistlestop.wire.spec_file import apply_sets
from whistlestop.wire.yaml_text import plain, read

TEXT = """\
# what it is
name: tabular   # the name
project: demo

phases:
    # the first
    - name: tabular
      command: python train.py --lr $LR   # quick
      env: {LR: 1e-3, HUB: {secret: hub}}

    - name: text
      command: |
        set -e
        python text.py
      env:
        A: 1   # one
        B: two

      needs: []            # beside it
    # the last
    - name: report
      kind: task
      command: [python, report.py]
"""


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        ("name=new name", "name: tabular   # the name", "name: new name   # the name"),
        ("priority=5", "project: demo\n", "project: demo\npriority: 5\n"),
        ("phases.0.env.LR=0.1", "{LR: 1e-3,", "{LR: 0.1,"),
        ("phases.tabular.env.NEW=a: b", "{secret: hub}}", '{secret: hub}, NEW: "a: b"}'),
        ("phases.1.env.C=3", "        B: two\n", "        B: two\n        C: 3\n"),
        ("phases.1.env.A=null", "        A: 1   # one\n", ""),
        ("phases.1.command=one line", "|\n        set -e\n        python text.py\n", "one line\n"),
        ("phases.2.command=[python, x.py]", "[python, report.py]", "[python, x.py]"),
        ("phases.2.env.Q=1", "report.py]\n", "report.py]\n      env:\n        Q: 1\n"),
        ("phases.0.slots=2", "{secret: hub}}\n", "{secret: hub}}\n      slots: 2\n"),
        ("project=null", "project: demo\n", ""),
        ("budget=null", "", ""),
    ],
)
def test_a_change_touches_its_own_place_alone(change: str, before: str, after: str) -> None:
    assert edit(TEXT, [change]) == TEXT.replace(before, after, 1)


def test_a_script_of_several_lines_is_written_as_a_block() -> None:
    assert "command: |-\n        echo a\n        echo b   # quick" not in edit(
        TEXT, ["phases.0.command=echo a\necho b"]
    )
    assert "command: |-\n        echo a\n        echo b\n" in edit(TEXT, ["phases.1.command=echo a\necho b"])


def test_several_changes_are_applied_in_order() -> None:
    edited = edit("name: a\ncommand:\n", ["command=python x", "phases.0.env.LR=1", "phases.0.env.LR=2"])
    assert edited == "name: a\ncommand: python x\nenv:\n  LR: 2\n"


def test_what_can_not_be_cut_in_is_written_anew() -> None:
    aliased = "name: a\nphases:\n  - {name: x, command: y, env: &e {A: 1}}\n  - {name: z, command: y, env: *e}\n"
    assert _values(edit(aliased, ["phases.1.env.A=2"])) == _values(apply_sets(aliased, ["phases.1.env.A=2"]))
    with pytest.raises(SpecInvalid):
        edit(TEXT, ["phases.9.slots=1"])


PATHS = st.sampled_from(
    ["name", "priority", "phases.0.env.LR", "phases.0.env.X", "phases.1.env.A", "phases.1.command", "phases.2.command",
     "phases.report.retries", "phases.1.needs", "phases.0.checkpoint.keep", "deadline"]
)  # fmt: skip
WORDS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=30),
    st.sampled_from(
        ["null", "", "1e-3", "[a, b]", "{a: b}", '"quoted: #"', "# no comment", "a # b", "- x", "two\nlines", "|"]
    ),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(PATHS, WORDS), max_size=4))
def test_the_text_means_what_the_tree_means(pairs: list[tuple[str, str]]) -> None:
    sets = [f"{path}={word}" for path, word in pairs]
    try:
        wanted = apply_sets(TEXT, sets)
    except SpecInvalid:
        with pytest.raises(SpecInvalid):
            edit(TEXT, sets)
        return
    assert _without_nulls(_values(edit(TEXT, sets))) == _without_nulls(_values(wanted))


def _values(text: str) -> object:
    mistakes = Mistakes()
    node = read(text, mistakes)
    assert node is not None, mistakes.problems
    return plain(node)


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


# --- the form -----------------------------------------------------------------------------------------------------


def test_every_value_has_its_field_with_its_line_and_its_mistake() -> None:
    found = forms.check(TEXT.replace("name: report", "name: report\n      slots: many"), [])
    fields = {field.path: field for field in found.fields}
    assert not found.ok
    assert (fields["name"].value, fields["name"].line) == ("tabular", 2)
    assert fields["phases.0.env.LR"].value == "1e-3"
    assert fields["phases.0.env.HUB"].fixed, "a secret is changed in the text"
    assert fields["phases.2.kind"].choices == ["train", "task"]
    assert "must be a whole number" in (fields["phases.2.slots"].problem or "")
    assert fields["phases.2.slots"].line == found.problems[0].line
    assert "phases.2.stop_when" not in fields, "a task has none"


def test_a_change_of_the_form_comes_back_in_the_text_with_lines_of_that_text() -> None:
    found = forms.check("name: a # x\ncommand: y\n", ["slots=0", "project=p"])
    assert found.spec == "name: a # x\ncommand: y\nslots: 0\nproject: p\n"
    assert [(problem.path, problem.line) for problem in found.problems] == [("slots", 3)]


def test_a_text_that_can_not_be_read_has_no_fields_and_stays_as_it_is() -> None:
    found = forms.check("name: [a\n", ["project=p"])
    assert (found.ok, found.fields, found.spec) == (False, [], "name: [a\n")
    assert found.problems[0].line is not None


def test_a_spec_without_anything_to_run_is_told_at_the_command() -> None:
    fields = {field.path: field for field in forms.check("name: a\n", []).fields}
    assert fields["command"].problem == "is missing"


def test_a_form_shows_the_capacity_that_each_phase_has() -> None:
    text = (
        "name: x\ncapacity: {market: spot}\nphases:\n  - {name: a, command: b, work: 2h, capacity: {pools: [p, q/]}}\n"
    )
    fields = {field.path: field for field in forms.check(text, []).fields}
    assert (fields["capacity"].value, fields["capacity"].fixed) == ("{market: spot}", True)
    market, pools = fields["phases.0.capacity.market"], fields["phases.0.capacity.pools"]
    assert (market.value, market.default) == ("", "spot")
    assert pools.value == "[p, q/]"
    assert pools.problem == '"q/" is not a name for a pool'
    assert fields["phases.0.work"].value == "2h"
    changed = forms.check(text, ["phases.0.capacity.pools=p", "phases.0.capacity.market=any"])
    assert changed.ok
    assert "capacity: {pools: p, market: any}" in (changed.spec or "")
