"""The reference pages are complete: a key or command without a line in them is a failing test."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import typer

from whistlestop.cli.main import COMMANDS
from whistlestop.domain.alerts import KINDS
from whistlestop.server.services import exposing
from whistlestop.wire import spec_alerts, spec_capacity, spec_file, spec_guards, spec_values
from whistlestop.wire.spec import Do
from whistlestop.wire.spec_file import parse_spec

DOCS = Path(__file__).parents[2] / "docs"
SPEC, CLI = (DOCS / "spec.md").read_text(), (DOCS / "cli.md").read_text()


@pytest.mark.parametrize(
    "keys",
    [
        spec_file.RUN_KEYS,
        spec_file.PHASE_KEYS,
        spec_file.CHECKPOINT_KEYS,
        spec_file.KEEP_KEYS,
        spec_file.GRACE_KEYS,
        spec_file.SECRET_KEYS,
        spec_capacity.CAPACITY_KEYS,
        spec_alerts.ALERT_KEYS,
        spec_guards.GUARD_KEYS,
    ],
)
def test_every_key_of_the_spec_is_documented_with_an_example(keys: tuple[str, ...]) -> None:
    for key in keys:
        rows = [line for line in SPEC.splitlines() if line.startswith(f"| `{key}` |")]
        assert rows, key
        assert all(row.count("`") >= 4 for row in rows), key


def test_every_cadence_is_documented() -> None:
    for unit in (*spec_values.CADENCE_UNITS, "auto"):
        assert unit in SPEC


def test_every_word_of_a_guard_is_documented() -> None:
    for word in (*spec_guards.CAUSES, *spec_guards.SHORT, *Do):
        assert f"`{word}`" in SPEC, word


def test_every_spec_in_the_docs_is_right() -> None:
    blocks = [part.split("```")[0] for part in SPEC.split("```yaml\n")[1:]]
    assert len(blocks) == 4
    for block in blocks:
        parse_spec(block)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_with_an_example(name: str) -> None:
    row = next((line for line in CLI.splitlines() if line.startswith(f"| `{name}` |")), "")
    assert f"`whistle {name}" in row
    app = import_module(f"whistlestop.cli.{COMMANDS[name]}").app
    assert isinstance(app, typer.Typer)
    if app.registered_callback is not None:
        for command in app.registered_commands:
            assert f"`whistle {name} {command.name}" in row


def test_every_kind_of_alert_and_every_metric_has_its_line() -> None:
    told = (DOCS / "how-to" / "alerts.md").read_text()
    assert all(f"\n| `{kind.value}` |" in told for kind in KINDS)
    page = (DOCS / "how-to" / "monitor-the-server.md").read_text()
    code = (Path(exposing.__file__)).read_text()
    names = re.findall(r'(?:gauge|counter)\(\s*"([a-z_]+)"', code)
    assert len(names) > 10
    assert all(f"`whistle_{name}" in page for name in names)
