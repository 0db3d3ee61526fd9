"""Which rank the others wait for: by its words, and where these are equal, by its stack."""

import asyncio
import mmap
from pathlib import Path
from typing import Any

import pytest

from whistlestop.channel.control import Control
from whistlestop.channel.layout import CONTROL_FILE, SIZE, Loop, ProgramStage, Word
from whistlestop.diagnosis.pace import Doing, Moment
from whistlestop.engines.containment import Tree
from whistlestop.runner import answers
from whistlestop.runner.seats import Seat, Seats, behind
from whistlestop.runner.stacks import Spy, Stack, decisive
from whistlestop.runner.watching import ENV_FLOOR, Watching
from whistlestop.sdk.pages import FIRST, JOINED
from whistlestop.wire.launch import Launch


def seat(step: int, *, pid: int = 1, ready: bool | None = True, over: bool = False) -> Seat:
    return Seat(pid, Moment(Doing.STEP, step), step, ready, over)


def test_who_has_not_come_or_made_fewer_steps_or_has_no_data_is_behind() -> None:
    assert behind({0: seat(5), 1: seat(5, pid=0), 2: seat(4)}) == [1]
    assert behind({0: seat(5), 1: seat(4), 2: seat(5)}) == [1]
    assert behind({0: seat(5), 1: seat(5, ready=False), 2: seat(5)}) == [1]
    assert behind({0: seat(5), 1: seat(5), 2: seat(3, over=True)}) == [0, 1]
    assert behind({0: seat(5, ready=None)}) == [0]


def stack(rank: int, *frames: str, state: str = "sleeps", inner: int = 0) -> Stack:
    return Stack(rank, 100 + rank, "python train.py", "MainThread", state, frames, inner)


def test_of_ranks_that_are_equally_far_the_stacks_decide() -> None:
    waits = [stack(rank, "torch/distributed/distributed_c10d.py:9 all_reduce", "a.py:7 <module>") for rank in (0, 1, 2)]
    loads = stack(3, "a.py:5 load", "a.py:7 <module>")
    stopped = stack(4, "torch/distributed/distributed_c10d.py:9 all_reduce", "a.py:7 <module>", state="stopped")
    assert decisive([*waits, loads], [0, 1, 2, 3]) is loads
    assert decisive([*waits, stopped], [0, 1, 2, 4]) is stopped
    assert decisive(waits, [0, 1, 2]) is None
    assert decisive([*waits, loads], [1]) is waits[1]
    same = [stack(rank, "a.py:5 exchange") for rank in (0, 1, 2)]
    odd = stack(3, "a.py:6 load")
    assert decisive([*same, odd], [0, 1, 2, 3]) is odd


def test_where_it_is_fits_into_a_sentence() -> None:
    assert stack(0, "a.py:5 load").where() == "is in load (a.py:5)"
    assert stack(0, "threading.py:3 wait", "queue.py:1 Queue.get", "x/a.py:5 load", inner=2).where() == (
        "waits in Queue.get (a.py:5)"
    )
    assert stack(0, "a.py:5 load", state="stopped").where() == "is stopped in load (a.py:5)"
    assert stack(0, "a.py:5 barrier").where() == "waits for others in barrier (a.py:5)"
    assert stack(0, state="hangs in the kernel (nfs_wait)").where() == "hangs in the kernel (nfs_wait)"


def test_what_faulthandler_writes_is_read_with_the_main_thread_first() -> None:
    text = (
        'Thread 0x00007f1 (most recent call first):\n  File "/x/side.py", line 3 in side\n\n'
        'Current thread 0x00007f2 (most recent call first):\n  File "/x/a b.py", line 6 in load\n'
        '  File "/x/a b.py", line 9 in <module>\n'
    )
    main, side = answers.parse(text)
    assert main["thread_name"] == "MainThread"
    assert main["frames"][0] == {"filename": "/x/a b.py", "line": 6, "name": "load"}
    assert side["frames"][0]["name"] == "side"


