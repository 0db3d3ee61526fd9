"""A whistle.yaml is judged as a whole: every mistake at once, with its line and the nearest valid word."""

from datetime import timedelta

import pytest

from whistlestop.domain.errors import Problem, SpecInvalid
from whistlestop.domain.stops import Ladder
from whistlestop.wire.spec import CapacitySpec, CheckpointSpec, PhaseKind, PhaseSpec, Secret, Spec
from whistlestop.wire.spec_file import parse_spec, spec_to_text

FULL = """\
name: tabular text
project: demo
priority: 5
budget: 12.5
deadline: 2d
phases:
  - name: tabular
    command: python train.py --lr $LR
    env:
      LR: 1e-3
      SEED: 7
      DEBUG: true
      TOKEN: {secret: HUB_TOKEN}
    slots: 2
    time_limit: 1d12h
    retries: 3
    checkpoint: {every: [500 steps, 10 minutes], keep: 2}
    stop_when:
      - plateau: {metric: loss, patience: 5}
      - loss < 0.1
    grace: 2m
  - name: text
    command: [python, text.py, --epochs, 3]
    needs: []
    workdir: code/./text
    checkpoint: {every: auto}
    grace: {flag: 1m, interrupt: 0, terminate: 5s, attach: 10s, kill_save: 0}
  - name: report
    kind: task
    command: make report
    needs: [tabular, text]
"""


def mistakes(text: str, *sets: str) -> list[Problem]:
    with pytest.raises(SpecInvalid) as caught:
        parse_spec(text, sets)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("keep", "policy"),
    [
        ("4", {"last": 4, "best": 0, "by": "", "mode": "min", "every": 0}),
        (
            "{last: 3, best: 2, by: val/loss, mode: min, every: 10000}",
            {"last": 3, "best": 2, "by": "val/loss", "mode": "min", "every": 10000},
        ),
        ("{by: accuracy, mode: max}", {"last": 3, "best": 1, "by": "accuracy", "mode": "max", "every": 0}),
        ("{every: 500}", {"last": 3, "best": 0, "by": "", "mode": "min", "every": 500}),
        ("{}", {"last": 3, "best": 0, "by": "", "mode": "min", "every": 0}),
        ("", {"last": 3, "best": 0, "by": "", "mode": "min", "every": 0}),
    ],
)
def test_keep_says_what_stays(keep: str, policy: dict[str, object]) -> None:
    spec = parse_spec(f"name: x\ncommand: a\ncheckpoint: {{keep: {keep}}}")
    assert spec.phases[0].checkpoint.policy() == policy


def test_a_full_spec_is_read_as_it_is_meant() -> None:
    assert parse_spec(FULL) == Spec(
        name="tabular text",
        project="demo",
        priority=5,
        budget=12.5,
        deadline=timedelta(days=2),
        phases=(
            PhaseSpec(
                name="tabular",
                command=("/bin/bash", "-c", "python train.py --lr $LR"),
                env={"LR": "1e-3", "SEED": "7", "DEBUG": "true", "TOKEN": Secret("HUB_TOKEN")},
                slots=2,
                time_limit=timedelta(hours=36),
                retries=3,
                checkpoint=CheckpointSpec(("500 steps", "10 minutes"), 2),
                stop_when=({"plateau": {"metric": "loss", "patience": 5}}, {"rule": "loss < 0.1"}),
                grace=Ladder(flag=timedelta(minutes=2)),
            ),
            PhaseSpec(
                name="text",
                command=("python", "text.py", "--epochs", "3"),
                workdir="code/text",
                checkpoint=CheckpointSpec(("auto",)),
                grace=Ladder(
                    flag=timedelta(minutes=1),
                    interrupt=timedelta(0),
                    terminate=timedelta(seconds=5),
                    attach=timedelta(seconds=10),
                    kill_save=timedelta(0),
                ),
            ),
            PhaseSpec(
                name="report",
                kind=PhaseKind.TASK,
                command=("/bin/bash", "-c", "make report"),
                needs=("tabular", "text"),
            ),
        ),
    )


def test_a_command_at_the_top_is_a_run_of_one_phase_called_main() -> None:
    spec = parse_spec("name: one\ncommand: python train.py\nslots: 2\nenv: {LR: 0.1}\n")
    assert spec.phases == (
        PhaseSpec(name="main", command=("/bin/bash", "-c", "python train.py"), slots=2, env={"LR": "0.1"}),
    )


