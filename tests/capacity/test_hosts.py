"""Which hosts are not used, for how long, and what does not count against them."""

from typing import Any

import pytest

from whistlestop.capacity.hosts import HALF_LIFE, End, Said, Standing, shut, standings
from whistlestop.capacity.pools import Host, Pool
from whistlestop.domain.reasons import EndReason as R

NOW = 1e6
HOUR = 3600.0


def pool(count: int) -> Pool:
    return Pool("p", count, 1.0, hosts=tuple(Host(f"h{index}", (index,)) for index in range(count)))


def bad(host: str = "h0", reason: R = R.RUNNER_LOST, *, run: str = "", ago: float = 0.0, **more: Any) -> End:
    bad.count += 1  # type: ignore[attr-defined]
    name = run or f"run{bad.count}"  # type: ignore[attr-defined]
    return End(("p", host), NOW - ago, reason, name, name=name, **more)


bad.count = 0  # type: ignore[attr-defined]


def of(ends: list[End], *, hosts: int = 4, said: dict[tuple[str, str], Said] | None = None, now: float = NOW) -> Any:
    found = standings([pool(hosts)], ends, said or {}, now)
    return {place[1]: each for place, each in found.items()}


def excluded(found: dict[str, Standing]) -> set[str]:
    return {name for name, each in found.items() if each.excluded}


def test_three_bad_ends_exclude_a_host_and_two_do_not() -> None:
    assert excluded(of([bad(), bad()])) == set()
    found = of([bad(ago=60), bad(ago=30), bad()])
    assert excluded(found) == {"h0"}
    assert found["h0"].why.startswith("3 bad ends: runner lost, until ")
    assert shut(standings([pool(4)], [bad(), bad(), bad()], {}, NOW)) != {}


def test_three_that_are_far_apart_do_not_add_up() -> None:
    assert excluded(of([bad(ago=2 * HALF_LIFE), bad(ago=HALF_LIFE), bad()])) == set()


def test_it_stays_excluded_until_its_record_has_faded_to_one() -> None:
    ends = [bad(), bad(), bad()]
    until = of(ends)["h0"].until
    assert until == pytest.approx(NOW + 1.585 * HALF_LIFE, rel=1e-4)
    assert excluded(of(ends, now=until - 1)) == {"h0"}
    assert excluded(of(ends, now=until + 1)) == set()
    assert excluded(of([*ends, End(("p", "h0"), until + 60, R.HOST_LOST, "x")], now=until + 60)) == set()


def test_a_person_readmits_and_what_was_before_counts_no_more() -> None:
    ends = [bad(ago=60), bad(ago=50), bad(ago=40)]
    said = {("p", "h0"): Said(readmitted_at=NOW - 30)}
    assert of(ends, said=said)["h0"] == Standing(("p", "h0"), 1)
    assert excluded(of([*ends, bad(), bad()], said=said)) == set()
    assert excluded(of([*ends, bad(), bad(), bad()], said=said)) == {"h0"}


def test_a_person_excludes_as_many_as_they_like_for_as_long_as_they_like() -> None:
    said = {("p", f"h{index}"): Said(NOW, NOW + HOUR, "ada", note="moving") for index in range(4)}
    found = of([], said=said)
    assert excluded(found) == {"h0", "h1", "h2", "h3"}
    assert found["h1"].why.startswith("excluded by ada until ")
    assert found["h1"].why.endswith(": moving")
    assert excluded(of([], said=said, now=NOW + HOUR + 1)) == set()


def test_no_more_than_a_quarter_is_excluded_by_itself_the_worst_first() -> None:
    ends = [bad(f"h{host}") for host in range(3) for _ in range(3 + host)]
    found = of(ends, hosts=8)
    assert excluded(found) == {"h1", "h2"}
    assert found["h0"].why.endswith("but no more than a quarter of pool p is excluded at once")


def test_the_last_one_is_never_excluded_by_itself() -> None:
    found = of([bad(f"h{host}") for host in range(2) for _ in range(3 + host)], hosts=2)
    assert excluded(found) == {"h1"}
    assert found["h0"].why == "host h0 would be excluded (3 bad ends: runner lost) but is the only one left"
    said = {("p", "h1"): Said(NOW, None, "ada")}
    assert excluded(of([bad(), bad(), bad()], hosts=2, said=said)) == {"h1"}


def test_a_host_that_is_away_is_nothing_to_fall_back_on() -> None:
    half = Pool("p", 1, 1.0, hosts=(Host("h0", (0,)), Host("h1", ())))
    found = standings([half], [bad(), bad(), bad()], {}, NOW)
    assert not found["p", "h0"].excluded
    assert found["p", "h0"].why.endswith("but is the only one left")


def test_a_host_that_is_away_does_not_take_the_place_of_a_bad_one_that_is_there() -> None:
    some = Pool("p", 2, 1.0, hosts=(Host("h0", (0,)), Host("h1", (1,)), Host("h2", ())))
    ends = [bad(host) for host in ("h0", "h0", "h0", "h2", "h2", "h2", "h2")]
    found = standings([some], ends, {}, NOW)
    assert [found["p", name].excluded for name in ("h0", "h1", "h2")] == [True, False, True]


@pytest.mark.parametrize(
    "reason", [R.PREEMPTED, R.COMMAND_NOT_FOUND, R.PAUSED, R.KILLED, R.ENDED_EARLY, R.STORAGE_AWAY]
)
def test_what_is_not_a_hosts_fault_never_counts(reason: R) -> None:
    assert of([bad(reason=reason) for _ in range(9)])["h0"].weight == 0


def test_a_program_that_failed_counts_if_it_went_on_elsewhere_past_that_point() -> None:
    fails = [bad(reason=R.CODE_RAISED, run=f"r{n}", ago=60, step=7) for n in range(3)]
    further = [bad("h1", R.PREEMPTED, run=f"r{n}", step=9) for n in range(3)]
    nearer = [bad("h1", R.PREEMPTED, run=f"r{n}", step=5) for n in range(3)]
    assert excluded(of([*fails[:2], bad(reason=R.RUNNER_LOST), *further])) == {"h0"}
    assert len(of(fails[:2] + nearer[:2])["h0"].bad) == 0


def test_different_programs_that_fail_on_one_host_count_unless_one_succeeds_there() -> None:
    fails = [bad(reason=R.OUT_OF_MEMORY, ago=60 - n) for n in range(3)]
    assert excluded(of(fails)) == {"h0"}
    assert excluded(of([*fails, bad(reason=R.FINISHED)])) == set()
    same = [bad(reason=R.CODE_RAISED, run="mine") for _ in range(5)]
    assert excluded(of(same)) == set(), "one program that fails again and again is its own fault"


def test_what_a_run_had_elsewhere_too_says_nothing_of_a_host() -> None:
    both = [bad(host, R.PREPARE_FAILED, run="mine", ago=n) for n in range(5) for host in ("h0", "h1")]
    assert excluded(of(both)) == set()
    lost = [bad(host, R.HOST_LOST, run="mine", ago=n) for n in range(3) for host in ("h0", "h1")]
    assert excluded(of(lost, hosts=8)) == {"h0", "h1"}, "a host that went has gone"
