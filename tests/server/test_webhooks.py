"""Alerts on the wire: signed, in their order, again and again until they are taken, as the same delivery; by real
receivers on this machine that fail in every way that receivers do."""

import contextlib
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from whistlestop.client import Client
from whistlestop.domain.alerts import GIVE_UP, LONGEST_PAUSE
from whistlestop.domain.errors import DiskFull, Forbidden
from whistlestop.server.scheduler import alerts as scheduler_alerts
from whistlestop.server.scheduler.alerts import Alerts, deliver_one
from whistlestop.server.services import receivers, sending
from whistlestop.server.store import alerts as store
from whistlestop.server.store import events
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.webhooks import Receiver
from whistlestop.testing.world import ME, World, world
from whistlestop.wire.alerts import DeliveryView, ReceiverBody, ReceiverView
from whistlestop.wire.api import Role, RunView

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "alerts.md"
TRUE = {"name": "train", "command": "true", "kind": "task"}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@contextlib.contextmanager
def sending_from(here: World) -> Iterator[Alerts]:
    """As in a server, by a clock that runs a hundred times as fast: nobody waits for a pause."""
    alerts = Alerts(here.context, lambda: "http://here", look=3600.0)
    over = threading.Event()

    def hurry() -> None:
        while not over.wait(0.01):
            here.now += 1.0
            alerts.wake()

    clock = threading.Thread(target=hurry)
    here.context.hub.alerts_changed = alerts.wake
    alerts.start()
    clock.start()
    try:
        yield alerts
    finally:
        over.set()
        clock.join()
        alerts.stop()


def add(here: World, name: str, address: str, **more: Any) -> ReceiverView:
    return receivers.add(here.context, ReceiverBody(name=name, address=address, **more), ME)


def tell(here: World, run: RunView, count: int) -> None:
    with here.context.database.write() as connection:
        for number in range(count):
            events.add(connection, run.id, "guard", f"number {number}", at=here.now, data={"number": number})
    here.context.hub.shown(run.id)


def numbers(receiver: Receiver) -> list[int]:
    return [post.said["event"]["data"]["number"] for post in receiver.taken]


def log(here: World, name: str) -> list[DeliveryView]:
    return list(reversed(receivers.deliveries(here.context, receiver=name)))


def test_a_receiver_that_fails_for_a_while_gets_every_alert_once_and_in_order(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "TIMEOUT", 0.5)
    answers: list[int | float | str] = [500, "drop", 30.0, 503, 404, 302, 204, 429, "drop", 204]
    with Receiver(answers) as broken, Receiver() as well, sending_from(here):
        add(here, "broken", broken.url)
        add(here, "well", well.url)
        tell(here, here.submit(), 6)
        until(lambda: len(well.taken) == 6, what="the one that is well to have them all")
        until(lambda: {each.state for each in log(here, "broken")} == {"sent"}, what="the broken one to have them all")
        # Another 2xx than ours, should it have been too slow for the time-out above, is a repeat of the same delivery.
        assert list(dict.fromkeys(numbers(broken))) == numbers(well) == list(range(6))
        assert len({post.id for post in broken.taken}) == 6
        assert len({(post.id, post.body) for post in broken.posts}) == 6  # each try has the same bytes
        assert [post.answer for post in broken.posts[:3]] == ["500", "dropped", "silent"]
    assert all(each.tries >= least for each, least in zip(log(here, "broken"), (7, 3, 1, 1, 1, 1), strict=True))


