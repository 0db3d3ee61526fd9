"""Pools, hosts and usage in a real browser: what there is, who has it, what it costs, and what only an admin may do."""

import re
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from whistlestop.testing.server import ServerProcess

POOLS = """\
pools:
  - name: spot
    market: spot
    class: a100
    region: eu-west-1
    price: 0.3
    hosts: [{name: node-1, slots: 4}, {name: node-2, slots: 4}, {name: node-3, slots: 2}]
  - {name: reserved, slots: 2, class: a100, price: 1.25, rank: 1}
  - {name: night, market: spot, slots: 0, price: 0.1, rank: 2}
"""
# Deaf: one that is told to leave stays until its time is up.
SLEEP = {"name": "only", "kind": "task", "command": "trap '' INT TERM; sleep 600"}
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """Two runs on a spot pool, and a host that three others have failed on."""
    with tempfile.TemporaryDirectory(prefix="whistle-") as directory:
        file = Path(directory) / "pools.yaml"
        file.write_text(POOLS)
        with ServerProcess(Path(directory) / "server", extra=("--pools", str(file))) as started:
            made = [
                started.submit({**SLEEP, "slots": slots, "capacity": {"class": "a100"}}, name=name)
                for name, slots in (("wide", 3), ("narrow", 1))
            ]
            past = [
                started.submit({**SLEEP, "command": "true"}, name=name, project="past")
                for name in ("first", "second", "third")
            ]
            for run in made:
                started.wait(run.id, "running")
            for run in past:
                started.wait(run.id)
            _fail(started)
            _spend(started)
            yield started


def _fail(server: ServerProcess) -> None:
    """The three that are over ended badly."""
    with sqlite3.connect(server.data / "whistlestop.db", timeout=30) as database:
        of_past = "run_id IN (SELECT id FROM runs WHERE project = 'past')"
        database.execute(
            f"UPDATE attempts SET reason = 'host_lost', state = 'lost', pool = 'spot', host = 'node-3' WHERE {of_past}"
        )


def _spend(server: ServerProcess) -> None:
    """Two weeks of it: 2.5 credits a day on spot, 4 on demand, of runs that are long gone."""
    start = time.time() - 14 * 86400
    rows = []
    for day in range(14):
        at = start + day * 86400
        for pool, market, price, kinds in (
            ("spot", "spot", 0.25, {"starting": 0.5, "productive": 8.0, "redone": 1.0, "saving": 0.5}),
            ("reserved", "on_demand", 1.25, {"productive": 3.0, "stalled": 0.2}),
        ):
            for kind, hours in kinds.items():
                run = (f"r-{pool}", 900 + len(pool), EVIL if pool == "spot" else "steady")
                spent = (kind, at, at + hours * 3600, 1, price, hours * price)
                rows.append((f"a-{day}-{pool}", *run, "vision", "resnet@3", "train", day + 1, pool, market, *spent))
    columns = (
        "attempt_id, run_id, number, run_name, project, workflow, phase, attempt, pool, market, kind, since, until"
    )
    with sqlite3.connect(server.data / "whistlestop.db", timeout=30) as database:
        marks = ", ".join("?" * 16)
        database.executemany(f"INSERT INTO ledger ({columns}, slots, price, credits) VALUES ({marks})", rows)


@pytest.fixture
def looker(server: ServerProcess) -> Iterator[str]:
    client = server.client()
    made = client.create_token("looker", "viewer")
    assert made.token is not None
    yield made.token
    client.revoke_token(made.id)


def card(page: Page, pool: str) -> Any:
    return page.locator(f"[data-pool={pool}]")


def row(page: Page, host: str) -> Any:
    return page.locator(f"tr[data-host='{host}']")


def test_pools_show_slots_by_host_who_has_them_and_change_by_themselves(
    server: ServerProcess, page_of: Any, check_page: Callable[[Page, str], None]
) -> None:
    page = page_of(server)
    page.goto("/queue")
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("p")
    expect(page).to_have_url(re.compile("/pools$"))
    spot = card(page, "spot")
    expect(spot.locator(".square")).to_have_count(10)
    expect(spot.locator(".square.is-held")).to_have_count(4)
    expect(spot).to_contain_text("4 of 10 slots")
    expect(spot.get_by_role("link", name=re.compile("run #1 wide")).first).to_be_visible()
    expect(spot.locator("[data-host=node-3]")).to_contain_text("excluded")
    expect(spot).to_contain_text("2 excluded")
    expect(page.locator(".page-head")).to_contain_text("8 of 14 slots free")
    expect(card(page, "night")).to_contain_text("Away")
    check_page(page, "pools")
    with server.client() as client:
        client.set_pool("night", slots=1)
        expect(card(page, "night").locator(".square")).to_have_count(1)
    page.get_by_role("button", name="Change pool night").click()
    page.get_by_role("textbox", name="Slots").fill("x")
    expect(page.get_by_role("dialog").get_by_role("button", name="Change")).to_be_disabled()
    page.get_by_role("textbox", name="Slots").fill("0")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(card(page, "night")).to_contain_text("Away")
    expect(card(page, "night").get_by_role("img")).to_have_attribute("aria-label", re.compile("2 changes"))


