"""New run in a real browser: form and text side by side, mistakes where they are, the code that it takes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, Route, expect

from whistlestop.testing.server import ServerProcess

SPEC = """\
name: tune
project: new
# how fast it learns
phases:
  - name: train
    kind: task
    command: test -f marker && echo "lr $LR"
    env: {LR: 0.1}
"""


def lose_the_answer(route: Route) -> None:
    route.fetch()
    route.abort()


def yaml(page: Page) -> str:
    return page.get_by_label("whistle.yaml").input_value()


def test_a_run_is_made_from_a_workflow_with_a_changed_value(
    web_server: ServerProcess, page_of: Any, refused: Any, check_page: Callable[[Page, str], None], tmp_path: Path
) -> None:
    server = web_server
    (tmp_path / "marker").write_text("")
    with server.client() as client:
        client.save_workflow("tune", SPEC)
        first = client.submit(workflow="tune", in_place=str(tmp_path), env={"PATH": "/usr/bin:/bin"})
    assert server.wait(first.id).status == "completed"
    page = page_of(server)
    page.goto("/new?workflow=tune&project=new")
    expect(page.locator(".verdict")).to_have_text("valid")
    expect(page.locator(f"[data-code='{first.number}']")).to_contain_text(f"runs in place in {tmp_path}")
    page.get_by_label("LR", exact=True).fill("0.02")
    expect(page.get_by_label("whistle.yaml")).to_have_value(re.compile(r"\{LR: 0\.02\}"))
    assert yaml(page) == SPEC.replace("0.1", "0.02"), "the comment and the order are as they were"
    page.get_by_label("Name of a new environment variable").first.fill("SEED")
    page.get_by_role("button", name="Add variable").first.click()
    page.get_by_label("SEED", exact=True).fill("7")
    expect(page.get_by_label("whistle.yaml")).to_have_value(re.compile("SEED: 7"))
    check_page(page, "new-run")
    page.get_by_label("Note (optional)").fill("from the browser")
    with refused(page, "**/api/v1/runs", lose_the_answer):
        page.get_by_role("button", name="Submit run").click()
        expect(page.get_by_role("alert").first).to_contain_text("The server can't be reached")
    page.get_by_label("SEED", exact=True).fill("8")
    expect(page.get_by_label("whistle.yaml")).to_have_value(re.compile("SEED: 8"))
    page.get_by_role("button", name="Submit run").click()
    expect(page).to_have_url(re.compile("/runs/r-"))
    made = server.wait(page.url.rpartition("/")[2])
    assert "SEED: 8" in (made.spec or ""), "not taken for the one whose answer was lost"
    assert made.status == "completed", "it has the code of the first"
    assert (made.workflow, made.note, made.code) == ("tune@1", "from the browser", first.code)
    assert "# how fast it learns" in (made.spec or "")
    assert "lr 0.02" in server.logs(made.id)


def test_a_mistake_is_shown_at_its_field_and_its_line_as_one_types(
    web_server: ServerProcess, page_of: Any, refused: Any, check_page: Callable[[Page, str], None]
) -> None:
    page = page_of(web_server)
    page.goto("/new?project=new")
    expect(page.locator(".verdict")).to_have_text("valid")
    assert "project: new" in yaml(page)
    field = page.locator("[data-path='phases.0.slots']")
    field.get_by_label("Slots", exact=True).fill("many")
    expect(page.locator(".verdict")).to_have_text("1 mistake")
    expect(field.locator(".field-error")).to_contain_text("must be a whole number")
    expect(page.locator(".editor-number.is-wrong")).to_have_text("6")
    expect(page.get_by_role("button", name="Submit run")).to_be_disabled()
    check_page(page, "new-run-mistake")
    field.get_by_label("Slots", exact=True).fill("2")
    expect(page.locator(".verdict")).to_have_text("valid")
    editor = page.get_by_label("whistle.yaml")
    editor.fill(yaml(page).replace("command:", "comand:"))
    expect(page.locator(".spec-problem", has_text="comand")).to_contain_text('unknown key (did you mean "command"?)')
    page.locator(".spec-problem", has_text="comand").click()
    line = page.evaluate(
        "(area) => area.value.slice(0, area.selectionStart).split('\\n').length", editor.element_handle()
    )
    assert line == 5, "the click went to the line"
    editor.fill(yaml(page).replace("comand:", "command: [").replace("slots: 2", "slots: 3"))
    expect(page.get_by_text("The YAML can't be read now")).to_be_visible()
    editor.fill(yaml(page).replace("command: [", "command:"))
    expect(page.locator(".verdict")).to_have_text("valid")
    expect(field.get_by_label("Slots", exact=True)).to_have_value("3")
    assert page_of.errors(page) == []
    with refused(page, "**/api/v1/check"):
        field.get_by_label("Slots", exact=True).fill("1")
        expect(page.locator(".verdict")).to_have_text("not checked")
    expect(page.get_by_role("button", name="Submit run")).to_be_enabled()  # without another letter


def test_what_was_written_is_not_replaced_unasked_and_no_code_is_taken_unasked(
    web_server: ServerProcess, page_of: Any, tmp_path: Path
) -> None:
    (tmp_path / "other.py").write_text("")
    task = {"name": "a", "kind": "task", "command": "true"}
    web_server.submit(task, name="other", project="careful", directory=tmp_path)
    with web_server.client() as client:
        client.save_workflow("unused", SPEC.replace("test -f marker", "python fit.py"))
    page = page_of(web_server)
    page.goto("/new?project=careful")
    expect(page.locator(".verdict")).to_have_text("valid")
    expect(page.get_by_label("Code version")).to_have_value("")
    expect(page.locator(".code-card")).to_contain_text("The command names train.py")
    editor = page.get_by_label("whistle.yaml")
    editor.fill(yaml(page).replace("python train.py", "nvidia-smi"))
    expect(page.locator(".code-card")).not_to_contain_text("The command names")
    page.get_by_label("Begin with").select_option("unused")
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    assert "nvidia-smi" in yaml(page)
    expect(page.get_by_label("Begin with")).to_have_value("")
    page.get_by_label("Begin with").select_option("unused")
    page.get_by_role("dialog").get_by_role("button", name="Replace it").click()
    expect(editor).to_have_value(re.compile("python fit.py"))
    expect(page.locator(".code-card")).to_contain_text("The command names fit.py")


def test_another_run_can_be_changed_and_what_can_not_fit_is_refused_in_words(
    web_server: ServerProcess, page_of: Any
) -> None:
    server = web_server
    first = server.submit({"name": "a", "kind": "task", "command": "true"}, name="origin", project="new")
    page = page_of(server)
    page.goto(f"/new?from={first.id}")
    expect(page.locator(".verdict")).to_have_text("valid")
    expect(page.get_by_text(re.compile(rf"From .*#{first.number}", re.S)).first).to_be_visible()
    page.locator("[data-path='phases.0.slots']").get_by_label("Slots", exact=True).fill("9")
    expect(page.get_by_label("whistle.yaml")).to_have_value(re.compile("slots: 9"))
    expect(page.locator(".verdict")).to_have_text("valid")
    page.get_by_role("button", name="Submit run").click()
    expect(page.get_by_role("alert").first).to_contain_text("the largest pool has 2")
    page.locator("[data-path='phases.0.slots']").get_by_label("Slots", exact=True).fill("")
    expect(page.get_by_label("whistle.yaml")).not_to_have_value(re.compile("slots"))
    page.get_by_role("button", name="Submit run").click()
    expect(page).to_have_url(re.compile("/runs/r-"))
    assert server.wait(page.url.rpartition("/")[2]).name == "origin"