def test_a_dead_receiver_holds_up_nobody_and_says_since_when_and_why(here: World) -> None:
    with Receiver() as well, Receiver() as gone:
        gone.close()
        add(here, "a-dead", gone.url)
        add(here, "well", well.url)
        with sending_from(here):
            tell(here, here.submit(), 3)
            until(lambda: len(well.taken) == 3, what="the one that is well to have them all")
            until(lambda: [each.tries > 1 for each in log(here, "a-dead")][:1] == [True], what="a second try")
            until(lambda: receivers.listed(here.context)[1].waiting == 0, what="it to be written down")
    dead_view, well_view = receivers.listed(here.context)
    assert dead_view.waiting == 3
    assert dead_view.failing_since is not None
    assert dead_view.next_at is not None
    assert "can't be reached" in dead_view.error
    assert [each.behind for each in log(here, "a-dead")] == [0, 1, 2]
    assert (well_view.failing_since, well_view.error) == (None, "")
    assert well_view.sent_at is not None


def test_an_alert_that_nobody_takes_for_a_week_is_given_up_and_the_next_one_goes_out(here: World) -> None:
    with Receiver([500, 500]) as receiver:
        add(here, "slow", receiver.url)
        receivers.try_out(here.context, "slow", ME)
        assert not deliver_one(here.context, "slow", set())
        here.now += GIVE_UP + 1
        receivers.try_out(here.context, "slow", ME)
        assert not deliver_one(here.context, "slow", set())
        assert [each.state for each in log(here, "slow")] == ["given_up", "waiting"]
        assert log(here, "slow")[0].error == "it answered 500 Internal Server Error"
        assert deliver_one(here.context, "slow", set())
        assert not deliver_one(here.context, "slow", set())
    assert [each.state for each in log(here, "slow")] == ["given_up", "sent"]


@contextlib.contextmanager
def full_for(here: World, name: str) -> Iterator[None]:
    """A database that has no room left for what becomes of this receiver's alerts."""
    with here.context.database.write() as connection:
        full = f"NEW.receiver = '{name}' BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        connection.exec_driver_sql(f"CREATE TRIGGER no_room BEFORE UPDATE ON alerts WHEN {full}")
    try:
        yield
    finally:
        with here.context.database.write() as connection:
            connection.exec_driver_sql("DROP TRIGGER no_room")


def test_an_alert_that_was_taken_on_a_full_disk_is_written_down_later_and_not_sent_again(here: World) -> None:
    taken: set[int] = set()
    with Receiver() as receiver:
        add(here, "ops", receiver.url)
        for _ in range(2):
            receivers.try_out(here.context, "ops", ME)
        with full_for(here, "ops"):
            for _ in range(3):
                with pytest.raises(DiskFull):
                    deliver_one(here.context, "ops", taken)
        assert len(receiver.posts) == len(taken) == 1
        assert deliver_one(here.context, "ops", taken)
        assert len(receiver.posts) == 1
        assert deliver_one(here.context, "ops", taken)
        assert not deliver_one(here.context, "ops", taken)
        assert [post.id for post in receiver.posts] == [each.id for each in log(here, "ops")]
    assert [(each.state, each.tries) for each in log(here, "ops")] == [("sent", 1), ("sent", 1)]
    assert not taken


@pytest.mark.parametrize("answer", [204, 500])
def test_a_receiver_of_which_nothing_can_be_written_down_is_left_alone_for_a_while(
    here: World, answer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_alerts, "UNWRITTEN", 3600.0)  # longer than the slowest machine takes for this
    with Receiver(then=answer) as receiver, Receiver() as well, full_for(here, "unwritten"), sending_from(here):
        add(here, "unwritten", receiver.url)
        add(here, "well", well.url)
        receivers.try_out(here.context, "unwritten", ME)
        until(lambda: receiver.posts, what="its only try")
        for count in range(1, 5):  # each takes another look at all that waits
            receivers.try_out(here.context, "well", ME)
            until(lambda count=count: len(well.taken) == count, what="the one that is well to have it")
        assert len(receiver.posts) == 1


def test_a_clock_that_is_set_back_does_not_silence_a_receiver_that_has_failed(here: World) -> None:
    with Receiver([500]) as receiver:
        add(here, "ops", receiver.url)
        here.now += 86400
        receivers.try_out(here.context, "ops", ME)
        assert not deliver_one(here.context, "ops", set())
        here.now -= 86400
        with sending_from(here):
            until(lambda: log(here, "ops")[0].state == "sent", what="it to be tried again")