def test_a_phase_needs_the_one_above_unless_it_says_otherwise() -> None:
    spec = parse_spec(
        "name: x\nphases:\n- {name: a, command: a}\n- {name: b, command: b}\n- {name: c, command: c, needs: []}\n"
    )
    assert [phase.needs for phase in spec.phases] == [(), ("a",), ()]


def test_every_mistake_is_reported_at_once_with_its_line_and_the_nearest_word() -> None:
    found = mistakes(
        """\
name: x
phases:
  - name: train
    slot: 2
    command: python train.py
    time_limit: 5 parsecs
  - name: report
    kind: tsk
    command: x
    needs: [trian]
    workdir: ../../etc
    checkpoints:
      every: 5
"""
    )
    assert [(problem.line, problem.path, problem.hint) for problem in found] == [
        (4, "phases.0.slot", 'did you mean "slots"?'),
        (6, "phases.0.time_limit", None),
        (8, "phases.1.kind", 'did you mean "task"?'),
        (10, "phases.1.needs.0", 'did you mean "train"?'),
        (11, "phases.1.workdir", None),
        (12, "phases.1.checkpoints", 'did you mean "checkpoint"?'),
    ]


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("command: x", "name", "is missing"),
        ("name: x", "phases", "is missing"),
        ("name: x\nphases: []", "phases", "must be a list"),
        ("name: x\nphases: 3", "phases", "must be a list"),
        ("name: x\nphases: [3]", "phases.0", "must be a mapping"),
        ("name: x\ncommand: a\nphases: [{name: a, command: b}]", "command", "belongs to a phase"),
        ("name: x\nphases: [{command: b}]", "phases.0.name", "is missing"),
        ("name: x\nphases: [{name: a}]", "phases.0.command", "is missing"),
        ("name: x\nphases: [{name: 12, command: b}]", "phases.0.name", "not a name for a phase"),
        ("name: x\nphases: [{name: a/b, command: b}]", "phases.0.name", "not a name for a phase"),
        ("name: ../x\ncommand: b", "name", "is not a name"),
        ("name: x\ncommand: ''", "command", "is empty"),
        ("name: x\ncommand:", "command", "is empty"),
        ("name: x\ncommand: []", "command", "list of words"),
        ("name: x\ncommand: {a: b}", "command", "list of words"),
        ("name: x\ncommand: a\nenv: [a]", "env", "must be a mapping"),
        ("name: x\ncommand: a\nenv: {1A: b}", "env.1A", "environment variable"),
        ("name: x\ncommand: a\nenv: {A: [b]}", "env.A", "not a list"),
        ("name: x\ncommand: a\nenv: {A: }", "env.A", "has no value"),
        ("name: x\ncommand: a\nenv: {A: {secrt: B}}", "env.A.secrt", "unknown key"),
        ("name: x\ncommand: a\nslots: 0", "slots", "whole number"),
        ("name: x\ncommand: a\nslots: true", "slots", "whole number"),
        ("name: x\ncommand: a\nslots: 1.5", "slots", "whole number"),
        ("name: x\ncommand: a\nslots: 99999999999999999999999999", "slots", "whole number"),
        ("name: x\ncommand: a\nbudget: .nan", "budget", "above zero"),
        ("name: x\ncommand: a\nbudget: .inf", "budget", "above zero"),
        ("name: x\ncommand: a\nbudget: 1e999", "budget", "above zero"),
        ("name: x\ncommand: a\ndeadline: 0", "deadline", "longer than zero"),
        ("name: x\ncommand: a\nworkdir: /etc", "workdir", "absolute"),
        ("name: x\ncommand: a\nworkdir: ~/x", "workdir", "absolute"),
        ("name: x\ncommand: a\nworkdir: a/../../b", "workdir", "leaves the bundle"),
        ("name: x\ncommand: a\ncheckpoint: {every: 5 parsecs}", "checkpoint.every", "unit"),
        ("name: x\ncommand: a\ncheckpoint: {every: [1 step, 0 steps]}", "checkpoint.every.1", "at least 1"),
        ("name: x\ncommand: a\ncheckpoint: {every: soon}", "checkpoint.every", "not a cadence"),
        ("name: x\ncommand: a\ncheckpoint: {keep: 0}", "checkpoint.keep", "whole number"),
        ("name: x\ncommand: a\ncheckpoint: {keep: all}", "checkpoint.keep", "or a mapping"),
        ("name: x\ncommand: a\ncheckpoint: {keep: [3]}", "checkpoint.keep", "or a mapping"),
        ("name: x\ncommand: a\ncheckpoint: {keep: {last: 0}}", "checkpoint.keep.last", "whole number"),
        ("name: x\ncommand: a\ncheckpoint: {keep: {best: 2}}", "checkpoint.keep.best", "without `by`"),
        ("name: x\ncommand: a\ncheckpoint: {keep: {mode: max}}", "checkpoint.keep.mode", "without `by`"),
        ("name: x\ncommand: a\ncheckpoint: {keep: {best: 0, by: a}}", "checkpoint.keep.best", "whole number"),
        ("name: x\ncommand: a\ncheckpoint: {keep: {by: [a]}}", "checkpoint.keep.by", "single value"),
        ("name: x\ncommand: a\ncheckpoint: {keep: {by: ' '}}", "checkpoint.keep.by", "name of a metric"),
        ("name: x\ncommand: a\ncheckpoint: {keep: {by: a, mode: mean}}", "checkpoint.keep.mode", "min or the max"),
        ("name: x\ncommand: a\ncheckpoint: {keep: {every: 5 minutes}}", "checkpoint.keep.every", "number of steps"),
        ("name: x\ncommand: a\ncheckpoint: {keep: {lats: 3}}", "checkpoint.keep.lats", "unknown key"),
        ("name: x\ncommand: a\nkind: task\ncheckpoint: {keep: 2}", "checkpoint", "only train phases"),
        ("name: x\ncommand: a\nstop_when: plateau", "stop_when", "list of rules"),
        ("name: x\ncommand: a\nstop_when: [{plateau: .nan}]", "stop_when.0", "not finite"),
        ("name: x\ncommand: a\nstop_when: [{platou: {metric: a}}]", "stop_when.0.platou", "not a stop rule"),
        ("name: x\ncommand: a\nstop_when: [loss]", "stop_when.0", '"loss" is not a stop rule'),
        ("name: x\ncommand: a\nstop_when: [7]", "stop_when.0", "must be a rule"),
        ("name: x\ncommand: a\nstop_when: [{plateau: {patience: 3}}]", "stop_when.0.plateau", "`metric` is missing"),
        ("name: x\ncommand: a\nstop_when: [{max_time: soon}]", "stop_when.0.max_time", "length of time"),
        ("name: x\ncommand: a\ngrace: soon", "grace", "length of time"),
        ("name: x\ncommand: a\ngrace: {flg: 1m}", "grace.flg", "unknown key"),
        ("name: x\ncommand: a\nwork: 0", "work", "longer than zero"),
        ("name: x\ncommand: a\nwork: long", "work", "length of time"),
        ("name: x\nwork: 2h\nphases: [{name: a, command: b}]", "work", "belongs to a phase"),
        ("name: x\ncommand: a\ncapacity: spot", "capacity", "must be a mapping"),
        ("name: x\ncommand: a\ncapacity: {pools: {a: 1}}", "capacity.pools", "single value"),
        ("name: x\ncommand: a\ncapacity: {pools: [a, b/c]}", "capacity.pools.1", "not a name for a pool"),
        ("name: x\ncommand: a\ncapacity: {pools: [a, b, a]}", "capacity.pools.2", "given twice"),
        ("name: x\ncommand: a\ncapacity: {pools: [a, ]}\nslots: 0", "slots", "whole number"),
        ("name: x\ncommand: a\ncapacity: {pools: [~]}", "capacity.pools.0", "must be the name of a pool"),
        ("name: x\ncommand: a\ncapacity: {class: [a]}", "capacity.class", "single value"),
        ("name: x\ncommand: a\ncapacity: {region: <b>}", "capacity.region", "can't be used here"),
        ("name: x\ncommand: a\ncapacity: {market: cheap}", "capacity.market", "not a market"),
        ("name: x\ncommand: a\ncapacity: {changeover: 0}", "capacity.changeover", "longer than zero"),
        ("name: x\ncommand: a\ncapacity: {preemptible: maybe}", "capacity.preemptible", "true or false"),
        ("name: x\nphases: [{name: a, command: b, needs: [a]}]", "phases.0.needs.0", "can't need itself"),
        ("name: x\nphases: [{name: a, command: b, needs: c}]", "phases.0.needs", "no phase called"),
        ("name: x\nphases: [{name: a, command: b}, {name: a, command: b}]", "phases.1.name", "already"),
        (
            "name: x\nphases: [{name: a, command: b, needs: [b]}, {name: b, command: b}]",
            "phases",
            "in a circle: a → b → a",
        ),
    ],
)
def test_each_mistake_has_its_own_sentence(text: str, path: str, words: str) -> None:
    found = mistakes(text)
    assert [problem.path for problem in found if words in problem.text] == [path], found


