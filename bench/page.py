"""The page: how soon a list of 10,000 runs can be used, and how smoothly ten charts move while they stream.

    python bench/page.py [--quick] [--runs 10000] [--out FILE]

A real headless Chromium against a real server, signed in. The list: from the start of the navigation until a row's
checkbox takes a click, first with nothing cached, then again; the floor is the server's own sign-in page, which shows
no data. The runs are put into the database by the server's own submit, before the server starts. The charts: a program
logs ten names some thousand times a second; frames are counted by the page for ten seconds, beside an empty page's.
"""

import itertools
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measuring import Result, alone, percentile, scratch, scratch_server, spec_of, submit
from playwright.sync_api import BrowserContext, Page, sync_playwright

from whistlestop.domain import clock
from whistlestop.server.services import submit as submitting
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.services.hub import Hub
from whistlestop.server.services.settings import Settings
from whistlestop.server.services.vault import Vault
from whistlestop.server.store import pools
from whistlestop.server.store.database import Database
from whistlestop.server.store.schema import phases, runs
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.wire.api import Submit

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
LOADS = 10
WATCHED = 10.0  # seconds
ROW = "tbody input[type=checkbox]"
PROGRAM = """
import math, time, whistlestop
names = [f"curve_{n}" for n in range(10)]
with whistlestop.run() as run:
    for step in run.steps(10_000_000):
        run.log(**{name: math.sin(step / 500 + index) for index, name in enumerate(names)})
        if step % 10 == 9:
            time.sleep(0.005)
"""
FRAMES = """seconds => new Promise(done => {
  const times = [];
  const first = performance.now();
  const tick = now => { times.push(now); now - first < seconds * 1000 ? requestAnimationFrame(tick) : done(times); };
  requestAnimationFrame(tick);
})"""


def measure(count: int) -> Result:
    result = Result()
    with scratch() as directory:
        seed(directory / "server", count)
        with ServerProcess(directory / "server", slots=1) as server, browser_context(server) as context:
            measure_list(result, server, context, count)
    with scratch() as directory, scratch_server() as server, browser_context(server) as context:
        measure_charts(result, server, context, directory)
    return result


def measure_list(result: Result, server: ServerProcess, context: BrowserContext, count: int) -> None:
    floor, first, again = [], [], []
    page = context.new_page()
    for _ in range(LOADS):
        page.goto(f"{server.url}/healthz")
        floor.append(elapsed(page))
    for _ in range(LOADS):
        cold = context.browser.new_context()  # type: ignore[union-attr]
        cold.add_cookies(context.cookies())
        opened = cold.new_page()
        first.append(load(opened, server))
        again.append(load(opened, server))
        cold.close()
    page.close()
    result.add_times(f"{count:,} runs: navigation → a row takes a click, nothing cached", first)
    result.add_times(f"{count:,} runs: the same, cached", again)
    result.add_times("floor: navigation → a page of one line", floor)


def load(page: Page, server: ServerProcess) -> float:
    page.goto(f"{server.url}/projects/default", wait_until="commit")
    box = page.locator(ROW).first
    box.click()
    taken = elapsed(page)
    if not box.is_checked():
        raise SystemExit("the row did not take the click")
    return taken


def elapsed(page: Page) -> float:
    """Since the navigation began, by the page's own clock."""
    return float(page.evaluate("performance.now()")) / 1000


def measure_charts(result: Result, server: ServerProcess, context: BrowserContext, directory: Path) -> None:
    (directory / "train.py").write_text(PROGRAM)
    page = context.new_page()
    page.goto(f"{server.url}/healthz")
    empty = gaps(page.evaluate(FRAMES, WATCHED / 2))
    with server.client() as client:
        spec = spec_of({"name": "train", "command": [sys.executable, "train.py"]}, name="curves")
        run = submit(client, spec, directory)
        server.wait(run.id, "running")
        page.set_viewport_size({"width": 1600, "height": 2400})  # all ten are in view
        page.goto(f"{server.url}/runs/{run.id}?tab=charts")
        until(lambda: page.locator(".uplot").count() >= 10, within=60, what="ten charts")
        time.sleep(2)
        before = client.run(run.id).progress.step
        moved = gaps(page.evaluate(FRAMES, WATCHED))
        steps = client.run(run.id).progress.step - before
    for name, found in (("ten charts stream", moved), ("floor: a page of one line", empty)):
        result.raw[f"{name}: ms between frames"] = [round(each, 2) for each in found]
        result.add(f"{name}: frames a second", 1000 * len(found) / sum(found), "/s")
        result.add(f"{name}: between two frames: p99", percentile(found, 99), "ms")
        result.add(f"{name}: between two frames: longest", max(found), "ms")
    result.add("ten charts stream: points a second that arrived", 10 * steps / WATCHED, "/s")


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


@contextmanager
def browser_context(server: ServerProcess) -> Iterator[BrowserContext]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        context = browser.new_context()
        answer = context.request.post(f"{server.url}/session", data={"token": server.token})
        if not answer.ok:
            raise SystemExit(f"sign-in: {answer.status} {answer.text()}")
        yield context
        browser.close()


def seed(data: Path, count: int) -> None:
    """Runs of a project's past: submitted as always, then marked as ended, but for the last hundred."""
    data.mkdir(parents=True)
    settings = Settings(data=data)
    database = Database(settings.database_url)
    database.migrate()
    context = Context(
        settings=settings, database=database, hub=Hub(), vault=Vault.open(data / "secret.key"), clock=clock.now
    )
    with database.write() as connection:
        pools.put(connection, "local", at=0.0, engine="local", slots=1, price=1.0)
    spec = spec_of({"name": "train", "command": ["sleep", "1000"]}, name="past")
    actor = Actor("bench", "admin", "t-bench")
    for number in range(count):
        submitting.submit(context, Submit(spec=spec, note=f"seed {number}"), actor)
    with database.write() as connection:
        ended: dict[str, Any] = {"state": "completed"}
        old = runs.c.number <= count - 100
        connection.execute(runs.update().where(old).values(started_at=1.0, ended_at=60.0, **ended))
        connection.execute(
            phases.update().where(phases.c.run_id.in_(runs.select().with_only_columns(runs.c.id).where(old))), ended
        )
    database.close()


if __name__ == "__main__":
    alone(measure, full=10_000, quick=300, doc=__doc__, what="runs")
