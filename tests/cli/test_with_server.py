"""Every verb through the command line, on real processes."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Whistle, own_process

from whistlestop.cli.submitting import submit_directory
from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

LOOP = """
import time, whistlestop
class Model:
    weight = 0.0
    def state_dict(self): return {"weight": self.weight}
    def load_state_dict(self, state): self.weight = state["weight"]
model = Model()
with whistlestop.run() as run:
    run.track(model=model)
    for step in run.steps(total=100_000, per_epoch=10):
        model.weight += 1.0
        run.log(weight=model.weight)
        time.sleep(0.005)
"""
SLEEPER = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


def started(served: Whistle, name: str = "sleeper") -> dict[str, Any]:
    """A run whose program is up."""
    Path("sleeper.py").write_text(SLEEPER)
    run = served("run", "--detach", "--json", "--name", name, "--", sys.executable, "sleeper.py").json
    until(lambda: served("logs", str(run["number"]), "--grep", "up").out, within=60, what="the program to be up")
    return dict(run)


def test_one_command_runs_as_if_it_ran_here(served: Whistle) -> None:
    Path("hello.py").write_text("import sys, os\nprint('out', os.environ['A'])\nprint('err', file=sys.stderr)\n")
    result = served("run", "--env", "A=b=c", "--", sys.executable, "hello.py")
    assert (result.code, result.out) == (0, "out b=c\n")
    assert "\nerr\n" in result.err
    assert "completed after" in result.err
    failed = served("run", "--json", "--", sys.executable, "-c", "raise SystemExit(7)")
    assert failed.code == 1
    assert failed.json["status"] == "failed"
    assert failed.json["phases"][0]["attempts"][0]["exit_code"] == 7


class Late(Client):
    """Asks whether the code is there just before the server lets it go."""

    asked = 0

    def has_bundle(self, digest: str) -> bool:
        self.asked += 1
        return self.asked == 1 or super().has_bundle(digest)


def test_code_that_the_server_lets_go_meanwhile_is_sent_again(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(f"# {tmp_path}")
    with Late(server.url, server.token) as client:
        run = submit_directory(client, tmp_path, spec="name: late\ncommand: 'true'\n")
        assert client.asked == 2
        assert run.code.bundle is not None


def test_a_pipeline_is_submitted_listed_shown_and_read(served: Whistle) -> None:
    Path("whistle.yaml").write_text(
        "name: pipe\nproject: demo\nphases:\n"
        "  - {name: first, kind: task, command: 'echo one; echo two'}\n"
        "  - {name: second, kind: task, command: 'cat data.txt; echo $X', env: {X: 1}}\n"
    )
    Path("data.txt").write_text("WARNING: bundled\n")
    run = served("submit", "--set", "phases.second.env.X=9", "--note", "why not", "--follow", "--json").json
    assert (run["status"], run["note"], run["project"]) == ("completed", "why not", "demo")
    number = f"#{run['number']}"
    lines = [json.loads(line) for line in served("logs", number, "--json").out.splitlines()]
    said = [line["text"] for line in lines if line["stream"] == "out"]
    assert said == ["one", "two", "WARNING: bundled", "9"]
    assert set(lines[0]) >= {"at", "phase", "attempt", "rank", "stream", "level", "text"}
    assert served("logs", "pipe", "--phase", "second", "--grep", "BUNDLED").out.endswith("second/2 WARNING: bundled\n")
    assert served("logs", "pipe", "--level", "warning").out.count("\n") == 1
    assert served("logs", "pipe", "--tail", "1", "--attempt", "1").out.count("\n") == 1
    assert [r["name"] for r in served("ls", "--project", "demo", "--json").json] == ["pipe"]
    assert served("ls", "--search", "nowhere", "--json").json == []
    listed = served("ls", "--status", "completed")
    assert "pipe" in listed.out
    assert "✓ completed" in listed.out
    shown = served("show", number)
    for word in ("pipe", "first", "second", "why not", "bundle", "credits"):
        assert word in shown.out
    assert "X: 9" in served("show", number, "--json").json["spec"]
    kinds = [event["kind"] for event in served("events", number, "--json").json]
    assert kinds[0] == "submitted"
    assert kinds[-1] == "run_completed"
    assert served("events", number, "-f").out.count("\n") == len(kinds)
    assert served("watch", number).code == 0


def test_a_kill_waits_for_the_proof_and_a_second_one_is_refused(served: Whistle) -> None:
    run = started(served)
    result = served("kill", "sleeper", "--yes", "--note", "wrong data", "--json")
    assert result.code == 0
    assert result.json["run"]["status"] == "killed"
    assert result.json["run"]["note"] == "wrong data"
    again = served("kill", str(run["number"]), "--yes", "--json")
    assert (again.code, again.error["code"]) == (1, "run_ended")
    assert served("delete", "sleeper", "--yes").code == 0
    assert served("show", run["id"], "--json").error["code"] == "not_found"


def test_an_active_run_is_not_deleted(served: Whistle) -> None:
    started(served)
    result = served("delete", "sleeper", "--yes", "--json")
    assert (result.code, result.error["code"]) == (1, "run_active")
    assert served("cancel", "sleeper", "--yes").code == 0


def test_without_a_terminal_nothing_is_destroyed_unasked(served: Whistle) -> None:
    started(served)
    for verb in ("kill", "cancel", "delete"):
        result = served(verb, "sleeper")
        assert result.code == 2
        assert "--yes" in result.err
    assert served("show", "sleeper", "--json").json["status"] == "running"
    assert served("kill", "--all", "--yes").code == 0


def test_runs_are_killed_and_deleted_by_filter(served: Whistle) -> None:
    for number in range(4):
        served("run", "--detach", "--name", f"many-{number}", "--", "sleep", "600")
    result = served("kill", "--search", "many", "--yes", "--json")
    assert result.code == 0
    assert [item["ok"] for item in result.json["items"]] == [True] * 4
    assert {run["status"] for run in served("ls", "--json").json} == {"killed"}
    assert served("kill", "--all", "--yes").out == "No run matches.\n"
    assert served("delete", "--status", "killed", "--yes").out == "4 runs are deleted.\n"
    assert served("ls").out == "No runs.\n"


def test_a_training_is_stopped_paused_resumed_and_continued(served: Whistle) -> None:
    Path("train.py").write_text(LOOP)
    served("run", "--detach", "--name", "train", "--", sys.executable, "train.py")
    until(lambda: '"weight"' in served("metrics", "train", "--json").out, within=60, what="a metric")
    wrong = served("stop", "train", "--phase", "mian", "--json")
    assert (wrong.code, wrong.error["code"]) == (1, "not_found")
    assert served("pause", "train").code == 0
    until(lambda: served("show", "train", "--json").json["status"] == "waiting", within=60, what="the pause")
    saved = served("checkpoints", "train", "--json").json
    assert saved[0]["verified"] is True
    assert f"{saved[0]['step']:,}" in served("checkpoints", "train", "ls").out
    assert served("resume", "train").code == 0
    until(
        lambda: served("show", "train", "--json").json["progress"]["step"] > saved[0]["step"], within=60, what="steps"
    )
    assert served("stop", "train", "--note", "good enough").code == 0
    watched = served("watch", "train", "--json")
    assert (watched.code, watched.json["status"]) == (0, "completed")
    assert watched.json["phases"][0]["stop_reasons"][0]["reason"] == "manually_stopped"
    page = served("show", "train").out
    assert "manually stopped" in page
    assert "good enough" in page
    table = served("metrics", "train", "weight")
    assert "weight" in table.out
    assert "█" in table.out
    series = served("metrics", "train", "weight", "--json").json
    assert [item["name"] for item in series] == ["weight"]
    assert len(series[0]["points"][0]) == 3
    more = served("continue", "train", "--set", "name=more", "--json").json
    assert more["parent"]["relation"] == "continue"
    assert more["parent"]["step"] > 0
    assert served("kill", "more", "--yes", "--json").json["run"]["status"] == "killed"


def test_notes_and_reruns(served: Whistle) -> None:
    served("run", "--json", "--name", "first", "--", "true")
    assert served("note", "first", "a [bold] note").code == 0
    assert served("note", "first").out == "a [bold] note\n"
    assert "a [bold] note" in served("show", "first").out
    again = served("rerun", "first", "--set", "name=second", "--json").json
    assert (again["name"], again["parent"]["relation"]) == ("second", "rerun")
    assert served("watch", "second").code == 0
    assert served("continue", "first", "--json").error["code"] == "no_checkpoint"
    assert served("checkpoints", "first", "ls").out == "No committed checkpoint.\n"
    ended = served("stop", "first", "--json")
    assert (ended.code, ended.error["code"]) == (1, "run_ended")


def test_workflows_have_versions(served: Whistle) -> None:
    Path("whistle.yaml").write_text("name: x\nkind: task\ncommand: echo one\n")
    assert served("workflow", "save", "nightly").code == 0
    Path("whistle.yaml").write_text("name: x\nkind: task\ncommand: echo two\n")
    assert served("workflow", "save", "nightly", "--json").json["version"] == 2
    assert served("workflow", "save", "nightly", "--json").json["version"] == 2
    assert "nightly" in served("workflow", "ls").out
    assert "echo one" in served("workflow", "show", "nightly@1").out
    assert "-command: echo one\n+command: echo two" in served("workflow", "diff", "nightly").out
    run = served("submit", "--workflow", "nightly@1", "--name", "first", "--json").json
    assert (run["name"], run["workflow"]) == ("first", "nightly@1")


def test_pools_tokens_and_secrets_are_kept(served: Whistle, monkeypatch: pytest.MonkeyPatch) -> None:
    price = served("pools", "--json").json[0]["price"]
    assert served("pools", "set", "local", "--price", "3.5").code == 0
    assert served("pools", "--json").json[0]["price"] == 3.5
    assert "3.5" in served("pools", "ls").out
    assert served("pools", "set", "local", "--price", str(price)).code == 0  # other tests have this server, too
    token = served("token", "create", "ci", "--role", "viewer", "--json").json
    assert "ci" in served("token", "ls").out
    monkeypatch.setenv("WHISTLE_TOKEN", token["token"])
    assert served("ls").code == 0
    assert served("run", "--detach", "--json", "--", "true").error["code"] == "forbidden"
    monkeypatch.delenv("WHISTLE_TOKEN")
    assert served("token", "revoke", token["id"]).code == 0
    monkeypatch.setenv("WHISTLE_TOKEN", token["token"])
    assert served("ls", "--json").error["code"] == "unauthenticated"


def test_a_secret_comes_from_standard_input_and_is_never_shown(served: Whistle, server: ServerProcess) -> None:
    setting = own_process(server.data, Path(), "secret", "set", "KEY", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert setting.communicate("s3cret\n")[0] == "Secret KEY is set.\n"
    assert "KEY" in served("secret", "ls").out
    Path("whistle.yaml").write_text("name: x\nkind: task\ncommand: echo ${#K}\nenv: {K: {secret: KEY}}\n")
    assert served("submit", "--follow").out == "6\n"
    assert served("secret", "rm", "KEY").code == 0
    refused = served("submit")
    assert refused.code == 1
    assert "whistle secret set KEY" in refused.err


def test_the_queue_says_who_waits_for_what(served: Whistle) -> None:
    started(served)
    served("run", "--detach", "--slots", "2", "--name", "waits", "--", "true")
    assert [run["name"] for run in served("queue", "--json").json] == ["waits"]
    assert "slots" in served("queue").out
    assert "1st in the queue" in served("ls").out
    assert served("kill", "--all", "--yes").code == 0


def test_ctrl_c_leaves_the_run_and_says_how_to_come_back(served: Whistle, server: ServerProcess) -> None:
    Path("sleeper.py").write_text(SLEEPER)
    words = ("run", "--name", "left", "--", sys.executable, "sleeper.py")
    process = own_process(server.data, Path(), *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "it goes on" in said
    assert "whistle watch" in said
    assert served("show", "left", "--json").json["status"] == "running"
    assert served("kill", "left", "--yes").code == 0


def test_output_is_followed_through_a_restart_of_the_server(served: Whistle, server: ServerProcess) -> None:
    Path("count.py").write_text(
        "import pathlib, time\n"
        "for n in range(200):\n"
        "    print(n, flush=True)\n"
        "    while n == 100 and not pathlib.Path('go').exists(): time.sleep(0.01)\n"
    )
    words = ("run", "--in-place", "--", sys.executable, "count.py")
    process = own_process(server.data, Path(), *words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    seen = [process.stdout.readline() for _ in range(50)]
    server.kill()
    Path("go").touch()
    server.start()
    # Not communicate(): it would not see what readline has already taken into its buffer.
    assert [int(line) for line in [*seen, *process.stdout]] == list(range(200))
    assert process.wait(60) == 0
    process.stdout.close()


def test_the_question_before_a_kill_names_what_is_at_stake(served: Whistle, server: ServerProcess) -> None:
    run = started(served)
    for answer, code in (("n\n", 1), ("y\n", 0)):
        mine, theirs = pty.openpty()
        process = own_process(
            server.data, Path(), "kill", "sleeper", stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
        )
        os.close(theirs)
        os.write(mine, answer.encode())
        said = _drain(mine)
        assert process.wait(60) == code, said
        assert f"#{run['number']} (sleeper)  running since" in said
        assert "credits used" in said
        assert "permanently kill" in said
    assert served("show", "sleeper", "--json").json["status"] == "killed"


def test_watch_shows_a_run_live_at_a_terminal(served: Whistle, server: ServerProcess) -> None:
    Path("quick.py").write_text("import time\nprint('hello from the program', flush=True)\ntime.sleep(1)\n")
    served("run", "--detach", "--name", "quick", "--", sys.executable, "quick.py")
    mine, theirs = pty.openpty()
    process = own_process(server.data, Path(), "watch", "quick", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = _drain(mine)
    assert process.wait(60) == 0
    assert "hello from the program" in said
    assert "completed" in said


def _drain(terminal: int) -> str:
    parts = []
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other end is closed: that is how a terminal ends
            break
        if not data:
            break
        parts.append(data)
    os.close(terminal)
    return b"".join(parts).decode("utf-8", "replace")