def test_a_mistake_in_a_stop_rule_has_its_line_and_a_hint() -> None:
    found = mistakes(
        "name: x\ncommand: a\nstop_when:\n  - loss < 0.1\n  - any:\n      - max_steps: 5\n"
        "      - plateau:\n          metric: loss\n          patiense: 3\n  - max_step: 3\n"
    )
    assert [(problem.line, problem.path, problem.hint) for problem in found] == [
        (9, "stop_when.1.any.1.plateau.patiense", 'did you mean "patience"?'),
        (10, "stop_when.2.max_step", 'did you mean "max_steps"?'),
    ]


def test_capacity_of_a_file_holds_for_each_phase_that_does_not_say_otherwise_key_by_key() -> None:
    spec = parse_spec(
        """\
name: x
capacity: {pools: [spot-a, spot-b], class: a100, region: eu-west-1, market: spot, changeover: 2 min}
phases:
  - {name: train, command: a, work: 12 hours}
  - {name: test, command: b, capacity: {pools: od, market: on_demand, preemptible: false}}
  - {name: rest, command: c, capacity: {pools: []}}
"""
    )
    both = CapacitySpec(("spot-a", "spot-b"), "a100", "eu-west-1", "spot", timedelta(minutes=2))
    assert [phase.capacity for phase in spec.phases] == [
        both,
        CapacitySpec(("od",), "a100", "eu-west-1", "on_demand", timedelta(minutes=2), preemptible=False),
        CapacitySpec((), "a100", "eu-west-1", "spot", timedelta(minutes=2)),
    ]
    assert [phase.work for phase in spec.phases] == [timedelta(hours=12), None, None]
    assert parse_spec("name: x\ncommand: a\ncapacity: {market: spot}").phases[0].capacity == CapacitySpec(market="spot")


