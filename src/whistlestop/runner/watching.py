"""Whether the program gets on: its words are read from outside, about once a second, and cost it nothing.

A silence that its own history does not justify is told once, with the stacks that show where it hangs, and so is its
end. Nothing is done about it here: that is a person's decision, or a guard's.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from whistlestop.channel.control import Control
from whistlestop.diagnosis.pace import FLOOR, UNSEEN, Doing, Moment, Rhythm
from whistlestop.runner import silence
from whistlestop.runner.notes import note
from whistlestop.runner.progress import imported
from whistlestop.runner.seats import Seat, Seats, behind
from whistlestop.runner.stacks import Spy, Stack, decisive

if TYPE_CHECKING:
    from whistlestop.wire.launch import Launch

ENV_FLOOR = "WHISTLE_STUCK_AFTER"  # seconds, of the program's environment: no shorter silence is told
_EVERY, _QUICKEST = 1.0, 0.1  # seconds between two looks
_DISCOVER_EVERY = 5.0
_APART = 5.0  # times its patience, and at least what is unknown: one rank hangs while the others train
_MOST_BACK_OFF = 8.0
_MOST_ASKED = 8
_TRAINS = (Doing.FIRST_STEP, Doing.STEP, Doing.EPOCH_END)


class Tell(Protocol):
    def __call__(self, kind: str, text: str, /, **data: Any) -> None: ...


@dataclass(frozen=True)
class Silence:
    """What was seen of it when it had become too long."""

    rank: int  # whose rhythm it was judged by
    doing: Doing
    seconds: float
    expected: float
    step: int
    idle: bool


class Watching:
    """`expects`: False while nothing is expected of the program (it is not there yet, it is being stopped).
    `signs`: when it was last seen to compute or to print, by the same clock."""

    def __init__(
        self,
        launch: "Launch",
        control: Control,
        spy: Spy,
        *,
        tell: Tell,
        expects: Callable[[], bool],
        signs: Callable[[], float],
        host: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._control, self._spy, self._tell, self._clock = control, spy, tell, clock
        self._expects, self._signs = expects, signs
        self._host = host
        self._floor = floor_of(launch.env)
        self._every = min(_EVERY, max(_QUICKEST, self._floor / 20))
        self._seats = Seats(Path(launch.directory), control, node=launch.node)
        self._follows = launch.node > 0
        self._rhythms: dict[int, Rhythm] = {}
        self._next = self._discover = 0.0
        self._told: Silence | None = None
        self._episodes = 0
        self._looking: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Task[None]] = set()
        self._stopped = False

    def look(self) -> None:
        """Called at every tick; mostly it is not time yet."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self._every
        if self._stopped or not self._expects():
            for rhythm in self._rhythms.values():
                rhythm.rest(now)
            self._told = None
            return
        if now >= self._discover:
            self._discover = now + min(_DISCOVER_EVERY, 10 * self._every)
            self._seats.discover()
        seats = self._seats.look() or {0: _nobody()}
        moved = self._see(now, seats)
        if self._told is not None:
            self._go_on(moved, seats, quiet=now - self._signs())
        elif self._looking is None and (found := self._silence(now, seats)) is not None:
            self._looking = asyncio.create_task(self._examine(found, seats))

    def ask(self, asked: str) -> None:
        """Stacks, because somebody wants to see them. Nobody has a use for many at once."""
        if len(self._asked) >= _MOST_ASKED:
            return
        task = asyncio.create_task(self._answer(asked))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def stop(self) -> None:
        """The program has ended, or is being ended: nothing of ours may be taken for a part of it."""
        self._stopped = True
        self._spy.stop()
        waiting = [*self._asked, *([self._looking] if self._looking is not None else [])]
        if waiting:
            await asyncio.wait(waiting, timeout=2.0)

    def _see(self, now: float, seats: Mapping[int, Seat]) -> set[int]:
        """The ranks that have got on since the last look."""
        if set(self._rhythms) != set(seats):  # ranks have come, or have started anew
            self._rhythms = {
                rank: self._rhythms.get(rank) or Rhythm(floor=self._floor, every=self._every) for rank in seats
            }
        for rank in self._excused(seats):
            self._rhythms[rank].skip(now)
        return {rank for rank, seat in seats.items() if self._rhythms[rank].see(now, seat.moment)}

    @staticmethod
    def _excused(seats: Mapping[int, Seat]) -> set[int]:
        """Those that train while another rank evaluates or saves: they wait for it."""
        trains = {rank for rank, seat in seats.items() if seat.moment.doing in _TRAINS}
        apart = any(seat.moment.doing in (Doing.EVALUATION, Doing.SAVE) for seat in seats.values())
        return trains if apart else set()

    def _silence(self, now: float, seats: Mapping[int, Seat]) -> Silence | None:
        """All ranks are silent for too long; or one for very much too long, while the others get on."""
        if max(rhythm.silent for rhythm in self._rhythms.values()) < self._floor:
            return None
        quiet = now - self._signs()
        judged = {rank: seat for rank, seat in seats.items() if not seat.over or seat.pid}
        found = {rank: self._of(rank, judged[rank], quiet) for rank in judged.keys() - self._excused(judged)}
        late = {rank: each for rank, each in found.items() if each.seconds > each.expected}
        if late and len(late) == len(found):
            return min(late.values(), key=lambda each: (each.step, each.rank))
        alone = {
            rank: each
            for rank, each in late.items()
            if each.seconds > max(UNSEEN * self._floor, _APART * each.expected) and not seats[rank].over
        }
        trains = all(each.doing in _TRAINS for each in found.values())
        return min(alone.values(), key=lambda each: (each.step, each.rank)) if alone and trains else None

    def _of(self, rank: int, seat: Seat, quiet: float) -> Silence:
        """`quiet`: seconds in which nothing was computed or printed. Where nothing is known of what it is at, these
        count against the shorter patience, and all of its silence against the longer one."""
        rhythm, doing = self._rhythms[rank], seat.moment.doing
        idle, busy = rhythm.patience(idle=True), rhythm.patience(idle=False)
        silent, expected = rhythm.silent, busy
        if idle < busy and quiet > idle:
            silent, expected = min(silent, quiet), idle
        expected *= min(_MOST_BACK_OFF, 2.0**self._episodes)
        if self._follows:  # rank 0 may evaluate, and the words for it are on another node
            expected = max(expected, UNSEEN * self._floor)
        return Silence(rank, doing, silent, expected, seat.step, quiet > self._floor)

    @property
    def _sdk(self) -> bool:
        return imported(self._control)

    async def _examine(self, found: Silence, seats: Mapping[int, Seat]) -> None:
        try:
            stacks = await asyncio.to_thread(self._spy.take, _by_process(seats))
            rhythm = self._rhythms.get(found.rank)
            if self._stopped or not self._expects() or rhythm is None or rhythm.silent < found.seconds:
                return  # it has got on meanwhile
            self._tell_stuck(found, seats, stacks)
            self._told = found
        except Exception as error:  # the next look tries again
            note(f"stacks: {error!r}")
        finally:
            self._looking = None

    def _tell_stuck(self, found: Silence, seats: Mapping[int, Seat], stacks: list[Stack]) -> None:
        late = behind(seats)
        missing = [rank for rank in late if not seats[rank].pid]
        stack = decisive(stacks, late)
        rank = missing[0] if missing and len(seats) > 1 else stack.rank if stack is not None else None
        usual = self._rhythms[found.rank].usual(found.doing)
        text = silence.stuck(found.doing, found.seconds, found.step, usual, sdk=self._sdk, idle=found.idle)
        if missing and len(seats) > 1:
            text += f"; rank {rank} has not come"
        elif shown := stack or next(iter(stacks), None):
            name = silence.who(shown.rank, ranks=len(seats), host=self._host)
            text += f"; {name} {shown.where()}"
        self._tell(
            "stuck",
            f"{text}.",
            rank=rank if len(seats) > 1 or rank is None else 0,
            ranks={str(each): seat.step for each, seat in seats.items()},
            host=self._host,
            stage=found.doing.value,
            silent_s=round(found.seconds, 3),
            expected_s=round(found.expected, 3),
            step=found.step,
            usual_s=round(usual.median, 6) if usual is not None else None,
            longest_s=round(usual.longest, 6) if usual is not None else None,
            idle=found.idle,
            sdk=self._sdk,
            stacks=[each.data() for each in stacks],
            trouble=self._spy.trouble,
        )

    def _go_on(self, moved: set[int], seats: Mapping[int, Seat], quiet: float) -> None:
        told = self._told
        assert told is not None
        works = told.doing in (Doing.START, Doing.FINISH) and quiet < self._floor
        if told.rank not in moved and (told.rank in seats or not moved) and not works:
            return
        self._told = None
        self._episodes += 1
        step, silent = told.step, told.seconds
        if told.rank in seats and not works:
            step, silent = seats[told.rank].step, self._rhythms[told.rank].broken
        self._tell("going_again", silence.going_again(silent, step), silent_s=round(silent, 3), step=step)

    async def _answer(self, asked: str) -> None:
        seats = self._seats.look()
        try:
            stacks = await asyncio.to_thread(self._spy.take, _by_process(seats))
        except Exception as error:
            note(f"stacks: {error!r}")
            return
        if self._stopped:
            return
        text = f"No stacks could be taken on {self._host}: {self._spy.trouble or 'nothing runs there'}."
        if stacks:
            shown = decisive(stacks, behind(seats)) or stacks[0]
            rank = "it" if shown.rank is None else f"rank {shown.rank}"
            text = f"Stacks were taken: {rank} on {self._host} {shown.where()}."
        self._tell(
            "stacks",
            text,
            asked=asked,
            host=self._host,
            ranks={str(each): seat.step for each, seat in seats.items()},
            stacks=[each.data() for each in stacks],
            trouble=self._spy.trouble,
        )


def floor_of(env: Mapping[str, str]) -> float:
    try:
        return max(0.1, float(env.get(ENV_FLOOR, "")))
    except ValueError:
        return FLOOR


def _by_process(seats: Mapping[int, Seat]) -> dict[int, int]:
    return {seat.pid: rank for rank, seat in seats.items() if seat.pid}


def _nobody() -> Seat:
    return Seat(0, Moment(Doing.START), 0)
