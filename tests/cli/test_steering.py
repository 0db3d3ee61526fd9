"""`whistle save`, `extend` and `set`: what is understood, what is refused, and what a real run makes of it."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Whistle

from whistlestop.cli.set_params import value_of
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

LOOP = """
import os, time, whistlestop
class Model:
    weight = 0.0
    def state_dict(self): return {"weight": self.weight}
    def load_state_dict(self, state): self.weight = state["weight"]
model = Model()
with whistlestop.run() as run:
    run.track(model=model)
    for step in run.steps(total=100_000):
        model.weight += 1.0
        time.sleep(0.005)
"""


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("0.01", 0.01), ("1e-4", 1e-4), (".5", 0.5), ("5", 5), ("-3", -3), ("true", True), ("false", False),
        ("fast", "fast"), ('"5"', "5"), ("", ""), ("1.2.3", "1.2.3"), ("[1]", "[1]"), ("null", "null"), ("e", "e"),
    ],
)  # fmt: skip
def test_values_are_read_as_people_mean_them(word: str, value: Any) -> None:
    found = value_of(word)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("extend", "1"), "+500"),
        (("extend", "1", "500"), "more: +500"),
        (("extend", "1", "+x"), "for example"),
        (("extend", "1", "--steps", "0"), "for example"),
        (("extend", "1", "--steps", "-5"), "for example"),
        (("extend", "1", "+5", "--steps", "6"), "+500"),
        (("set", "1", "lr"), "lr=0.01"),
        (("set", "1", "=5"), "lr=0.01"),
        (("set", "1", "a=1", "b=1", "a=2"), "once"),
    ],
)
def test_what_is_not_understood_is_wrong_usage_with_an_example(
    whistle: Whistle, words: tuple[str, ...], hint: str
) -> None:
    result = whistle(*words, "--json")
    assert (result.code, result.error["code"]) == (2, "usage")
    assert hint in result.error["hint"]


def test_a_value_that_no_server_would_take_is_refused(whistle: Whistle) -> None:
    bad_name = "can't be the name of a parameter: letters, digits and _ . - /, 100 at most"
    for word, text in (
        ("lr=NaN", "lr = nan is not a finite number"),
        ("lr=-Infinity", "lr = -inf is not a finite number"),
        ("lr=1e400", "lr = inf is not a finite number"),
        ("lr=+1e400", "lr = inf is not a finite number"),
        ("lr=1" + "0" * 400, "lr is too large: whole numbers go up to 9007199254740992"),
        ("mode=" + "x" * 1001, "mode is too long: a text has 1000 letters at most"),
        ("learning rate=1", f"'learning rate' {bad_name}"),
        ("x" * 101 + "=1", f"'{'x' * 101}' {bad_name}"),
    ):
        result = whistle("set", "1", word, "--json")
        assert (result.code, result.error["code"], result.error["text"]) == (1, "bad_request", text), word


def test_a_live_run_saves_on_request_and_tells_the_step(served: Whistle) -> None:
    Path("loop.py").write_text(LOOP)
    run = served("run", "--detach", "--json", "--name", "steered", "--", sys.executable, "loop.py").json
    until(lambda: served("show", run["id"], "--json").json["progress"]["step"] > 3, within=60, what="the loop")
    saved = served("save", "steered", "--wait")
    assert saved.code == 0
    found = served("checkpoints", "steered", "--json").json
    assert f"is saved at step {found[0]['step']}." in saved.out
    again = served("save", "steered", "--wait", "--json").json
    assert again["run"]["phases"][0]["saves"]["done"] == 2
    assert again["run"]["phases"][0]["saves"]["step"] > found[0]["step"]
    extended = served("extend", "steered", "+500", "--note", "still falling", "--json").json
    change = extended["run"]["phases"][0]["steering"][0]
    assert (change["name"], change["value"]) == ("total", 100_500)
    assert served("extend", "steered", "--steps", "2", "--json").error["code"] == "refused"
    wrong = served("set", "steered", "lr=0.5", "--json")
    assert (wrong.code, wrong.error["code"]) == (1, "not_found")
    assert "steps = 100500" in served("show", "steered").out
    served("kill", "steered", "--yes")
    for words in (("save", "steered"), ("extend", "steered", "+5"), ("set", "steered", "a=1")):
        assert served(*words, "--json").error["code"] == "run_ended"


def test_waiting_for_a_save_ends_when_the_phase_does(served: Whistle) -> None:
    Path("sleeper.py").write_text(
        "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    )
    run = served("run", "--detach", "--json", "--in-place", "--name", "deaf", "--", sys.executable, "sleeper.py").json
    until(lambda: served("logs", run["id"], "--grep", "up").out, within=60, what="the program to be up")
    asked = served("save", "deaf")
    assert "saves at its next step" in asked.out
    Path("go").touch()
    result = served("save", "deaf", "--wait", "--json")
    assert result.code == 1
    assert result.error["code"] in ("refused", "phase_ended", "run_ended")