def test_a_mistake_in_capacity_has_its_line_and_the_nearest_word() -> None:
    found = mistakes(
        "name: x\ncapacity:\n  pols: [a]\nphases:\n  - name: a\n    command: b\n    capacity:\n"
        "      market: On-Demand\n      clas: v100\n    wrok: 3h\n"
    )
    assert [(problem.line, problem.path, problem.hint) for problem in found] == [
        (3, "capacity.pols", 'did you mean "pools"?'),
        (8, "phases.0.capacity.market", 'did you mean "on_demand"?'),
        (9, "phases.0.capacity.clas", 'did you mean "class"?'),
        (10, "phases.0.wrok", 'did you mean "work"?'),
    ]


def test_capacity_can_be_changed_from_the_command_line() -> None:
    text = "name: x\ncapacity: {market: spot}\nphases:\n  - {name: a, command: b}\n"
    spec = parse_spec(text, ["capacity.pools=[one, two]", "phases.a.capacity.market=any", "phases.a.work=3h"])
    assert spec.phases[0].capacity == CapacitySpec(("one", "two"))
    assert spec.phases[0].work == timedelta(hours=3)
    short = parse_spec("name: x\ncommand: a\n", ["phases.0.capacity.market=spot"])
    assert short.phases[0].capacity.market == "spot"


def test_plain_values_become_the_text_of_a_spec() -> None:
    text = spec_to_text({"name": "yes", "command": ["python", "-c", "print('a: b')\n"], "env": {"A": "1", "B": ""}})
    spec = parse_spec(text)
    assert spec.name == "yes"
    assert spec.phases[0].command == ("python", "-c", "print('a: b')\n")
    assert spec.phases[0].env == {"A": "1", "B": ""}


def test_alerts_are_names_or_names_with_what_they_are_told() -> None:
    spec = parse_spec("name: x\ncommand: a\nalerts: [me, {to: ops, on: [failed, stuck, failed]}, {to: you, on: done}]")
    assert [(each.to, each.on) for each in spec.alerts] == [
        ("me", ()),
        ("ops", ("failed", "stuck")),
        ("you", ("done",)),
    ]
    assert [each.to for each in parse_spec("name: x\ncommand: a\nalerts: me").alerts] == ["me"]


def test_mistakes_in_alerts_are_all_told_with_their_place() -> None:
    with pytest.raises(SpecInvalid) as wrong:
        parse_spec("name: x\ncommand: a\nalerts: [me, me, {on: [faild]}, 'a b', {to: x, about: y}]")
    found = {problem.path: problem for problem in wrong.value.problems}
    assert list(found) == ["alerts.1", "alerts.2.on.0", "alerts.2.to", "alerts.3", "alerts.4.about"]
    assert found["alerts.2.on.0"].hint == 'did you mean "failed"?'
