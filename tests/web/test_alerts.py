"""The alerts page in a real browser: who is told, how they do, a test, and what only an admin may do."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.webhooks import Receiver


@pytest.fixture
def server(shared_server: ServerProcess) -> Iterator[ServerProcess]:
    yield shared_server
    with shared_server.client() as client:
        for each in client.receivers():
            client.remove_receiver(each.name)


def row(page: Page, name: str) -> Any:
    return page.locator(f"tr[data-receiver='{name}']")


def test_a_receiver_is_added_tested_and_removed_and_its_secret_is_shown_once(
    server: ServerProcess, page_of: Any, check_page: Callable[[Page, str], None]
) -> None:
    page = page_of(server)
    page.goto("/queue")
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("a")
    expect(page.get_by_text("Nobody is told of anything")).to_be_visible()
    with Receiver() as hook, Receiver(then=500) as broken:
        page.get_by_role("button", name="Add a receiver…").click()
        page.get_by_label("Name").fill("ops")
        page.get_by_label("Address").fill("nonsense")
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.get_by_text("this is no address")).to_be_visible()
        assert any("400" in error for error in page_of.errors(page))  # the browser's own word of the refusal
        page.get_by_label("Address").fill(hook.url)
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.get_by_text("whsec_")).to_be_visible()
        check_page(page, "alerts-secret")
        page.get_by_role("button", name="I have kept it").click()
        expect(row(page, "ops")).to_contain_text("nothing was sent yet")
        expect(row(page, "ops")).to_contain_text("http://127.0.0.1/…")
        with server.client() as client:
            client.add_receiver("broken", broken.url, project="vision", on=["failed", "stuck"])
        run = server.submit({"name": "a", "command": "exit 3", "kind": "task"}, name="night", project="vision")
        server.wait(run.id)
        page.get_by_role("button", name="Test the receiver ops").click()
        until(lambda: len(hook.taken) >= 2, what="the alert and the test to be taken")
        expect(row(page, "ops")).to_contain_text("well")
        expect(row(page, "broken")).to_contain_text("it answered 500 Internal Server Error")
        expect(page.get_by_text("tries out the receiver ops")).to_be_visible()
        expect(page.get_by_role("link", name=f"Run #{run.number} vision/night has failed").first).to_be_visible()
        check_page(page, "alerts")
        page.get_by_role("button", name="Remove the receiver broken").click()
        page.get_by_role("button", name="Remove", exact=True).click()
        expect(row(page, "broken")).to_have_count(0)


def test_a_viewer_sees_who_is_told_and_has_no_buttons(server: ServerProcess, page_of: Any) -> None:
    with server.client() as client:
        client.add_receiver("ops", "https://hooks.example.org/secret-part")
        made = client.create_token("alerts-looker", "viewer")
        page = page_of(server, made.token)
        page.goto("/alerts")
        expect(row(page, "ops")).to_contain_text("https://hooks.example.org/…")
        expect(page.locator("main").get_by_role("button")).to_have_count(0)
        assert "secret-part" not in page.content()
        client.revoke_token(made.id)
