"""Who a request comes from, with a clock that the test turns."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from whistlestop.domain.errors import Forbidden, Unauthenticated
from whistlestop.server.services import accounts, sessions
from whistlestop.server.services.context import Context
from whistlestop.server.services.hub import Hub
from whistlestop.server.services.settings import Settings
from whistlestop.server.services.vault import Vault
from whistlestop.server.store.database import Database


@dataclass
class Desk:
    context: Context
    token: str
    now: float = 1_000_000.0

    def open(self) -> sessions.Sessions:
        """As a server does when it starts."""
        return sessions.Sessions(self.context, accounts.Doorkeeper(self.context))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    database = Database(f"sqlite:///{tmp_path / 'test.db'}")
    database.migrate()
    vault = Vault.open(tmp_path / "key")
    made = Desk(Context(Settings(tmp_path), database, Hub(), vault, lambda: 0.0), "")
    made.context = replace(made.context, clock=lambda: made.now)
    made.token = accounts.first_token(made.context)
    yield made
    database.close()


def by_cookie(keeper: sessions.Sessions, value: str, **headers: str) -> dict[str, str]:
    return {"cookie": f"theme=dark; {keeper.cookie}={value}; other=1", **headers}


def test_a_session_ends_after_thirty_days_and_a_link_after_ten_minutes(desk: Desk) -> None:
    keeper = desk.open()
    actor = keeper.admit("GET", {"authorization": f"Bearer {desk.token}"}).actor
    value = keeper.begin(actor)
    in_time, late = (sessions.new_link(desk.context, actor)[0].partition("=")[2] for _ in range(2))
    desk.now += 599
    assert keeper.begin_by_link(in_time)
    desk.now += 1
    with pytest.raises(Unauthenticated, match="older than 10 minutes"):
        keeper.begin_by_link(late)
    desk.now = 1_000_000.0 + 30 * 86400 - 1
    assert keeper.admit("GET", by_cookie(keeper, value)).actor == actor
    desk.now += 1
    for each in (keeper, desk.open()):
        with pytest.raises(Unauthenticated, match="session has ended"):
            each.admit("GET", by_cookie(each, value))


def test_a_token_beside_a_cookie_decides_alone(desk: Desk) -> None:
    keeper = desk.open()
    value = keeper.begin(keeper.admit("GET", {"authorization": f"Bearer {desk.token}"}).actor)
    for wrong in ("Bearer nonsense", "bearer", "Bearer "):
        with pytest.raises(Unauthenticated):
            keeper.admit("GET", by_cookie(keeper, value, authorization=wrong))
    for another in ("Basic eDp5", "Negotiate x", ""):
        assert keeper.admit("GET", by_cookie(keeper, value, authorization=another)).session == value
    assert keeper.admit("POST", by_cookie(keeper, "nonsense", authorization=f"Bearer {desk.token}")).session is None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "post", "ANYTHING"])
def test_every_method_that_is_not_known_to_be_safe_needs_the_sessions_word(desk: Desk, method: str) -> None:
    keeper = desk.open()
    value = keeper.begin(keeper.admit("GET", {"authorization": f"Bearer {desk.token}"}).actor)
    for told in ({}, {"x-whistle-csrf": "ä"}, {"x-whistle-csrf": value}):
        with pytest.raises(Forbidden):
            keeper.admit(method, by_cookie(keeper, value, **told))
    entrance = keeper.admit(method, by_cookie(keeper, value, **{"x-whistle-csrf": sessions.csrf_of(value)}))
    assert entrance.csrf == sessions.csrf_of(value)


@pytest.mark.parametrize("cookie", ["{}=", "{}", "x_{}=1", '{}="', "=;;=", "{}={}", "{}=ä", "whistle_session=1"])
def test_a_cookie_that_makes_no_sense_is_nobody(desk: Desk, cookie: str) -> None:
    keeper = desk.open()
    with pytest.raises(Unauthenticated):
        keeper.admit("GET", {"cookie": cookie.replace("{}", keeper.cookie)})


def test_a_session_is_looked_for_among_so_many_cookies_and_no_more(desk: Desk) -> None:
    keeper = desk.open()
    value = keeper.begin(keeper.admit("GET", {"authorization": f"Bearer {desk.token}"}).actor)
    ours = f"{keeper.cookie}={value}"
    most = "x" * (sessions.MOST_COOKIES - len(ours) - 1) + ";" + ours
    assert keeper.session_in({"cookie": most}) == value
    assert keeper.session_in({"cookie": "x" + most}) is None
    assert keeper.session_in({"cookie": f"{keeper.cookie}={'v' * 101}"}) is None


def test_a_token_has_so_many_sessions_and_a_new_one_ends_its_oldest(desk: Desk) -> None:
    doorkeeper = accounts.Doorkeeper(desk.context)
    made = accounts.create_token(desk.context, "guest", "viewer")
    doorkeeper.reload()
    keeper = sessions.Sessions(desk.context, doorkeeper)
    anothers = keeper.begin(doorkeeper.admit(made.token))
    values = []
    for _ in range(sessions.MOST_SESSIONS + 2):
        desk.now += 1
        values.append(keeper.begin(doorkeeper.admit(desk.token)))
    for each in (keeper, desk.open()):
        good = [value for value in (anothers, *values) if admits(each, value)]
        assert good == [anothers, *values[2:]]


def admits(keeper: sessions.Sessions, value: str) -> bool:
    try:
        return keeper.admit("GET", by_cookie(keeper, value)).session == value
    except Unauthenticated:
        return False


def test_sessions_that_begin_and_end_at_once_are_all_known(desk: Desk) -> None:
    keeper = desk.open()
    actor = keeper.admit("GET", {"authorization": f"Bearer {desk.token}"}).actor
    count = sessions.MOST_SESSIONS // 2
    old = [keeper.begin(actor) for _ in range(count)]
    with ThreadPoolExecutor(2 * count) as pool:
        begun = [pool.submit(keeper.begin, actor) for _ in range(count)]
        for ended in [pool.submit(keeper.end, value) for value in old]:
            ended.result()
        new = [each.result() for each in begun]
    assert [admits(keeper, value) for value in new] == [True] * count
    assert [admits(keeper, value) for value in old] == [False] * count


def test_a_wrong_code_waits_for_no_writer(desk: Desk) -> None:
    keeper = desk.open()
    with ThreadPoolExecutor(1) as pool, desk.context.database.write():
        guess = pool.submit(keeper.begin_by_link, "wrong")
        with pytest.raises(Unauthenticated):
            guess.result(timeout=5)


def test_an_entrance_is_good_until_its_session_ends_or_its_token_is_revoked(desk: Desk) -> None:
    doorkeeper = accounts.Doorkeeper(desk.context)
    keeper = sessions.Sessions(desk.context, doorkeeper)
    admin = doorkeeper.admit(desk.token)
    made = accounts.create_token(desk.context, "guest", "viewer")
    doorkeeper.reload()
    by_token = keeper.admit("GET", {"authorization": f"Bearer {made.token}"})
    ended, expired, revoked = (
        keeper.admit("GET", by_cookie(keeper, keeper.begin(actor))) for actor in (admin, admin, by_token.actor)
    )
    everybody = (by_token, ended, expired, revoked)
    assert [keeper.still_good(each) for each in everybody] == [True, True, True, True]
    assert ended.session is not None
    keeper.end(ended.session)
    assert [keeper.still_good(each) for each in everybody] == [True, False, True, True]
    accounts.revoke_token(desk.context, "guest", admin)
    doorkeeper.reload()
    assert [keeper.still_good(each) for each in everybody] == [False, False, True, False]
    desk.now += sessions.SESSION_LASTS
    assert [keeper.still_good(each) for each in everybody] == [False, False, False, False]
