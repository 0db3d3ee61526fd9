"""Charts of a real run in a real browser: they grow by themselves, hide no spike, and can be looked at closely."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

PROGRAMS = Path(__file__).parent / "programs"
TOP_OF_PLOT = """() => {
    const canvas = document.querySelector("figure canvas");
    const {width, height} = canvas, ink = canvas.getContext("2d").getImageData(0, 0, width, height * 0.35 | 0).data;
    let found = 0;
    for (let at = 0; at < ink.length; at += 4) if (ink[at + 3] > 60 && ink[at + 2] - ink[at] > 50) found++;
    return found;
}"""


def train(server: ServerProcess, name: str, **env: object) -> str:
    values = {key: str(value) for key, value in env.items()}
    phase = {"name": "train", "command": [sys.executable, "charted.py"], "env": values}
    return server.submit(phase, name=name, directory=PROGRAMS).id


@pytest.fixture(scope="module")
def resumed(web_server: ServerProcess) -> str:
    """A run that was paused without a save and resumed from an earlier checkpoint; it goes on for long."""
    run = train(web_server, "resumed", STEPS=100_000, PACE=0.003)
    client = web_server.client()
    until(lambda: client.run(run).progress.step > 160, what="160 steps")
    client.save(run)
    until(lambda: client.run(run).phases[0].saves.done, what="a checkpoint")
    saved = client.run(run).phases[0].saves.step or 0
    until(lambda: client.run(run).progress.step > saved + 200, what="steps that will be superseded")
    client.pause(run, checkpoint="latest")
    web_server.wait(run, "waiting")
    client.resume(run)
    until(lambda: client.run(run).progress.step > saved + 300, what="the second attempt")
    return run


@pytest.fixture(scope="module")
def other(web_server: ServerProcess) -> str:
    run = train(web_server, "other run", STEPS=200, PACE=0.001, SLOPE=0.03)
    web_server.wait(run, "completed")
    return run


@pytest.fixture(scope="module")
def diverged(web_server: ServerProcess) -> str:
    phase = {"name": "train", "command": [sys.executable, "diverged.py"]}
    run = web_server.submit(phase, name="diverged", project="diverged", directory=PROGRAMS).id
    web_server.wait(run, "completed")
    return run


def points(page: Any) -> int:
    label = page.locator("figure .plot-host").first.get_attribute("aria-label") or ""
    found = re.search(r"([\d,]+) points", label)
    return int(found[1].replace(",", "")) if found else 0


def charts(page: Any, run: str, query: str = "") -> None:
    page.goto(f"/runs/{run}?tab=charts{query}")
    page.locator("figure canvas").first.wait_for()


def test_a_chart_appears_and_grows_without_a_reload(web_server: ServerProcess, page_of: Callable[..., Any]) -> None:
    run = train(web_server, "growing", STEPS=100_000, PACE=0.01)
    page = page_of(web_server)
    page.goto(f"/runs/{run}?tab=charts")
    page.locator("figure canvas").first.wait_for()
    until(lambda: points(page) > 0, what="the first points")
    page.evaluate("window.same = document.querySelector('figure canvas')")
    before = points(page)
    until(lambda: points(page) > before + 20, what="the chart to grow")
    assert page.evaluate("window.same.isConnected"), "the plot was made anew"
    assert page_of.errors(page) == []  # type: ignore[attr-defined]
    web_server.client().kill(run)


def test_every_chart_is_there_in_order_and_what_was_superseded_is_dimmed(
    web_server: ServerProcess, resumed: str, page_of: Callable[..., Any], check_page: Callable[..., None]
) -> None:
    page = page_of(web_server)
    charts(page, resumed)
    names = page.locator("figure h3").all_text_contents()
    assert names[:4] == ["loss", "val/loss", "lr", "grad_norm"]
    assert "optim/<b onmouseover=alert(1)>" in names  # as text
    assert page.locator("figure b").count() == 0
    assert page.locator("details.chart-section summary").inner_text().startswith("System")
    assert page.locator("details figure").count() == 0
    grad = page.locator("figure", has=page.get_by_role("heading", name="grad_norm"))
    assert grad.locator(".is-bad dd").inner_text() == "NaN at step 90"
    # Between the checkpoint and the pause there are two values: the one that counts, and the one that is dimmed.
    saved = web_server.client().run(resumed).phases[0].attempts[1].resumed_from or 0
    charts(page, resumed, f"&from={saved + 20}&to={saved + 120}")
    over = page.locator("figure .u-over").first
    over.hover(position={"x": 150, "y": 50})
    legend = page.locator("figure .chart-legend").first
    until(lambda: "attempt 1, superseded" in legend.inner_text(), what="the superseded value")
    # One crosshair for all.
    values = page.locator("figure .legend-x").all_inner_texts()
    assert len(values) >= 3
    assert len(set(values)) == 1
    page.get_by_label("Superseded").uncheck()
    over.hover(position={"x": 155, "y": 50})
    until(lambda: "superseded" not in legend.inner_text(), what="no superseded value")
    page.get_by_label("Superseded").check()
    page.set_viewport_size({"width": 1280, "height": 1900})  # so that every chart is in view
    charts(page, resumed)
    until(lambda: page.locator("figure canvas").count() >= 7, what="every chart")
    check_page(page, "run-charts")


def test_a_spike_of_one_step_is_seen_in_a_chart_that_is_narrower_than_the_run(
    web_server: ServerProcess, resumed: str, page_of: Callable[..., Any]
) -> None:
    client = web_server.client()
    until(lambda: client.run(resumed).progress.step > 900, what="more steps than pixels")
    page = page_of(web_server, viewport={"width": 390, "height": 844})
    charts(page, resumed)
    until(lambda: 100 < points(page) < 600, what="buckets instead of steps")
    assert page.locator("figure .chart-values").first.inner_text().split()[-1] == "40"
    until(lambda: page.evaluate(TOP_OF_PLOT) > 10, what="the spike's ink at the top")


def test_zooming_by_drag_and_by_keys_asks_the_server_for_that_window(
    web_server: ServerProcess, resumed: str, page_of: Callable[..., Any]
) -> None:
    page = page_of(web_server)
    charts(page, resumed)
    box = page.locator("figure .u-over").first.bounding_box()
    page.mouse.move(box["x"] + 50, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 60, steps=4)
    with page.expect_request(lambda request: all(part in request.url for part in ("/charts?", "from=", "to="))):
        page.mouse.up()
    page.wait_for_url(lambda url: "from=" in url)
    page.get_by_role("button", name="Reset zoom").click()
    page.wait_for_url(lambda url: "from=" not in url)
    host = page.locator("figure .plot-host").first
    host.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    until(lambda: "step " in host.locator("[aria-live]").inner_text(), what="the value in words")
    page.keyboard.press("+")
    page.wait_for_url(lambda url: "to=" in url)
    page.keyboard.press("Escape")
    page.wait_for_url(lambda url: "to=" not in url)
    page.locator("figure").first.get_by_role("button", name="as a table").click()
    assert page.locator("figure").first.locator("tbody tr").count() > 20


def test_other_runs_are_drawn_beside_it_and_the_link_says_so(
    web_server: ServerProcess, resumed: str, other: str, page_of: Any, refused: Any, check_page: Callable[..., None]
) -> None:
    page = page_of(web_server)
    charts(page, resumed)
    page.get_by_role("button", name="Compare").click()
    with refused(page, re.compile(r"/api/v1/runs\?.*search=oth\b")):
        page.get_by_label("Find a run of").fill("oth")
        page.get_by_role("dialog").get_by_role("alert").wait_for()
    page.get_by_label("Find a run of").fill("other")
    page.get_by_role("dialog").get_by_role("alert").wait_for(state="detached")
    assert len(page_of.errors(page)) == 1  # of the lost request
    page.get_by_role("dialog").get_by_text("other run").click()
    page.get_by_role("dialog").get_by_role("button", name="Compare").click()
    page.wait_for_url(lambda url: f"compare={other}" in url)
    legend = page.locator("figure .chart-legend").first
    until(lambda: "other run" in legend.inner_text(), what="the other run's curve")
    dashes = legend.locator("line").evaluate_all("lines => lines.map(line => line.getAttribute('stroke-dasharray'))")
    assert len(set(dashes)) == len(dashes) == 2
    page.get_by_role("button", name="Show loss as a table").click()
    values = page.locator("figure").first.locator("tbody tr")
    assert values.first.locator("td").nth(1).inner_text() == "–", "it was over long before"
    assert values.last.locator("td").nth(1).inner_text() != "–"
    page.get_by_role("button", name="Show loss as a table").click()
    page.get_by_role("radio", name="time").check()
    page.wait_for_url(lambda url: "axis=time" in url)
    page.locator("figure canvas").first.wait_for()
    page.get_by_label("Find a chart by name").fill("loss")
    until(lambda: page.locator("figure").count() == 2, what="the two losses")
    page.get_by_label("Smoothing").fill("0.9")
    page.get_by_label("Log scale").check()
    check_page(page, "run-charts-compared")


PURE = """async () => {
    const base = document.querySelector("script[type=module]").src.replace("app.js", "run/");
    const {aligned, nearestOn, usual, zoomedBy} = await import(base + "chart-lines.js");
    const {oddWords, spansOf} = await import(base + "chart-odd.js");
    const spans = (x, y, nonfinite, odd) => spansOf({x, y, nonfinite}, odd)
        .map(({from, to, kinds, tail}) => [from, to, kinds.join(), tail]);
    const flat = {x: [...Array(100).keys()], y: Array(100).fill(1)};
    flat.y[50] = 1000;
    const spiky = {...flat, low: flat.y, high: flat.y};
    return {
        gaps: Array.from(
            aligned([{x: [0, 4, 8, 12], y: [1, null, 2, 3]}, {x: [2, 6, 10], y: [7, 7, 7]}])[1], (y) => y ?? `${y}`,
        ),
        alone: spans([1, 2, 3], [1, null, 1], [[2, "nan"]]),
        beyondTheNamed: spans([1, 2, 3, 4], [1, null, null, null], [[2, "nan"]]),
        inBuckets: spans([31, 63, 95], [1, 1, null], [[50, "nan"], [60, "nan"]]),
        endsInABucketWithNumbers: spans([31, 63], [1, 1], [[50, "inf"]], true),
        several: spans([1, 2, 3, 4], [null, 1, null, 1], [[1, "nan"], [3, "-inf"]]),
        words: oddWords(spansOf({x: [1, 2, 3], y: [1, null, null], nonfinite: [[2, "nan"]]}),
            {count: 2000, cut: false, first: 1, word: (x) => `step ${x}`}),
        whole: zoomedBy(2, 50, [0, 100], [0, 100]),
        oneEnd: zoomedBy(2, 30, [20, 40], [15, 100]),
        nearer: zoomedBy(0.5, 50, [0, 100], [0, 100]),
        usual: usual([spiky], 0, 99, false),
        on: [[[], 5], [[9], 9], [[9], 10], [[0, 10, 20], 900], [[0, 10, 20], 24], [[0, 10, 20], -6], [[0, 10, 20], 14]]
            .map(([x, value]) => nearestOn(x, value)),
    };
}"""


def test_gaps_stretches_without_numbers_zooms_and_outliers_are_computed_right(
    web_server: ServerProcess, page_of: Callable[..., Any]
) -> None:
    page = page_of(web_server)
    page.goto("/no/such/page")
    page.locator("main").wait_for()
    assert page.evaluate(PURE) == {
        "gaps": [1, "null", "null", "null", 2, "undefined", 3],  # another run's points close no gap
        "alone": [[2, 2, "nan", False]],
        "beyondTheNamed": [[2, 4, "nan", True]],
        "inBuckets": [[50, 95, "nan", True]],
        "endsInABucketWithNumbers": [[50, 63, "inf", True]],
        "several": [[1, 1, "nan", False], [3, 3, "-inf", False]],
        "words": "NaN since step 2 (2,000 values)",
        "whole": [None, None],
        "oneEnd": [None, 50],
        "nearer": [25, 75],
        "usual": [1, 1],
        "on": [-1, 0, -1, -1, 2, -1, 1],  # nothing where the curve has not begun or is over
    }


def test_a_run_that_diverged_looks_like_one(
    web_server: ServerProcess, diverged: str, page_of: Callable[..., Any], check_page: Callable[..., None]
) -> None:
    page = page_of(web_server)
    charts(page, diverged)
    loss = page.locator("figure", has=page.get_by_role("heading", name="loss"))
    until(lambda: "NaN since step 50 (250 values)" in loss.inner_text(), what="since when")
    assert loss.locator(".chart-values > div").first.inner_text().split() == ["last", "NaN"]
    page.get_by_label("Ignore outliers").check()
    page.wait_for_url(lambda url: "outliers=ignore" in url)
    spiky = page.locator("figure", has=page.get_by_role("heading", name="spiky"))
    until(lambda: "1 above, up to 1,000" in spiky.inner_text(), what="what is not shown")
    check_page(page, "run-charts-diverged")
    page.goto("/projects/diverged")
    line = page.locator(".sparkline").first
    line.wait_for()
    assert "then not finite" in line.get_attribute("aria-label")


def test_the_window_stays_within_what_there_is_moves_nothing_and_outlives_another_tab(
    web_server: ServerProcess, diverged: str, page_of: Callable[..., Any]
) -> None:
    page = page_of(web_server)
    charts(page, diverged)
    host = page.locator("figure .plot-host").first
    top = page.locator("figure").first.bounding_box()["y"]
    host.focus()
    page.keyboard.press("-")
    page.keyboard.press("+")
    page.wait_for_url(lambda url: "from=" in url)
    window = dict(re.findall(r"(from|to|phase)=([^&]+)", page.url))
    assert 0 < float(window["from"]) < float(window["to"]) < 300, "the whole was zoomed out of"
    assert window["phase"] == "train"
    assert page.locator("figure").first.bounding_box()["y"] == top, "the charts have moved"
    page.get_by_role("link", name="Events").click()
    page.wait_for_url(lambda url: "from=" not in url)
    page.get_by_role("link", name="Charts").click()
    page.wait_for_url(lambda url: f"from={window['from']}" in url)
    host.wait_for()
    host.focus()
    page.keyboard.press("-")
    page.wait_for_url(lambda url: "from=" not in url and "to=" not in url)


def test_a_compared_run_goes_on_growing_and_one_that_is_not_there_is_told(
    web_server: ServerProcess, diverged: str, resumed: str, page_of: Callable[..., Any]
) -> None:
    page = page_of(web_server)
    charts(page, diverged, f"&compare={resumed},nobody")
    asked = "of => performance.getEntriesByType('resource').filter(one => one.name.includes(of)).length"
    until(
        lambda: page.evaluate(asked, f"{resumed}/charts?") >= 3,
        what="the other run's charts again and again",
    )
    assert "nobody can't be found" in page.locator(".compared-list").inner_text()
    page.get_by_role("button", name="Compare no longer with nobody").click()
    page.wait_for_url(lambda url: "nobody" not in url)
    assert resumed in page.url


def test_the_next_phase_does_not_take_the_place_of_the_one_that_is_looked_at(
    web_server: ServerProcess, page_of: Callable[..., Any]
) -> None:
    first, second = (
        {"name": name, "command": [sys.executable, "charted.py"], "env": {"STEPS": "100000", "PACE": "0.02"}}
        for name in ("pretrain", "tune")
    )
    run = web_server.submit(first, {**second, "needs": ["pretrain"]}, name="phased", directory=PROGRAMS).id
    page = page_of(web_server)
    charts(page, run)
    web_server.client().stop(run)
    offer = page.get_by_role("button", name="tune has begun: show it")
    offer.wait_for(timeout=30_000)
    assert page.get_by_label("Phase").input_value() == "pretrain"
    offer.click()
    until(lambda: page.get_by_label("Phase").input_value() == "tune", what="the next phase")
    page.wait_for_url(lambda url: "phase=tune" in url)
    assert offer.count() == 0
    web_server.client().kill(run)
