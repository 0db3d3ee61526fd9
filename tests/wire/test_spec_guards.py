"""`guards` of a whistle.yaml."""

from datetime import timedelta

import pytest

from whistlestop.domain.errors import SpecInvalid
from whistlestop.wire.spec import Do, GuardSpec
from whistlestop.wire.spec_file import parse_spec

ONE = "name: a\ncommand: python train.py\n"


def guards(text: str, phase: str = "main") -> tuple[GuardSpec, ...]:
    return parse_spec(text).phase(phase).guards


def test_a_run_has_no_guards_unless_it_says_so() -> None:
    assert guards(ONE) == ()


def test_every_word_of_a_guard_is_understood() -> None:
    text = """guards:
- {when: oom, do: fail}
- {when: diverging, do: roll_back, times: 2, skip: 200 steps, for: 5m, confidence: 0.8, dry: true}
- {when: non_finite, do: roll_back, skip: none}
- {when: stuck, do: restart}
"""
    assert guards(ONE + text) == (
        GuardSpec(("host_memory", "device_memory"), Do.FAIL),
        GuardSpec(("diverging",), Do.ROLL_BACK, timedelta(minutes=5), 0.8, 2, 200, True),
        GuardSpec(("non_finite",), Do.ROLL_BACK, skip=0),
        GuardSpec(("stuck",), Do.RESTART),
    )


def test_those_at_the_top_hold_for_every_train_phase_that_has_none_of_its_own() -> None:
    text = """name: a
guards: [{when: stuck, do: restart}]
guards_dry: true
phases:
- {name: one, command: a}
- {name: two, command: a, guards: [{when: oom, do: fail}], guards_dry: false}
- {name: three, command: a, guards: []}
- {name: four, command: a, kind: task}
"""
    assert guards(text, "one") == (GuardSpec(("stuck",), Do.RESTART, dry=True),)
    assert guards(text, "two") == (GuardSpec(("host_memory", "device_memory"), Do.FAIL),)
    assert guards(text, "three") == guards(text, "four") == ()


def test_one_word_on_the_command_line_makes_all_of_them_dry() -> None:
    spec = parse_spec(ONE + "guards: [{when: stuck, do: restart}]\n", ["guards_dry=true"])
    assert [guard.dry for guard in spec.phases[0].guards] == [True]


@pytest.mark.parametrize(
    ("guard", "where", "text", "hint"),
    [
        ("{when: diverges, do: kill}", "guards.0.when", '"diverges" is nothing that can be found', 'mean "diverging"?'),
        ("{when: stuck, do: restrat}", "guards.0.do", '"restrat" is nothing that a guard does', 'mean "restart"?'),
        ("{do: kill}", "guards.0.when", "is missing", "when: non_finite"),
        ("{when: stuck}", "guards.0.do", "is missing", "do: notify"),
        ("{when: stuck, do: kill, times: 3}", "guards.0.times", "only restart and roll_back", ""),
        ("{when: stuck, do: restart, skip: 3 steps}", "guards.0.skip", "only roll_back", ""),
        ("{when: stuck, do: restart, times: 0}", "guards.0.times", "from 1 to 100", ""),
        ("{when: stuck, do: restart, confidence: 2}", "guards.0.confidence", "from 0.5 to 1", ""),
        ("{when: non_finite, do: roll_back, skip: all}", "guards.0.skip", "not a number of steps", "200 steps"),
        ("{when: stuck, do: restart, fro: 5m}", "guards.0.fro", "unknown key", 'mean "for"?'),
        ("kill", "guards.0", "must be a mapping", "when"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_the_nearest_word(guard: str, where: str, text: str, hint: str) -> None:
    with pytest.raises(SpecInvalid) as raised:
        parse_spec(f"{ONE}guards:\n- {guard}\n")
    (problem,) = raised.value.problems
    assert (problem.path, problem.line) == (where, 4)
    assert text in problem.text
    assert hint in (problem.hint or "")


def test_a_task_has_no_guards_of_its_own() -> None:
    with pytest.raises(SpecInvalid, match="only train phases"):
        parse_spec("name: a\ncommand: b\nkind: task\nguards: []\n")
