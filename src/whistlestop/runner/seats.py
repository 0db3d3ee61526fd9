"""Where each rank of this node is, by its own words: in the control block, and in the pages that ranks share."""

import mmap
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from whistlestop.channel.control import Control
from whistlestop.channel.layout import SIZE, Loop, ProgramStage, Word
from whistlestop.diagnosis.pace import Doing, Moment

_GROUP = re.compile(r"group-\d+-(\d+)-(\d+)")
_ENDED = (Loop.FINISHED, Loop.STOPPED, Loop.PAUSED, Loop.LEFT)
_MARKS = (Word.STEP, Word.EVALUATIONS, Word.EPOCH, Word.BATCH, Word.SAVED_STEP, Word.SAVING, Word.LOOP, Word.STAGE,
          Word.ATTACHED, Word.IMPORTED)  # fmt: skip


class Seat(NamedTuple):
    """One rank. `ready`: its data for the step has come; None: nobody can tell."""

    pid: int
    moment: Moment
    step: int
    ready: bool | None = None
    over: bool = False  # it has left its loop


class Seats:
    """`first`: the lowest rank of this node. Ranks that share pages are found once they have made them."""

    def __init__(self, directory: Path, control: Control, *, node: int = 0) -> None:
        self._directory, self._control, self._node = directory, control, node
        self._newest = 0, 0  # of the name
        self._inode: int | None = None  # of what is mapped, so nobody else gets it
        self._pages: list[Control] = []

    def discover(self) -> None:
        """Look for the ranks' pages. Those of a later start of the same ranks count. Its file may have the name that an
        earlier one had, or a lower one: a second torchrun counts its restarts anew. So the ranks' own words decide."""
        for entry in os.scandir(self._directory):
            match = _GROUP.fullmatch(entry.name)
            if match is None:
                continue
            try:
                if entry.inode() == self._inode:
                    continue
                pages, inode = _map(Path(entry.path))
            except (OSError, ValueError):  # it is just being made, or has just gone
                continue
            number = int(match[1]), int(match[2])
            if not self._pages or (_joined(pages), number) > (_joined(self._pages), self._newest):
                self._pages, self._newest, self._inode = pages, number, inode

    def look(self) -> dict[int, Seat]:
        """By rank."""
        from whistlestop.sdk.group import ARRIVALS, ARRIVED

        if not self._pages:
            return {self._node: _seat(self._control)} if not self._node else {}
        found, first = {}, self._node * len(self._pages)
        for local, page in enumerate(self._pages):
            words = self._control if first + local == 0 else page  # there rank 0 tells its own
            step = words[Word.STEP]
            arrived = page.seconds(ARRIVED + step % ARRIVALS) if step >= 0 else 0.0
            # The same store of the clock, or a later one once data was waited for.
            ready = arrived >= words.seconds(Word.PROGRESS_AT) if arrived > 0.0 else None
            found[first + local] = _seat(words)._replace(ready=ready)
        return found


def behind(seats: Mapping[int, Seat]) -> list[int]:
    """Those that the others wait for: who has not come at all, the lowest step, and of these who has no data yet."""
    inside = {rank: seat for rank, seat in seats.items() if not seat.over}
    missing = [rank for rank, seat in inside.items() if not seat.pid]
    if missing or not inside:
        return missing
    least = min(seat.step for seat in inside.values())
    late = [rank for rank, seat in inside.items() if seat.step == least]
    without = [rank for rank in late if inside[rank].ready is False]
    return without or late


def _map(path: Path) -> tuple[list[Control], int]:
    from whistlestop.sdk.pages import FIRST

    with path.open("rb") as file:
        inode = os.fstat(file.fileno()).st_ino
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return [Control(mapped, start) for start in range(FIRST * SIZE, len(mapped) - SIZE + 1, SIZE)], inode


def _joined(pages: list[Control]) -> int:
    """When the last of them came."""
    from whistlestop.sdk.pages import JOINED

    return max((page[JOINED] for page in pages), default=0)


def _seat(words: Control) -> Seat:
    loop = words[Word.LOOP]
    moment = Moment(_doing(words), words[Word.STEP], tuple(words[word] for word in _MARKS))
    return Seat(words[Word.PID], moment, words[Word.STEP], over=loop in _ENDED)


def _doing(words: Control) -> Doing:
    stage, batch, batches = words[Word.STAGE], words[Word.BATCH], words[Word.BATCHES]
    if stage == ProgramStage.EVALUATING:
        return Doing.EVALUATION
    if stage == ProgramStage.SAVING:
        return Doing.SAVE
    if words[Word.LOOP] in _ENDED or stage == ProgramStage.FINISHING:
        return Doing.FINISH
    if words[Word.LOOP] != Loop.INSIDE:
        return Doing.START
    if words.seconds(Word.PROGRESS_AT) <= words.seconds(Word.LOOP_STARTED_AT):
        return Doing.FIRST_STEP
    if (batches or words[Word.EPOCH]) and batch in (0, batches - 1):
        return Doing.EPOCH_END
    return Doing.STEP
