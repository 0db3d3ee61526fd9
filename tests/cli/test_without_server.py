"""What the command line does by itself: usage, specs, and what it says when nobody answers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Result, Whistle

from whistlestop.cli import failures
from whistlestop.cli.main import COMMANDS

BROKEN = (
    "name: x\nphases:\n  - name: train\n    slot: 2\n    command: a\n  - name: b\n    command: c\n    needs: [trian]\n"
)


def test_every_command_explains_itself(whistle: Whistle) -> None:
    overview = whistle("--help")
    assert overview.code == 0
    for name in COMMANDS:
        assert f"  {name} " in overview.out
        explained = whistle(name, "--help")
        assert explained.code == 0
        assert "--json" in explained.out or "Commands:" in explained.out, name


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["ls", "--nonsense"],
        ["show"],
        ["ls", "--status", "runing"],
        ["ls", "--limit", "x"],
        ["logs", "1", "--level", "loud"],
        ["kill"],
        ["kill", "1", "--all", "--yes"],
        ["pause", "1", "--checkpoint", "never"],
        ["submit"],
        ["submit", "a.yaml", "--workflow", "b"],
        ["run"],
        ["run", "--env", "X", "--", "true"],
        ["token", "create", "x", "--role", "king"],
        ["pools", "set", "local"],
        ["workflow", "show", "a@b"],
        ["checkpoints", "1", "rm"],
    ],
)
def test_wrong_usage_ends_with_2_in_words_and_in_json(whistle: Whistle, words: list[str]) -> None:
    result = whistle(*words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("whistle: ")
    split = words.index("--") if "--" in words else len(words)
    result = whistle(*words[:split], "--json", *words[split:])
    assert (result.code, result.out) == (2, "")
    assert result.error["code"] == "usage"


@pytest.mark.parametrize(
    "words", [["ls"], ["show", "1"], ["stop", "1"], ["kill", "1", "--yes"], ["logs", "1"], ["queue"], ["watch", "1"]]
)
def test_without_a_server_every_command_ends_with_3_and_says_what_to_do(whistle: Whistle, words: list[str]) -> None:
    result = whistle(*words)
    assert (result.code, result.out) == (3, "")
    assert result.err == "whistle: There is no server at http://127.0.0.1:9.\n  start it with: whistle up\n"
    result = whistle(*words, "--json")
    assert result.code == 3
    assert result.error["code"] == "server_unreachable"
    assert set(result.error) == {"code", "text", "hint", "problems"}


def test_check_names_every_mistake_with_file_and_line(whistle: Whistle) -> None:
    Path("whistle.yaml").write_text(BROKEN)
    result = whistle("check")
    assert result.code == 1
    assert result.err.splitlines() == [
        'whistle.yaml:4: phases.0.slot: unknown key (did you mean "slots"?)',
        'whistle.yaml:8: phases.1.needs.0: there is no phase called "trian" (did you mean "train"?)',
        "whistle: The spec has 2 mistakes.",
    ]
    answer = whistle("check", "--json")
    assert answer.code == 1
    assert [problem["line"] for problem in answer.json["problems"]] == [4, 8]


def test_check_says_what_a_right_spec_is(whistle: Whistle) -> None:
    Path("a.yaml").write_text("name: x\ncommand: a\n")
    assert whistle("check", "a.yaml").out == "a.yaml is right: x, 1 phase: main (train)\n"
    assert whistle("check", "a.yaml", "--json").json == {"ok": True, "problems": [], "name": "x", "phases": ["main"]}
    assert whistle("check", "a.yaml", "--set", "slot=3").code == 1


def test_a_broken_spec_is_not_sent(whistle: Whistle) -> None:
    Path("whistle.yaml").write_text(BROKEN)
    result = whistle("submit", "--json")
    assert result.code == 1
    assert result.error["code"] == "spec_invalid"
    assert len(result.error["problems"]) == 2


def test_version_works_without_a_server(whistle: Whistle) -> None:
    assert whistle("version").code == 0
    assert whistle("version", "--json").json["server"] is None


def test_our_own_mistakes_are_words_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert failures.report(ZeroDivisionError("division by zero"), as_json=False) == 1
    assert "mistake in Whistlestop: ZeroDivisionError" in capsys.readouterr().err
    assert failures.report(FileNotFoundError(2, "No such file", "/a/b"), as_json=True) == 1
    assert json.loads(capsys.readouterr().err)["error"]["text"] == "b: No such file"


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m whistlestop --help | true"
    done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_a_simple_command_loads_neither_server_nor_tables() -> None:
    code = (
        "import sys; from whistlestop.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'rich', 'httpx2', 'fastapi', 'numpy', 'ruamel', 'sqlalchemy'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_a_result_is_one_json_value() -> None:
    assert Result(0, '{"a": 1}\n', "").json == {"a": 1}
