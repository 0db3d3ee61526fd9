"""`whistle advise`: the verdict first, then why, what each choice costs, and the curve drawn on."""

from pathlib import Path

import pytest
from tests.cli.conftest import Whistle

from whistlestop.cli.advice_view import advice_view
from whistlestop.cli.output import console
from whistlestop.testing.wait import until
from whistlestop.wire.advice import AdviceView, AheadView, BandView, ChoiceView, FoundView, GainView

TRAINS = """
import time, whistlestop
with whistlestop.run() as run:
    for step in run.steps(total=3000):
        run.log(loss=1.0 / (1 + int(step) / 50) + 0.1)
        time.sleep(0.005)
"""


def printed(advice: AdviceView) -> str:
    made = console()
    with made.capture() as capture:
        for part in advice_view(advice):
            made.print(part)
    return capture.get()


def stuck(**more: object) -> AdviceView:
    cost = BandView(low=1.0, likely=2.0, high=4.0)
    found = FoundView(
        cause="stuck", weight="fatal", headline="no step for much longer than usual", confidence=0.97,
        says="no step for 9 minutes", evidence=["rank 1 waits in recv", "\n".join(f"frame {n}" for n in range(30))],
        do="Look at the stacks.",
    )  # fmt: skip
    given = {
        "run": "r-1", "number": 7, "name": "nightly", "phase": "train", "status": "running",
        "at": "2026-01-01T00:00:00Z",
        "verdict": "fix_and_continue", "sure": True, "reason": "It hangs.", "do": "Restart it.", "findings": [found],
        "choices": [
            ChoiceView(verb="continue", seconds=cost, credits=cost, lost_steps=1200, gets="a new run from step 500"),
            ChoiceView(verb="kill", seconds=BandView(low=0, likely=0, high=0), credits=None, saves=2.0, gets="logs"),
        ],
    } | more  # fmt: skip
    return AdviceView.model_validate(given)


def test_the_verdict_comes_first_and_every_choice_has_its_price() -> None:
    lines = printed(stuck()).splitlines()
    assert lines[0].rstrip() == "↻ Fix, and continue from its checkpoint  #7 nightly, train"
    text = "\n".join(lines)
    assert "stuck, 97% sure" in text
    assert "│ rank 1 waits in recv" in text
    assert "17 lines more" in text
    row = next(line for line in lines if line.startswith("fix and continue"))
    assert "2.00 (1.00 to 4.00)" in row
    assert "1,200 steps" in row
    assert next(line for line in lines if line.startswith("kill")).split()[1:4] == ["now", "unknown", "2.00"]
    assert "(not sure)" in printed(stuck(sure=False))


def test_the_curve_is_drawn_on_with_its_band_and_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = [AheadView(step=100 + 10 * n, low=0.4 - n / 100, likely=0.4, high=0.4 + n / 100) for n in range(11)]
    gain = GainView(
        metric="loss", aim="min", now=0.4, end=BandView(low=0.3, likely=0.4, high=0.5),
        better=BandView(low=-0.1, likely=0.0, high=0.1), noise=0.01, distinct=False,
        curve=[(float(step), 1 / (1 + step / 50)) for step in range(0, 100, 5)], ahead=ahead,
    )  # fmt: skip
    for width in (60, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = printed(stuck(gain=gain)).splitlines()
        assert "be told from its noise" in " ".join(" ".join(lines).split())
        drawn = [line for line in lines if any("⠀" < letter <= "⣿" for letter in line)]
        assert len(drawn) == 9
        assert max(len(line) for line in lines) <= width
        assert lines[-1].split() == ["0", "200"], "the steps, up to the end that is to come"


def test_a_run_is_advised_on_by_name_and_no_run_is_an_error(served: Whistle) -> None:
    Path("trains.py").write_text(TRAINS)
    made = served("run", "--detach", "--json", "--name", "advised", "--", "python", "trains.py").json
    until(lambda: served("advise", "advised", "--json").json["gain"], within=60, what="something to go by")
    said = served("advise", "advised", "--json").json
    assert (said["run"], said["verdict"]) == (made["id"], "wait")
    shown = served("advise", f"#{made['number']}")
    assert shown.code == 0
    assert shown.out.startswith("… Wait  #")
    assert "stop now" in shown.out
    assert "loss  0." in shown.out
    assert served("kill", "advised", "--yes").code == 0
    assert served("advise", "nobody").code == 1
    assert served("advise", "advised", "--phase", "none").code == 1