class Ranks:
    """Two ranks as a runner finds them, under a clock of ours."""

    def __init__(self, directory: Path, control: Control) -> None:
        (directory / "group-0-0-1").write_bytes(bytes(SIZE * 4))
        with (directory / "group-0-0-1").open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        self.pages = [control, Control(mapped, SIZE * 3)]
        for number, page in enumerate(self.pages):
            page[Word.PID], page[Word.ATTACHED], page[Word.LOOP] = 1 << 22 | number, 1, Loop.INSIDE
            page[Word.STAGE] = ProgramStage.TRAINING
        self.now = 1000.0
        self.told: list[tuple[str, str, dict[str, Any]]] = []
        launch = Launch(
            attempt_id="a-none", attempt_number=1, run_id="r-1", run_name="x", phase="train", kind="train", command=[],
            env={ENV_FLOOR: "60"}, directory=str(directory), workdir="/w", checkpoints="/c", slots=[0], ladder={},
            server="ws://x", token="t",
        )  # fmt: skip
        self.watching = Watching(
            launch,
            control,
            Spy(Tree("a-none"), directory),
            tell=lambda kind, text, /, **data: self.told.append((kind, text, data)),
            expects=lambda: True,
            signs=lambda: self.now,
            host="here",
            clock=lambda: self.now,
        )

    async def spend(self, seconds: int, *ranks: int) -> None:
        """These make a step a second."""
        for _ in range(seconds):
            self.now += 1.0
            for rank in ranks:
                self.pages[rank][Word.STEP] += 1
                self.pages[rank].set_seconds(Word.PROGRESS_AT, self.now)
            self.watching.look()
            await asyncio.sleep(0)

    async def settle(self) -> None:
        while self.watching._looking is not None:
            await asyncio.sleep(0.001)


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    return Ranks(tmp_path, Control.create(tmp_path / CONTROL_FILE))


def test_while_one_rank_evaluates_the_others_that_wait_for_it_do_not_hang(ranks: Ranks) -> None:
    async def play() -> None:
        await ranks.spend(400, 0, 1)
        for _ in range(2):
            ranks.pages[0][Word.STAGE] = ProgramStage.EVALUATING
            await ranks.spend(800)
            ranks.pages[0][Word.STAGE] = ProgramStage.TRAINING
            await ranks.spend(100, 0, 1)
        assert ranks.told == []
        await ranks.spend(70)
        await ranks.settle()
        ((kind, text, data),) = ranks.told
        assert (kind, data["stage"], data["ranks"]) == ("stuck", "step", {"0": 600, "1": 600})
        assert text.startswith("No step for 61 s at step 600 (steps take 1 s, at most 1 s so far)")
        await ranks.spend(1, 0, 1)
        assert ranks.told[-1][0] == "going_again"
        await ranks.spend(110)
        await ranks.settle()
        assert len(ranks.told) == 2, "twice as long, after one that ended by itself"

    asyncio.run(play())


def test_one_rank_that_hangs_while_the_other_trains_on_is_told_of_later(ranks: Ranks) -> None:
    async def play() -> None:
        await ranks.spend(400, 0, 1)
        await ranks.spend(890, 0)
        assert ranks.told == []
        await ranks.spend(20, 0)
        await ranks.settle()
        ((kind, _, data),) = ranks.told
        assert (kind, data["ranks"]["1"], data["step"]) == ("stuck", 400, 400)

    asyncio.run(play())


def test_ranks_that_start_anew_are_found_in_their_new_pages(tmp_path: Path) -> None:
    control = Control.create(tmp_path / CONTROL_FILE)
    seats = Seats(tmp_path, control, node=1)
    seats.discover()
    assert seats.look() == {}
    for name, count in (("group-1-0-1", 2), ("group-1-1-1", 3)):
        (tmp_path / name).write_bytes(bytes(SIZE * (2 + count)))
    (tmp_path / "group-1-2-1").write_bytes(b"")  # just being made
    seats.discover()
    assert sorted(seats.look()) == [3, 4, 5]


def begin(path: Path, *, joined: int, step: int) -> None:
    """Two ranks in a new file, whatever has its name."""
    path.unlink(missing_ok=True)
    path.write_bytes(bytes(SIZE * (FIRST + 2)))
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    for local in range(2):
        page = Control(mapped, SIZE * (FIRST + local))
        page[JOINED], page[Word.STEP] = joined + local, step


def test_a_later_start_is_found_also_under_the_same_name_or_a_lower_one(tmp_path: Path) -> None:
    seats = Seats(tmp_path, Control.create(tmp_path / CONTROL_FILE), node=1)

    def steps() -> list[int]:
        seats.discover()
        return [seat.step for seat in seats.look().values()]

    begin(tmp_path / "group-1-1-1", joined=10, step=100)
    assert steps() == [100, 100]
    begin(tmp_path / "group-1-1-1", joined=20, step=200)
    assert steps() == [200, 200]
    begin(tmp_path / "group-1-0-1", joined=30, step=300)
    assert steps() == [300, 300], "another torchrun counts its restarts anew"
    (tmp_path / "group-1-0-1").unlink()
    assert steps() == [300, 300], "what a crash has left behind is no start"
