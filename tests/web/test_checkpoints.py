"""The tab of checkpoints in a real browser, with a run that saves behind it."""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

import whistlestop.testing.programs
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.api import RunView

PROGRAMS = Path(whistlestop.testing.programs.__file__).parent
SOON = 60_000


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with (
        tempfile.TemporaryDirectory(prefix="whistle-") as directory,
        ServerProcess(Path(directory) / "server", slots=2) as started,
    ):
        yield started


@pytest.fixture(autouse=True)
def nothing_left(server: ServerProcess) -> Iterator[None]:
    yield
    server.clear()


def train(server: ServerProcess, name: str, *, steps: int, every: int) -> RunView:
    phase = {
        "name": "train",
        "command": "python loop.py",
        "env": {"PACE": "0.01", "STEPS": str(steps)},
        "checkpoint": {"every": f"{every} steps", "keep": 9},
    }
    return server.submit(phase, name=name, directory=PROGRAMS)


def row(page: Page, step: int) -> Locator:
    return page.locator(".checkpoint-table tbody tr").filter(
        has=page.get_by_role("rowheader", name=str(step), exact=True)
    )


def choose(page: Page, step: int, item: str) -> None:
    page.get_by_role("button", name=f"Actions of the checkpoint at step {step} of train", exact=True).click()
    page.get_by_role("menuitem", name=item).click()


def test_a_checkpoint_is_verified_pinned_removed_brought_back_and_continued_from(
    server: ServerProcess, page_of: Any, check_page: Callable[[Page, str], None]
) -> None:
    run = train(server, "saves", steps=60, every=20)
    server.wait(run.id, "completed")
    page = page_of(server)
    page.goto(f"/runs/{run.id}?tab=checkpoints")
    expect(row(page, 60)).to_contain_text("newest", timeout=SOON)
    choose(page, 20, "Pin")
    expect(row(page, 20)).to_contain_text("pinned", timeout=SOON)
    choose(page, 20, "Unpin")
    expect(row(page, 20)).not_to_contain_text("pinned", timeout=SOON)

    choose(page, 40, "Verify…")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Verify").click()
    expect(dialog.get_by_role("status")).to_contain_text("is intact", timeout=SOON)
    check_page(page, "dialog-verify")
    dialog.get_by_role("button", name="Close").last.click()

    choose(page, 60, "Remove…")
    expect(dialog).to_contain_text("a resume would take it")
    expect(dialog.get_by_role("button", name="Remove", exact=True)).to_be_disabled()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Actions of the checkpoint at step 20 of train").focus()
    for key in ("Enter", "End", "Enter"):  # by keyboard alone
        page.keyboard.press(key)
    dialog.get_by_role("button", name="Remove", exact=True).click()
    expect(row(page, 20)).to_contain_text("removed", timeout=SOON)
    check_page(page, "run-checkpoints")
    assert [one.step for one in server.client().checkpoints(run.id)] == [60, 40]
    choose(page, 20, "Bring it back")
    expect(row(page, 20)).to_contain_text("pinned", timeout=SOON)

    damaged = Path(server.client().checkpoints(run.id)[0].path or "")
    file = next(each for each in sorted(damaged.rglob("*")) if each.is_file() and each.name != "manifest.json")
    file.chmod(0o600)
    file.write_bytes(b"!" * file.stat().st_size)
    choose(page, 60, "Verify…")
    dialog.get_by_role("button", name="Verify").click()
    expect(dialog.get_by_role("status")).to_contain_text("is damaged", timeout=SOON)
    dialog.get_by_role("button", name="Close").last.click()
    expect(row(page, 60)).to_contain_text("damaged", timeout=SOON)
    expect(row(page, 40)).to_contain_text("newest")

    choose(page, 20, "Continue from here…")
    dialog.get_by_role("button", name="Continue from step 20").click()
    expect(page).not_to_have_url(re.compile(run.id), timeout=SOON)
    child = server.client().run(page.url.rpartition("/")[2])
    assert child.parent is not None
    assert child.parent.step == 20


def test_a_viewer_looks_and_what_is_at_risk_and_a_save_that_fails_are_told_live(
    server: ServerProcess, page_of: Any, check_page: Callable[[Page, str], None]
) -> None:
    run = train(server, "risky", steps=100_000, every=100)
    client = server.client()
    token = client.create_token("looker", "viewer").token
    assert token is not None
    page = page_of(server, token)
    page.goto(f"/runs/{run.id}")
    expect(page.locator("[data-risk=train]")).to_contain_text(re.compile(r"At\s+risk now: [\d,]+ step"), timeout=SOON)
    page.get_by_role("link", name="Checkpoints").click()
    expect(row(page, 100)).to_be_visible(timeout=SOON)
    expect(page.locator("[data-risk=train]")).to_contain_text("since the checkpoint at step")
    expect(page.locator("[data-next-save=train]")).to_contain_text(re.compile(r"Next save: .*\(every 100 steps\)"))
    page.get_by_role("button", name="Actions of the checkpoint at step 100 of train", exact=True).click()
    expect(page.get_by_role("menuitem", name="Pin")).to_have_attribute("aria-disabled", "true")
    page.keyboard.press("Escape")

    place = Path(client.checkpoints(run.id)[0].path or "").parent
    os.rename(place, place.with_name("aside"))
    place.write_text("a file where a directory should be")
    try:
        expect(page.locator(".alert")).to_contain_text("A save failed", timeout=SOON)
        expect(page.locator(".failed-saves")).to_contain_text("train")
        check_page(page, "run-save-failed")
    finally:
        place.unlink()
        os.rename(place.with_name("aside"), place)
    expect(page.locator(".alert")).to_have_count(0, timeout=3 * SOON)
    before = len(client.checkpoints(run.id))
    until(lambda: len(client.checkpoints(run.id)) != before or before > 2, what="saves to go on")
