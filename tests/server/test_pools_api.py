"""Pools and hosts as people see and change them: over the API, and what a change means for what runs."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from whistlestop.client import Client
from whistlestop.domain.errors import BadRequest, Forbidden, NotFound, Refused
from whistlestop.server.services import hosts, pools
from whistlestop.server.store import phases
from whistlestop.server.store import pools as store
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.world import ME, World, world
from whistlestop.wire.pools import ApplyBody, ExcludeBody, HostView, NewPool, PoolBody, PoolView, ReadmitBody

TWO_HOSTS = {"hosts": [{"name": "one", "slots": 2}, {"name": "two", "slots": 2}]}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with tempfile.TemporaryDirectory(prefix="whistle-") as directory:
        file = Path(directory) / "pools.yaml"
        file.write_text("pools: [{name: first, slots: 1, market: spot}, {name: local, price: 7}]")
        with ServerProcess(Path(directory) / "data", extra=("--pools", str(file))) as made:
            yield made


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    """Finds nothing but the server's own pool, and leaves nothing else behind."""
    made = server.client()
    made.apply_pools("pools: []", prune=True)
    yield made
    made.apply_pools("pools: []", prune=True)


def view(here: World, name: str) -> PoolView:
    with here.context.database.read() as connection:
        return pools.view(here.context, connection, name)


def all_hosts(here: World) -> dict[str, HostView]:
    with here.context.database.read() as connection:
        return {each.name: each for each in hosts.views(here.context, connection)}


def held(here: World, pool: str, slots: list[int], host: str | None = None) -> str:
    """An attempt that has these slots of a pool."""
    run = here.submit()
    here.settle()
    attempt = here.attempt(run.id)
    with here.context.database.write() as connection:
        phases.update_attempt(connection, attempt.id, pool=pool, slots=slots, host=host)
    return attempt.id


def end(here: World, attempt: str, reason: str, **values: Any) -> None:
    with here.context.database.write() as connection:
        phases.update_attempt(connection, attempt, state="failed", reason=reason, ended_at=here.now, **values)


# --- over the API -----------------------------------------------------------------------------------------------------


def test_a_server_makes_the_pools_of_its_file_at_its_start(server: ServerProcess) -> None:
    assert "pool first: added: 1 slot, spot, 1 credit per slot-hour" in server.output()
    assert "pool local: price 1 → 7" in server.output()
    assert server.client().pool("local").price == 7


def test_a_pool_is_made_changed_shown_and_removed(client: Client) -> None:
    made = client.add_pool(
        "spot", slots=3, market="spot", kind="a100", region="eu", provider="aws", price=0.25, rank=-1
    )
    assert (made.slots, made.free, made.market, made.kind, made.rank) == (3, 3, "spot", "a100", -1)
    assert [(host.name, host.first, host.slots) for host in made.hosts] == [("", 0, 3)]
    changed = client.set_pool("spot", slots=0)
    assert (changed.slots, changed.price, changed.kind) == (0, 0.25, "a100"), "what is not given stays"
    assert [slots for _, slots in changed.sizes] == [3, 0], "when there was capacity is remembered"
    names = [pool.name for pool in client.pools()]
    assert (names[0], names[-1]) == ("spot", "local"), "by rank, then by name"
    client.remove_pool("spot")
    with pytest.raises(NotFound, match="no pool spot"):
        client.pool("spot")
    with pytest.raises(NotFound):
        client.remove_pool("spot")
    with pytest.raises(NotFound):
        client.set_pool("spot", slots=1)


