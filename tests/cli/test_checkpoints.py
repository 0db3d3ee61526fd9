"""`whistle checkpoints` with a real run behind it, and what it refuses without one."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Whistle

import whistlestop
from whistlestop.cli import words
from whistlestop.cli.checkpoints_view import marks, saving_lines, took
from whistlestop.client.checkpoints import choose, compare, part_of
from whistlestop.domain.errors import NoCheckpoint, Refused
from whistlestop.testing.server import ServerProcess
from whistlestop.wire.api import AtRiskView, CheckpointView
from whistlestop.wire.checkpoints import CheckpointDetail, FailedSave, FileView, NextSave, SavingView

LOOP = """
import whistlestop
class Model:
    def __init__(self): self.state = {"weight": 0.0}
    def state_dict(self): return dict(self.state)
    def load_state_dict(self, state): self.state = state
model, frozen = Model(), Model()
with whistlestop.run() as run:
    run.track(model=model, frozen=frozen)
    for step in run.steps(total=9):
        model.state["weight"] += 1.0
        run.log(loss=1.0 / model.state["weight"])
        if int(step) % 3 == 2:
            run.save()
"""


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


@pytest.fixture
def trained(served: Whistle) -> str:
    """A run that has ended, with a checkpoint every three steps."""
    Path("loop.py").write_text(LOOP)
    result = served("run", "--json", "--name", "loop", "--", sys.executable, "loop.py")
    assert result.code == 0, result.err
    return str(result.json["number"])


def steps(served: Whistle, run: str, **wanted: Any) -> list[int]:
    rows = served("checkpoints", run, "--json").json
    return [row["step"] for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_a_checkpoint_is_listed_verified_pinned_removed_and_brought_back(served: Whistle, trained: str) -> None:
    listed = served("checkpoints", trained)
    assert listed.code == 0
    assert "newest" in listed.out
    assert steps(served, trained) == [9, 6, 3]
    assert steps(served, trained, newest=True) == [9]
    verified = served("checkpoints", trained, "verify", "--step", "6")
    assert (verified.code, "is intact" in verified.out) == (0, True)
    assert served("checkpoints", trained, "pin", "--step", "3").code == 0
    refused = served("checkpoints", trained, "rm", "--step", "3", "--json")
    assert (refused.code, refused.error["code"]) == (1, "refused")
    assert served("checkpoints", trained, "unpin", "--step", "3").code == 0
    removed = served("checkpoints", trained, "rm", "--step", "3")
    assert removed.code == 0
    assert "restore --step 3" in removed.out
    assert steps(served, trained, trashed_until=None) == [9, 6]
    assert "removed, until" in served("checkpoints", trained).out
    assert served("checkpoints", trained, "restore", "--step", "3", "--json").json["changed"] is True
    assert steps(served, trained, trashed_until=None, pinned=True) == [3]
    assert served("checkpoints", trained, "rm", "--step", "9").code == 1
    assert served("checkpoints", trained, "verify", "--step", "4").code == 1


def test_a_checkpoint_is_fetched_with_every_hash_compared_and_goes_on_where_it_was_cut(
    served: Whistle, trained: str
) -> None:
    fetched = served("checkpoints", trained, "get", "here", "--json").json
    path = Path(fetched["checkpoint"]["path"])
    assert (Path("here") / "manifest.json").read_bytes() == (path / "manifest.json").read_bytes()
    assert whistlestop.load("here")["model"] == {"weight": 9.0}
    files = [path for path in Path("here").rglob("*") if path.is_file() and path.name != "manifest.json"]
    assert (len(files), fetched["skipped"]) == (fetched["files"], 0)
    assert files
    files[0].unlink()
    files[1].write_bytes(b"?" * files[1].stat().st_size)
    again = served("checkpoints", trained, "get", fetched["checkpoint"]["id"], "here", "--json").json
    assert again["files"] - again["skipped"] == 2
    damaged = next(each for each in sorted(path.rglob("*")) if each.is_file() and each.name != "manifest.json")
    damaged.chmod(0o600)
    damaged.write_bytes(b"!" * damaged.stat().st_size)
    broken = served("checkpoints", trained, "get", "there")
    assert (broken.code, "is not what was saved" in broken.err) == (1, True)
    assert not (Path("there") / damaged.relative_to(path)).exists()
    assert not (Path("there") / "manifest.json").exists()
    judged = served("checkpoints", trained, "verify", "--json")
    assert (judged.code, judged.json["intact"]) == (1, False)
    assert steps(served, trained, newest=True) == [6]
    assert "damaged" in served("continue", trained, "--step", "9").err


def test_two_checkpoints_are_compared_by_their_parts(served: Whistle, trained: str) -> None:
    found = served("checkpoints", trained, "diff", "3", "9", "--json").json
    changed = {part["name"] for part in found["parts"] if part["changed"]}
    assert "parts/model" in changed
    assert "parts/frozen" not in changed
    assert (found["first"]["step"], found["second"]["step"], found["same"]) == (3, 9, False)
    assert "parts/model" in served("checkpoints", trained, "diff").out


@pytest.mark.parametrize(
    "given",
    [
        ["1", "fly"], ["1", "rm"], ["1", "get"], ["1", "ls", "c-000000"], ["1", "pin", "--force"],
        ["1", "verify", "c-000000", "--step", "3"], ["1", "diff", "3"], ["1", "diff", "1", "2", "3"],
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_wrong_usage(served: Whistle, given: list[str]) -> None:
    assert served("checkpoints", *given).code == 2


def saved(step: int, phase: str = "train", **more: Any) -> CheckpointView:
    at = f"2026-01-01T00:00:{step:02d}Z"
    return CheckpointView(
        id=f"c-{phase}{step}", phase=phase, step=step, attempt=1, committed_at=at, bytes=1, **{"verified": True, **more}
    )


def test_the_newest_is_meant_unless_something_else_is_said() -> None:
    found = [saved(9, verified=False), saved(6), saved(5, "other"), saved(3), saved(3, "other")]
    assert choose(found).id == "c-train6"
    assert choose(found, phase="other").id == "c-other5"
    assert choose(found, step=9).id == "c-train9"
    assert choose(found, name="c-other3").id == "c-other3"
    with pytest.raises(Refused, match="Several phases"):
        choose(found, step=3)
    with pytest.raises(NoCheckpoint, match="step 4"):
        choose(found, step=4)


def test_what_differs_is_told_by_part() -> None:
    def detail(**files: str) -> CheckpointDetail:
        entries = [FileView(name=name.replace("__", "/"), size=10, sha256=digest) for name, digest in files.items()]
        return CheckpointDetail(**saved(1).model_dump(), files=entries, meta={"epoch": len(files)})

    made = compare(detail(parts__a__0="x", parts__a__1="y", parts__b="z"), detail(parts__a__0="x", parts__a__1="w"))
    assert [(part.name, part.same, part.changed, part.removed, part.differ) for part in made.parts] == [
        ("parts/a", 1, 1, 0, 10), ("parts/b", 0, 0, 1, 0),
    ]  # fmt: skip
    assert made.meta == {"epoch": (3, 2)}
    assert part_of("ranks/3/parts/model/000001") == "ranks/3/parts/model"
    assert part_of("parts/model.pickle") == "parts/model"


def test_the_next_save_and_one_that_failed_are_told_in_words() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    later = "2026-01-01T00:02:05Z"
    both = NextSave(step=1500, at=later, why="every 500 steps or 5 minutes")
    failed = FailedSave(at=later, step=7, text="no space is left")
    assert saving_lines([SavingView(phase="a", next=both)], now) == [
        "Next save: at step 1,500 or in about 2m05s (every 500 steps or 5 minutes)"
    ]
    told = saving_lines([SavingView(phase="a", failed=failed), SavingView(phase="b", next=both)], now)
    assert told[0].startswith("a: A save failed at ")
    assert told[0].endswith("and none has succeeded since: no space is left")
    late = NextSave(at="2025-12-31T23:59:00Z", why="every 5 minutes")
    assert saving_lines([SavingView(phase="a", next=late)], now) == ["Next save: due now (every 5 minutes)"]


def test_marks_times_and_what_is_at_risk_are_told_in_words() -> None:
    assert marks(saved(1, newest=True, pinned=True, healthy=False)) == "newest, pinned, unhealthy"
    assert [took(value) for value in (None, 0.0123, 3.44, 125)] == ["–", "12 ms", "3.4 s", "2m05s"]
    risk = AtRiskView(steps=2, seconds=10, credits=1, step=50, from_step=50, since="", per_hour=360)
    later = words.risk_later(risk, 262, 180)
    assert words.at_risk(later) == "At risk now: 212 steps, 3m10s, 19.00 credits (since the checkpoint at step 50)"
