"""`whistle simulate`: without a server, on recordings."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.cli.conftest import Whistle

SHIPPED = str(Path(__file__).parents[2] / "examples" / "traces")
SPEC = (
    "name: x\ndeadline: 14h\ncommand: a\nslots: 2\nwork: 10h\ncheckpoint: {every: 1 minutes}\n"
    "capacity: {changeover: 6 min}\n"
)


@pytest.fixture(autouse=True)
def spec(whistle: Whistle) -> None:
    Path("whistle.yaml").write_text(SPEC)


def test_it_compares_the_policies_and_draws_them(whistle: Whistle) -> None:
    result = whistle("simulate", "--traces", f"{SHIPPED}/rare.csv", "--starts", "3", "--svg", "line.svg")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Phase main: 10 h of work on 2 slots, 14 h to the deadline, 6m00s to change over")
    rows = {line[:19].strip(): line.split() for line in result.out.splitlines()}
    for name in ("spot only", "on-demand only", "greedy", "uniform progress", "ours", "least, in hindsight"):
        assert name in rows
    assert "0 of 3" in " ".join(next(line for line in result.out.splitlines() if line.startswith("ours")).split())
    assert "60.60" in rows["on-demand only"] or "60.60" in result.out  # 2 slots, 3 credits, 10.1 hours
    assert "█ spot  ▓ on-demand" in result.out
    ElementTree.parse("line.svg")


def test_nothing_is_cut_at_80_columns(whistle: Whistle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = whistle("simulate", "--traces", f"{SHIPPED}/rare.csv", "--starts", "1")
    assert result.code == 0
    assert "…" not in result.out


def test_as_json_nothing_is_missed_and_nothing_beats_hindsight(whistle: Whistle) -> None:
    answer = whistle("simulate", "--traces", SHIPPED, "--starts", "2", "--json").json
    assert (answer["work_s"], answer["deadline_s"], answer["changeover_s"], answer["starts"]) == (36000, 50400, 360, 2)
    by_name = {row["name"]: row for row in answer["policies"]}
    for name in ("on-demand only", "greedy", "uniform progress", "ours"):
        assert by_name[name]["missed"] == 0
        assert by_name[name]["credits"] >= answer["least"] - 1e-6
        assert by_name[name]["done_after_s"] <= 50400
    assert by_name["on-demand only"]["credits"] == pytest.approx(2 * 3.0 * 10.1)


def test_prices_and_times_can_be_given(whistle: Whistle) -> None:
    words = ["--traces", f"{SHIPPED}/steady.csv", "--starts", "1", "--work", "2h", "--deadline", "3h", "--json"]
    answer = whistle("simulate", *words, "--on-demand-price", "10", "--spot-price", "1").json
    by_name = {row["name"]: row for row in answer["policies"]}
    assert by_name["on-demand only"]["credits"] == pytest.approx(2 * 10 * 2.1)
    assert by_name["ours"]["credits"] == pytest.approx(2 * 1 * 2.2)  # it is lost once


def test_what_does_not_save_is_planned_as_if_all_of_it_were_lost_and_that_is_said(whistle: Whistle) -> None:
    """As on a server: ten hours of work do not fit in twice."""
    words = ["simulate", "--traces", f"{SHIPPED}/steady.csv", "--starts", "1"]
    Path("whistle.yaml").write_text(SPEC.replace("checkpoint: {every: 1 minutes}\n", ""))
    result = whistle(*words)
    assert "The spec does not say that it saves: a loss was taken to cost all of it" in result.err
    rows = {row["name"]: row for row in whistle(*words, "--json").json["policies"]}
    assert rows["ours"]["credits"] == rows["on-demand only"]["credits"]
    assert "is only known when it runs" in whistle(*words, "--set", "checkpoint={every: 500 steps}").err
    often, seldom = (
        whistle(*words, "--set", f"checkpoint={{every: {every} minutes}}", "--json").json["policies"][-1]["credits"]
        for every in (1, 60)
    )
    assert often < seldom < rows["ours"]["credits"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "On which recordings?"),
        (["--traces", ".", "--set", "name=y"], "There is no recording in ."),
        (["--traces", SHIPPED, "--phase", "trian"], "There is no phase 'trian'."),
        (["--traces", SHIPPED, "--work", "long"], "--work long: not a length of time"),
        (["--traces", SHIPPED, "--work", "0s"], "--work must be longer than zero"),
        (["--traces", SHIPPED, "--deadline", "10h"], "do not fit into 10h00m"),
        (["--traces", SHIPPED, "--deadline", "30d"], "covers 21d00h only"),
        (["--traces", SHIPPED, "--on-demand-price", "0"], "A price is more than nothing."),
        (["--traces", SHIPPED, "--starts", "0"], "--starts"),
        (["--traces", SHIPPED, "--svg", "none/line.svg"], "There is no directory none"),
    ],
)
def test_what_can_not_be_simulated_ends_with_2(whistle: Whistle, words: list[str], says: str) -> None:
    result = whistle("simulate", *words)
    assert (result.code, result.out) == (2, "")
    assert says in result.err


@pytest.mark.parametrize(("key", "hint"), [("work", "--work 48h"), ("deadline", "--deadline 60h")])
def test_what_the_spec_does_not_say_must_be_said(whistle: Whistle, key: str, hint: str) -> None:
    Path("whistle.yaml").write_text("".join(line for line in SPEC.splitlines(keepends=True) if key not in line))
    result = whistle("simulate", "--traces", SHIPPED)
    assert result.code == 2
    assert hint in result.err


def test_a_recording_that_can_not_be_read_is_refused_by_its_name(whistle: Whistle) -> None:
    Path("bad.csv").write_text("a,b\n")
    result = whistle("simulate", "--traces", "bad.csv", "--json")
    assert (result.code, result.out) == (1, "")
    assert "bad.csv" in result.error["text"]
    assert whistle("simulate", "--traces", "none.csv").code == 1


def test_a_spec_with_mistakes_is_refused_with_its_line(whistle: Whistle) -> None:
    Path("whistle.yaml").write_text("name: x\nslot: 2\ncommand: a\n")
    result = whistle("simulate", "--traces", SHIPPED)
    assert result.code == 1
    assert "whistle.yaml:2: slot" in result.err
