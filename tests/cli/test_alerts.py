"""`whistle alerts`, against a real server and a real receiver."""

from collections.abc import Iterator

import pytest
from tests.cli.conftest import Whistle

from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.webhooks import Receiver


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


@pytest.fixture
def hook(served: Whistle) -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver
    for each in served("alerts", "ls", "--json").json:
        served("alerts", "rm", each["name"])


def test_a_receiver_is_added_tried_told_and_removed(served: Whistle, hook: Receiver) -> None:
    assert "Nobody is told of anything" in served("alerts", "ls").out
    made = served("alerts", "add", "ops", hook.url, "--on", "failed,done", "--project", "told")
    assert made.code == 0
    assert "Receiver ops is told of failed, done." in made.out
    assert "whsec_" in made.out
    assert "not shown again" in made.err
    assert "secret-part" not in served("alerts", "ls").out
    tried = served("alerts", "test", "ops")
    assert (tried.code, tried.out) == (0, "Receiver ops has taken it.\n")
    assert served("run", "--project", "told", "--name", "told-of", "--", "true").code == 0
    assert served("run", "--project", "untold", "--name", "not-told-of", "--", "true").code == 0
    until(lambda: len(hook.taken) == 2, what="the end to be told")
    said = hook.taken[-1].said
    assert (said["kind"], said["run"]["name"]) == ("done", "told-of")
    until(lambda: {each["state"] for each in served("alerts", "log", "--json").json} == {"sent"})
    shown = served("alerts", "log", "--to", "ops", "--run", "told-of").out
    assert "told/told-of is done" in shown
    assert "taken at" in shown
    assert served("alerts", "rm", "ops").out == "Receiver ops is removed.\n"
    assert served("alerts", "ls", "--json").json == []


def test_one_that_does_not_take_it_says_why(served: Whistle, hook: Receiver) -> None:
    hook.then = 500
    assert served("alerts", "add", "broken", hook.url, "--only-named", "--json").json["only_named"] is True
    tried = served("alerts", "test", "broken")
    assert tried.code == 1
    assert "Not taken: it answered 500 Internal Server Error; it is tried again" in tried.out
    assert "failing since" in served("alerts", "ls").out
    again = served("alerts", "test", "broken", "--json")
    assert (again.code, again.json["state"], again.json["behind"]) == (1, "waiting", 1)
    assert "1 before it was not taken yet" in served("alerts", "log", "--waiting").out


def test_mistakes_are_said_with_the_nearest_word(served: Whistle, hook: Receiver) -> None:
    wrong = served("alerts", "add", "ops", hook.url, "--on", "faild", "--json")
    assert wrong.code == 2
    assert "failed" in wrong.error["hint"]
    refused = served("alerts", "rm", "nobody", "--json")
    assert (refused.code, refused.error["code"]) == (1, "not_found")