def test_in_json_the_class_of_machine_is_called_class(client: Client, server: ServerProcess) -> None:
    with httpx2.Client(base_url=f"{server.url}/api/v1", headers={"Authorization": f"Bearer {server.token}"}) as http:
        first = http.put("/pools/p", json={"slots": 1, "class": "v100", "price": 5})
        assert (first.status_code, first.json()["class"]) == (201, "v100")
        second = http.put("/pools/p", json={"slots": 2})
        assert (second.status_code, second.json()["class"], second.json()["price"]) == (200, "", 1.0), "the whole of it"
        assert http.post("/pools", json={"name": "p", "slots": 2}).status_code == 409
        for name in ("../x", "a b", "a\nb", "", "x" * 101, "<b>"):
            answer = http.post("/pools", json={"name": name, "slots": 1})
            assert answer.status_code == 422, name
        for body in (
            {"slots": -1},
            {"price": -1},
            {"region": "a\x1bb"},
            {"engine": "magic"},
            {"slot": 1},
            {"notices": {"aws": "/x"}},
        ):
            assert http.patch("/pools/p", json=body).status_code == 422, body


def test_everybody_may_look_and_an_admin_changes(client: Client, server: ServerProcess) -> None:
    made = client.create_token("looker", "viewer"), client.create_token("doer", "member")
    try:
        for token in made:
            with Client(server.url, token.token) as other:
                assert other.pools()
                assert other.pool("local").name == "local"
                assert isinstance(other.hosts(), list)
                for refused in (
                    lambda other=other: other.add_pool("x", slots=1),
                    lambda other=other: other.set_pool("local", slots=9),
                    lambda other=other: other.remove_pool("local"),
                    lambda other=other: other.apply_pools("pools: []", prune=True),
                    lambda other=other: other.exclude_host("local", "x"),
                    lambda other=other: other.readmit_host("local", "x"),
                ):
                    with pytest.raises(Forbidden):
                        refused()
    finally:
        for token in made:
            client.revoke_token(token.id)


def test_capacity_that_comes_back_starts_what_waits_for_it(client: Client, server: ServerProcess) -> None:
    client.set_pool("local", slots=1)
    first = server.submit({"name": "t", "kind": "task", "command": ["sleep", "600"]})
    second = server.submit({"name": "t", "kind": "task", "command": ["true"]})
    server.wait(first.id, "running")
    client.set_pool("local", slots=0)
    assert client.run(second.id).status == "queued"
    client.set_pool("local", slots=2)
    assert server.wait(second.id, within=30).status == "completed"
    assert client.kill(first.id).changed