def test_what_waits_for_a_dead_receiver_is_given_up_as_a_whole(here: World) -> None:
    add(here, "dead", "http://127.0.0.1:9/")
    for _ in range(3):
        receivers.try_out(here.context, "dead", ME)
    here.now += GIVE_UP + 1
    receivers.try_out(here.context, "dead", ME)
    with here.context.database.write() as connection:
        store.update_receiver(connection, "dead", failures=1000, next_at=here.now + LONGEST_PAUSE)
    alerts = Alerts(here.context, lambda: "http://here", look=3600.0)
    alerts.start()
    try:
        states = ["given_up"] * 3 + ["waiting"]
        until(lambda: [each.state for each in log(here, "dead")] == states, what="the old ones to be given up")
    finally:
        alerts.stop()
    assert [each.behind for each in log(here, "dead")] == [0] * 4
    assert [each.tries for each in log(here, "dead")] == [0] * 4


def test_a_redirect_is_not_followed(here: World) -> None:
    with Receiver([307]) as receiver:
        add(here, "moved", receiver.url)
        receivers.try_out(here.context, "moved", ME)
        assert not deliver_one(here.context, "moved", set())
        assert len(receiver.posts) == 1
    assert "to go elsewhere" in log(here, "moved")[0].error


def test_the_guides_own_check_takes_what_we_sign_and_refuses_all_else(here: World) -> None:
    [code] = [block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "hmac" in block]
    names: dict[str, Any] = {}
    exec(compile(code, "guide", "exec"), names)
    check: Callable[..., bool] = names["is_from_whistlestop"]
    with Receiver() as receiver:
        secret = add(here, "ops", receiver.url).secret
        receivers.try_out(here.context, "ops", ME)
        assert deliver_one(here.context, "ops", set())
        [post] = receiver.posts
    assert (post.said["kind"], post.said["id"]) == ("test", post.id)
    assert post.headers["content-type"] == "application/json"
    assert check(secret, post.headers, post.body, now=here.now)
    assert not check(secret, post.headers, post.body + b" ", now=here.now)
    assert not check(secret, {**post.headers, "webhook-id": "w-other"}, post.body, now=here.now)
    assert not check(secret, post.headers, post.body, now=here.now + 3600)
    assert not check("whsec_" + "A" * 43 + "=", post.headers, post.body, now=here.now)


def test_apprise_sends_it_and_what_it_complains_of_is_told_without_the_address(here: World) -> None:
    with Receiver([200, 500]) as receiver:
        place = receiver.url.removeprefix("http://").partition("/")[0]
        made = add(here, "chat", f"json://user:hidden-word@{place}/path")
        assert (made.kind, made.address, made.secret) == ("apprise", "json://…", None)
        for _ in range(2):
            receivers.try_out(here.context, "chat", ME)
        assert deliver_one(here.context, "chat", set())
        assert not deliver_one(here.context, "chat", set())
        assert receiver.posts[0].said["message"] == "me tries out the receiver chat"
    assert "500" in log(here, "chat")[1].error
    assert "hidden-word" not in log(here, "chat")[1].error


def test_apprise_is_given_text_and_no_more_of_it_than_a_service_takes() -> None:
    with Receiver(then=200) as receiver:
        place = receiver.url.removeprefix("http://").partition("/")[0]
        for address, text in ((f"json://{place}/?format=html", "<b>a < b</b>"), (f"json://{place}/", "long " * 10_000)):
            body = json.dumps({"text": text})
            assert sending.send("apprise", address, None, delivery="w", title="t", body=body, at=1.0) is None
        markup, long = (post.said["message"] for post in receiver.posts)
    assert "<b>" not in markup
    assert "&lt;b&gt;" in markup
    assert 1000 < len(long) < 33_000