def test_a_host_is_excluded_and_readmitted_with_a_question_before(
    server: ServerProcess, page_of: Any, check_page: Callable[[Page, str], None]
) -> None:
    page = page_of(server)
    page.goto("/hosts")
    failed = row(page, "spot/node-3")
    expect(failed).to_contain_text("3 bad ends")
    expect(failed.get_by_role("link")).to_have_count(3)
    check_page(page, "hosts")
    page.get_by_role("button", name="Exclude host node-2 of spot").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Nothing new is placed")
    dialog.get_by_label("How long").select_option("for an hour")
    dialog.get_by_label("Note").fill(EVIL)
    check_page(page, "dialog-exclude")
    dialog.get_by_role("button", name="Exclude").click()
    expect(row(page, "spot/node-2")).to_contain_text(f"by local: {EVIL}")
    assert page.locator("main img").count() == 0, "names and notes are text"
    page.get_by_role("button", name="Readmit host node-2 of spot").click()
    page.get_by_role("dialog").get_by_role("button", name="Readmit").click()
    expect(row(page, "spot/node-2")).to_contain_text("in use")


def test_a_viewer_looks_and_has_no_buttons(server: ServerProcess, page_of: Any, looker: str) -> None:
    page = page_of(server, looker)
    for path, there in (("/pools", "[data-pool=spot]"), ("/hosts", "tr[data-host]"), ("/usage", ".usage-totals")):
        page.goto(path)
        expect(page.locator(there).first).to_be_visible()
        assert page.locator("main button").count() == 0, path


def test_an_attempt_says_why_it_is_where_it_is_and_when_it_has_to_leave(
    server: ServerProcess, page_of: Any, check_page: Callable[[Page, str], None]
) -> None:
    client = server.client()
    run = client.run("narrow")
    page = page_of(server)
    page.goto(f"/runs/{run.id}?tab=attempts")
    why = run.phases[0].attempts[0].why_here
    assert why
    expect(page.locator(".attempt-here")).to_contain_text(why)
    client.preempt(run.id, notice_s=600)
    expect(page.locator(".attempt-leaves")).to_contain_text("has to leave")
    expect(page.locator(".alert")).to_contain_text("Its capacity goes")
    check_page(page, "run-attempts-leaving")


def test_a_run_says_what_its_credits_were_spent_on(server: ServerProcess, page_of: Any) -> None:
    run = server.client().run("first")
    attempt = run.phases[0].attempts[0]
    columns = (
        "attempt_id, run_id, number, run_name, project, workflow, phase, attempt, pool, market, kind, since, until"
    )
    with sqlite3.connect(server.data / "whistlestop.db", timeout=30) as database:
        for kind, credits in (("redone", 0.5), ("productive", 1.5), ("saving", 0.001)):
            given = (
                f"{attempt.id}-more",
                run.id,
                run.number,
                run.name,
                "elsewhere",
                "",
                "only",
                1,
                "spot",
                "spot",
                kind,
            )
            database.execute(
                f"INSERT INTO ledger ({columns}, slots, price, credits) VALUES ({', '.join('?' * 16)})",
                (*given, 0.0, 1.0, 1, 1.0, credits),
            )
    page = page_of(server)
    page.goto(f"/runs/{run.id}")
    expect(page.locator(".spent-on li")).to_have_text(["1.50 productive", "0.50 done again"])


def test_usage_adds_up_by_day_and_by_whom_and_a_budget_is_set(
    server: ServerProcess, page_of: Any, check_page: Callable[[Page, str], None]
) -> None:
    page = page_of(server)
    page.goto("/usage")
    spot, reserved = 14 * 2.5, 14 * 4.0
    expect(page.locator("[data-group=vision]")).to_contain_text(f"{spot + reserved:.2f}")
    expect(page.locator(".days-hit")).not_to_have_count(0)
    expect(page.locator(".days-legend")).to_contain_text("done again")
    page.get_by_role("button", name="Set a budget").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Project").fill("vision")
    dialog.get_by_label("Credits").fill("120")
    dialog.get_by_role("button", name="Set").click()
    expect(page.locator("[data-budget=vision]")).to_contain_text("120.00")
    check_page(page, "usage")
    page.get_by_role("button", name="Change the budget of vision").click()
    check_page(page, "dialog-budget")
    dialog.get_by_role("button", name="Take the budget away").click()
    expect(page.locator("[data-budget=vision]")).to_have_count(0)
    page.get_by_role("link", name="Pools").last.click()
    expect(page.locator("[data-group=reserved]")).to_contain_text(f"{reserved:.2f}")
    page.get_by_role("link", name="Runs").click()
    expect(page.locator("[data-group=r-spot]")).to_contain_text(EVIL)
    assert page.locator("main img").count() == 0, "names are text"
    page.get_by_label("Week").check()
    expect(page.locator("[data-group=r-spot]")).not_to_contain_text(f"{spot:.2f}")