# --- what a change means ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "how many slots"),
        ({"slots": 5, **TWO_HOSTS}, "more than its hosts have, 4"),
        ({"hosts": [{"name": "a", "slots": 1}, {"name": "a", "slots": 1}]}, "same name"),
        ({"slots": 3, "devices": [0, 1]}, "2 devices for 3 slots"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(here: World, values: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        pools.add(here.context, NewPool(name="x", **values))
    with pytest.raises(NotFound):
        view(here, "x")


def test_a_pool_that_somebody_is_on_can_not_be_removed_and_the_own_one_never(here: World) -> None:
    pools.add(here.context, NewPool(name="spot", slots=2))
    attempt = held(here, "spot", [1])
    with pytest.raises(Refused, match=r"can't be removed: run #1 is still there"):
        pools.remove(here.context, "spot")
    with pytest.raises(Refused, match="still there"):
        pools.apply(here.context, ApplyBody(spec="pools: []", prune=True))
    pools.change(here.context, "spot", PoolBody(slots=0))
    assert view(here, "spot").holders[0].slots == [1], "what runs there runs on"
    end(here, attempt, "finished")
    pools.remove(here.context, "spot")
    with pytest.raises(Refused, match="is this machine"):
        pools.remove(here.context, "local")


def test_slots_that_are_held_stay_what_they_are(here: World) -> None:
    pools.add(here.context, NewPool(name="p", **TWO_HOSTS, devices=[0, 1, 2, 3]))
    attempt = held(here, "p", [2], "two")
    for values in (
        {"hosts": [{"name": "two", "slots": 2}, {"name": "one", "slots": 2}]},
        {"hosts": [{"name": "one", "slots": 3}, {"name": "two", "slots": 1}]},
        {"devices": [0, 1, 3, 2]},
        {"devices": [3, 2, 1, 0]},
    ):
        with pytest.raises(Refused, match="slot 2 is held by run #1"):
            pools.change(here.context, "p", PoolBody(**values))
    more = {"hosts": [*TWO_HOSTS["hosts"], {"name": "three", "slots": 1}], "devices": [0, 1, 2, 3, 4]}
    assert pools.change(here.context, "p", PoolBody(**more)).slots == 5, "its size follows its hosts"
    assert pools.change(here.context, "p", PoolBody(hosts=[{"name": "one", "slots": 2}])).slots == 2
    end(here, attempt, "finished")
    pools.change(here.context, "p", PoolBody(**TWO_HOSTS, devices=[]))
    assert view(here, "p").devices is None


RAY = {"address": "10.0.0.1:6379"}


def test_a_pool_stays_where_it_is_while_something_runs_there(here: World) -> None:
    pools.add(here.context, NewPool(name="p", slots=4, ray=RAY))
    attempt = held(here, "p", [2], "two")
    for values in ({"ray": {"address": "10.0.0.2:6379"}}, {"ray": {**RAY, "directory": "/x"}}, {"engine": "local"}):
        with pytest.raises(Refused, match="run #1 is there, and would not be found under another"):
            pools.change(here.context, "p", PoolBody(**values))
    pools.change(here.context, "p", PoolBody(ray={**RAY, "warm": 5}))
    end(here, attempt, "finished")
    pools.change(here.context, "p", PoolBody(ray={"address": "10.0.0.2:6379"}))


def test_a_pool_on_ray_that_is_given_no_slots_has_those_of_its_cluster(here: World) -> None:
    pools.add(here.context, NewPool(name="p", ray=RAY))
    assert view(here, "p").slots == 0
    pools.follow(here.context, "p", 12)
    assert view(here, "p").slots == 12
    pools.change(here.context, "p", PoolBody(ray={**RAY, "warm": 5}))
    pools.follow(here.context, "p", 10)
    assert view(here, "p").slots == 10
    pools.change(here.context, "p", PoolBody(slots=64))
    pools.follow(here.context, "p", 12)
    assert view(here, "p").slots == 64, "who says how many is believed"
    with pytest.raises(BadRequest, match="how many slots"):
        pools.add(here.context, NewPool(name="q"))


def test_who_holds_what_is_told_by_host(here: World) -> None:
    pools.add(here.context, NewPool(name="p", **TWO_HOSTS))
    attempt = held(here, "p", [2, 3], "two")
    with here.context.database.write() as connection:
        phases.ask_preempt(connection, attempt, until=here.now + 30, by="me", why="", at=here.now)
    hosts.exclude(here.context, "p", "one", ExcludeBody(), ME)
    found = view(here, "p")
    assert [(host.name, host.slots, host.free, host.excluded) for host in found.hosts] == [
        ("one", 2, 2, True),
        ("two", 2, 0, False),
    ]
    assert found.free == 0, "what is free on an excluded host can't be had"
    (holder,) = found.holders
    assert (holder.slots, holder.host, holder.phase, holder.attempt) == ([2, 3], "two", "main", 1)
    assert holder.leaves_at is not None


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_reclaims_are_counted_against_the_time_that_was_had(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    url = request.getfixturevalue("postgres_url") if database == "postgres" else None
    with world(tmp_path, url) as here:
        pools.add(here.context, NewPool(name="spot", slots=4))
        attempts = [held(here, "spot", [slot], "n") for slot in (0, 1)]
        here.now += 3600
        end(here, attempts[0], "preempted")
        end(here, attempts[1], "preempted", preempt_asked_at=here.now)
        found = view(here, "spot")
        assert (found.reclaims, found.held_hours) == (1, pytest.approx(2.0)), "an order of ours is not the pool's doing"
        (host,) = all_hosts(here).values()
        assert (host.pool, host.name, host.attempts, host.slots) == ("spot", "n", 2, None)
        here.now += 2 * 86400
        assert view(here, "spot").reclaims == 0, "a day is what is told"


# --- a file -----------------------------------------------------------------------------------------------------------


def test_a_file_is_applied_as_a_whole_and_leaves_alone_what_it_does_not_name(here: World) -> None:
    pools.add(here.context, NewPool(name="old", slots=1, kind="v100", price=3.0))
    text = "pools:\n- {name: old, price: 2}\n- {name: new, market: spot, hosts: [{name: n, slots: 3}]}\n"
    asked = pools.apply(here.context, ApplyBody(spec=text, dry_run=True))
    assert [(each.pool, each.change, each.text) for each in asked.changes] == [
        ("old", "changed", "price 3 → 2"),
        ("new", "added", "added: 3 slots, spot, 1 credit per slot-hour"),
    ]
    assert (asked.done, view(here, "old").price) == (False, 3.0)
    assert pools.apply(here.context, ApplyBody(spec=text)).done
    assert (view(here, "old").price, view(here, "old").kind, view(here, "new").slots) == (2.0, "v100", 3)
    pools.change(here.context, "new", PoolBody(slots=0))
    again = pools.apply(here.context, ApplyBody(spec=text))
    assert [each.change for each in again.changes] == ["same", "same"]
    assert view(here, "new").slots == 0, "it is away, whatever hosts it had"
    with pytest.raises(BadRequest, match="how many slots"):
        pools.apply(here.context, ApplyBody(spec="pools:\n- {name: old, price: 9}\n- {name: third}\n"))
    assert view(here, "old").price == 2.0, "all of it or nothing"
    pruned = pools.apply(here.context, ApplyBody(spec="pools: [{name: new, slots: 1}]", prune=True))
    assert [(each.pool, each.change) for each in pruned.changes] == [("new", "changed"), ("old", "removed")]
    with here.context.database.read() as connection:
        assert [row.name for row in store.all_pools(connection)] == ["local", "new"], "the own one stays"


# --- hosts ------------------------------------------------------------------------------------------------------------


def test_a_host_is_excluded_for_a_while_or_until_it_is_readmitted(here: World) -> None:
    pools.add(here.context, NewPool(name="p", **TWO_HOSTS))
    done = hosts.exclude(here.context, "p", "one", ExcludeBody(for_s=3600, note="fan"), ME)
    assert "is excluded until" in done.text
    assert (done.host.excluded, done.host.excluded_by, done.host.note) == (True, "me", "fan")
    here.now += 3601
    assert not all_hosts(here)["one"].excluded
    hosts.exclude(here.context, "p", "one", ExcludeBody(), ME)
    here.now += 1e7
    assert all_hosts(here)["one"].excluded
    again = hosts.readmit(here.context, "p", "one", ReadmitBody())
    assert (again.changed, again.host.excluded) == (True, False)
    assert not hosts.readmit(here.context, "p", "one", ReadmitBody()).changed
    for pool, name in (("p", "three"), ("q", "one")):
        with pytest.raises(NotFound):
            hosts.exclude(here.context, pool, name, ExcludeBody(), ME)


def test_bad_ends_are_told_with_their_runs_until_the_host_is_readmitted(here: World) -> None:
    pools.add(here.context, NewPool(name="p", **TWO_HOSTS))
    for reason in ("host_lost", "finished"):
        attempt = held(here, "p", [0], "one")
        here.now += 5
        end(here, attempt, reason)
    found = all_hosts(here)["one"]
    assert [(each.number, each.reason) for each in found.bad] == [(1, "host_lost")]
    assert found.attempts == 2
    hosts.readmit(here.context, "p", "one", ReadmitBody())
    assert all_hosts(here)["one"].bad == []


def test_a_host_that_only_a_runner_told_of_can_not_be_excluded(here: World) -> None:
    held(here, "local", [0], "box")
    (found,) = all_hosts(here).values()
    assert (found.pool, found.name, found.slots, found.running) == ("local", "box", None, 1)
    with pytest.raises(Refused, match="names no hosts"):
        hosts.exclude(here.context, "local", "box", ExcludeBody(), ME)