# --- with a server -----------------------------------------------------------------------------------------------


def test_a_server_that_is_killed_again_and_again_loses_no_alert(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server(slots=2)
    with Receiver(then=503) as receiver:
        with server.client() as client:
            client.add_receiver("hook", receiver.url, on=["done", "failed"])
        for run in (server.submit(TRUE, name="good"), server.submit({**TRUE, "command": "exit 3"}, name="bad")):
            server.wait(run.id)
        until(lambda: receiver.posts, what="a first try")
        server.kill()
        server.start()
        tries = len(receiver.posts)
        until(lambda: len(receiver.posts) > tries, what="a try after the restart")
        server.wait(server.submit(TRUE, name="third").id)
        server.kill()  # before, in or after the moment in which the third is written to the outbox
        receiver.then = 200
        server.start()
        with server.client() as client:
            until(lambda: [each.state for each in client.deliveries()] == ["sent"] * 3, what="all three to be taken")
            told = client.deliveries()
        assert sorted(each.kind for each in told) == ["done", "done", "failed"]
        assert {each.id for each in told} == {post.id for post in receiver.taken}
        server.kill()
        known = len(receiver.posts)
        server.start()
        fourth = server.submit(TRUE, name="fourth")
        server.wait(fourth.id)
        until(lambda: len(receiver.posts) > known, what="the fourth to be taken")
        # What was taken, and written down, is never sent again: the fourth is the first that came.
        assert receiver.posts[known].said["run"]["name"] == "fourth"
        assert receiver.posts[known].said["run"]["url"] == f"{server.url}/runs/{fourth.id}"
        assert not server.complaints()


def test_a_real_run_that_turns_to_nan_is_told_of_with_its_guard(shared_server: ServerProcess, tmp_path: Path) -> None:
    program = Path(__file__).parent / "programs" / "guarded.py"
    phase = {
        "name": "train",
        "command": [sys.executable, str(program)],
        "env": {"BAD": "12", "LENGTH": "100000"},
        "guards": [{"when": "non_finite", "do": "kill"}],
    }
    with shared_server.client() as client, Receiver() as receiver:
        client.add_receiver("nan", receiver.url, only_named=True)
        try:
            named = [{"to": "nan", "on": ["non_finite", "guard", "killed"]}]
            run = shared_server.submit(phase, name="nan", directory=tmp_path, alerts=named)
            shared_server.wait(run.id)
            until(lambda: len(receiver.taken) == 3, what="all three to be told")
        finally:
            client.remove_receiver("nan")
    assert [post.said["kind"] for post in receiver.taken] == ["non_finite", "guard", "killed"]
    finding = receiver.taken[0].said
    assert finding["event"]["data"]["metric"] == "loss"
    assert finding["title"] == f"Run #{run.number} default/nan has a metric that is no longer a number"


def test_only_an_admin_says_where_the_server_posts(shared_server: ServerProcess) -> None:
    roles: tuple[Role, ...] = ("viewer", "member")
    with shared_server.client() as admin, Receiver() as receiver:
        tokens = [admin.create_token(f"alerts-{role}", role) for role in roles]
        admin.add_receiver("guarded", receiver.url)
        try:
            for token in tokens:
                with Client(shared_server.url, token.token) as lesser:
                    assert "secret-part" not in str(lesser.receivers())
                    with pytest.raises(Forbidden):
                        lesser.add_receiver("mine", receiver.url)
                    with pytest.raises(Forbidden):
                        lesser.remove_receiver("guarded")
                    with pytest.raises(Forbidden):
                        lesser.test_receiver("guarded")
            admin.test_receiver("guarded")
            until(lambda: receiver.taken, what="the test to be taken")
        finally:
            admin.remove_receiver("guarded")
            for token in tokens:
                admin.revoke_token(token.id)
