"""`whistle usage`: where the credits went, and budgets."""

import pytest
from tests.cli.conftest import Whistle

from whistlestop.cli.usage_view import bar, budget_line, comparison_line, kinds_line
from whistlestop.wire.usage import BudgetView, ComparisonView


def test_every_kind_that_is_there_is_seen_in_the_bar_and_the_bar_keeps_its_length() -> None:
    assert bar({"productive": 1.0}, 10) == "██████████"
    assert bar({"starting": 0.001, "productive": 7.9, "redone": 2.0, "stopping": 0.1}, 10) == "░███████R·"
    assert bar({}, 10) == ""
    assert len(bar(dict.fromkeys(("starting", "productive", "redone", "saving", "stalled", "stopping"), 1.0), 4)) == 4
    assert (
        kinds_line({"starting": 0.1, "productive": 2.0, "redone": 0.0, "saving": 0.004})
        == "2.00 productive, 0.10 starting"
    )


def test_sentences_say_what_is_left_and_what_it_would_have_cost() -> None:
    given = BudgetView(project="lab", credits=100, since="2026-01-01", spent=30, running=5, balance=65, lasts_s=7200)
    assert budget_line(given).startswith("Project lab: 65.00 of 100.00 credits left, 35.00 used since ")
    assert budget_line(given).endswith("; at the pace of now it lasts 2h00m")
    assert comparison_line(ComparisonView(hours=10, cost=55, on_demand=140, spot=14, spot_share=0.7)) == (
        "10.0h of productive slot time, 70% of it on spot, cost 55.00, starts, saves and losses included. "
        "At the prices of today it would be 140.00 on demand alone, 14.00 on spot if nothing were ever lost."
    )


def test_a_project_without_credits_is_refused_unless_it_is_forced_and_its_runs_are_in_the_sum(served: Whistle) -> None:
    assert served("run", "--project", "paid", "--name", "first", "--", "true").code == 0
    made = served("usage", "budget", "paid", "0")
    assert "Project paid: 0.00 of 0.00 credits left" in made.out
    try:
        refused = served("run", "--project", "paid", "--json", "--", "true")
        assert (refused.code, refused.error["code"]) == (1, "budget_exceeded")
        assert "--force" in refused.error["hint"]
        assert served("run", "--project", "paid", "--name", "forced", "--force", "--", "true").code == 0
        assert "has it run all the same" in served("events", "forced").out
        seen = served("usage", "--by", "run", "--project", "paid", "--since", "1h", "--json").json
        assert {group["name"] for group in seen["groups"]} == {"first", "forced"}
        assert seen["total"]["credits"] == pytest.approx(sum(group["credits"] for group in seen["groups"]))
        assert seen["total"]["attempts"] == 2
        assert seen["budgets"][0]["balance"] < 0
        shown = served("usage", "--project", "paid").out
        assert "█ productive" in shown
        assert "productive" in served("usage", "--by", "kind", "--project", "paid").out
        assert "Project paid: 0.00 of 0.00 credits left" in shown
        assert served("show", "first", "--json").json["credits"]["kinds"]["productive"] > 0
    finally:
        assert "may spend what it likes" in served("usage", "budget", "paid", "none").out
    assert served("usage", "budget", "paid", "none").code == 1
    assert served("usage", "budget", "paid", "much").code == 2
    assert served("usage", "--by", "colour").code == 2
    assert "is not a time" in served("usage", "--since", "soon").err
