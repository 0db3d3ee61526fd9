"""The steps of a training and what may be due between two of them. Beginning, end and saving are in training.py."""

import math
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whistlestop.channel.layout import EXIT_PAUSED, Loop, ProgramStage, Word
from whistlestop.domain.errors import BadRequest
from whistlestop.domain.reasons import StopReason
from whistlestop.domain.stops import Stop
from whistlestop.sdk.group import ARRIVALS, ARRIVED, OUTCOME, Group
from whistlestop.sdk.moment import Fired
from whistlestop.sdk.saver import PERIODIC
from whistlestop.sdk.step import Step, step_type
from whistlestop.sdk.training import Training

EXIT_KILLED = 137
_ASK_AGAIN_SECONDS = 0.5
_WATCHED_STEPS = 16
_MOST_STEPS = 1 << 62
_PREPARE_STEPS = 64  # an optimizer that has no state by then has none
_RETRY_SAVE_SECONDS = 5.0  # a pause whose save failed trains on and tries again

# All of the runner's words, compared at once with what the loop saw last: half the price of reading three of them.
_ORDERS = slice(Word.STOP_LEVEL, Word.RANKS_FINISH + 1)

# Numbers, not enum members, in the loop: an attribute of a class costs as much as the load itself.
_STEP = int(Word.STEP)
_EPOCH = int(Word.EPOCH)
_BATCH = int(Word.BATCH)
_PROGRESS_AT = int(Word.PROGRESS_AT)

_time = time.time


class Paused(SystemExit):
    """Saved and left: not the end of training. A BaseException, so that `except Exception` lets it through."""


class Killed(SystemExit):
    """Left at the boundary without saving."""


@dataclass(frozen=True)
class Due:
    """What is due at a boundary, when `step` steps are done. `stop` and `done` end the training, `leave` and `kill`
    end the program."""

    step: int
    save: bool = False
    stop: bool = False
    leave: bool = False  # a pause, or the capacity goes
    done: bool = False  # all steps
    kill: bool = False
    why: str = ""

    @property
    def ends(self) -> bool:
        return self.stop or self.leave or self.done or self.kill

    def __bool__(self) -> bool:
        return self.save or self.ends


class Looping(Training):
    """`_look` says what is due, `_settle` does it. Frameworks with loops of their own do something in between."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._make: type[Step] = Step
        self._save_step: float = math.inf
        self._saves_seen = 0
        self._decided_at: int | None = None  # rank 0: the step that it has told the others
        self._acted = 0  # number of the last decision that was carried out
        self._leaves = 0  # pauses that were tried
        self._saves_told = 0  # by rank 0, and carried out
        self._framework_total: int | None = None  # of a loop that is not ours
        self._ask_again = 0.0  # when rank 0 is asked once more to stop
        self._told_reasons = False
        self._failed_seen = -math.inf  # the failed save after which the clock was set anew
        self._spent_before = 0  # steps that spent privacy before this loop
        self._planned_at: float = 0  # the next step at which something is due that values don't change
        self._cadence_time: float = math.inf  # the next save by the clock
        self._counts_from = 0.0  # when the last one was made, or failed
        self._prepare_at: float = math.inf  # when it is time to make room for saves
        self._waits_for_room = False  # a save is due, and there is no free slot
        self._ready: memoryview[float] | None = None  # when this rank was ready for a step, by the step
        self._steering_seen = 0
        self._steering_told = 0

    def _loop(self, accumulate: int = 1) -> Generator[Step, None, None]:
        self._enter_loop()
        per_epoch = self._per_epoch
        make = self._make
        orders = self._attachment.orders.words[_ORDERS]
        words, doubles = self._attachment.progress.words, self._attachment.progress.doubles
        ready = self._ready
        at = self._at
        index = at[0]
        epoch, batch = divmod(index, per_epoch) if per_epoch else (0, 0)
        seen = memoryview(bytes(orders.nbytes)).cast("q")  # no orders
        now = _time()
        while True:
            if index >= self._check_at or now >= self._save_time or orders != seen:
                # Kept before it is looked at: what changes meanwhile is seen at the next boundary.
                seen = memoryview(orders.tobytes()).cast("q")
                if self._boundary(index):
                    return
            try:
                if accumulate == 1:
                    yield make(index)
                else:
                    yield from _micro_steps(make, index, accumulate)
            except GeneratorExit:
                self._leave_by_break()
                raise
            index += 1
            at[0] = index
            words[_STEP] = index
            doubles[_PROGRESS_AT] = now = _time()
            if ready is not None:
                ready[index % ARRIVALS] = now
            if per_epoch:
                batch += 1
                if batch == per_epoch:
                    batch = 0
                    epoch += 1
                    words[_EPOCH] = epoch
                words[_BATCH] = batch

    def _leave_by_break(self) -> None:
        """`break`, or an error in the loop's body: only the end of the `with` block can tell. Whether the step's work
        was done nobody can: it does not count."""
        progress = self._attachment.progress
        if progress[Word.LOOP] == Loop.INSIDE:
            progress[Word.LOOP] = Loop.LEFT
            progress[Word.STAGE] = ProgramStage.FINISHING

    def _prepare_loop(self, total: int | None, per_epoch: int | None, accumulate: int = 1) -> None:
        if self._looping:
            raise BadRequest("steps() was called twice; a run has one loop")
        self._looping = True
        self._restore()
        self._total, self._per_epoch = total, per_epoch
        self._make = step_type(total=total, per_epoch=per_epoch, accumulate=accumulate)
        self._own_save = -1

    def _enter_loop(self) -> None:
        total, per_epoch = self._total, self._per_epoch
        attachment = self._attachment
        progress, step = attachment.progress, self._at[0]
        # Other ranks start with a clean page: what is in it was meant for them.
        self._saves_seen = attachment.orders[Word.CHECKPOINT_NOW] if attachment.leads else 0
        now = time.time()
        progress[Word.TOTAL] = total or 0
        progress[Word.BATCHES] = per_epoch or 0
        progress[Word.EPOCH], progress[Word.BATCH] = divmod(step, per_epoch) if per_epoch else (0, 0)
        progress.set_seconds(Word.PROGRESS_AT, now)
        progress.set_seconds(Word.LOOP_STARTED_AT, now)
        progress[Word.STAGE] = ProgramStage.TRAINING
        progress[Word.LOOP] = Loop.INSIDE
        if attachment.group is not None:
            attachment.group.mine[Word.LOOP] = Loop.INSIDE
            self._ready = attachment.group.mine.doubles[ARRIVED : ARRIVED + ARRIVALS]
            self._ready[:] = memoryview(bytes(8 * ARRIVALS)).cast("d")
            if attachment.leads:  # of an earlier start of these ranks; who still means it asks again
                attachment.front[Word.RANKS_INTERRUPTED] = attachment.front[Word.RANKS_FINISH] = 0
        self._loop_began = time.monotonic()
        self._interrupts.install()
        self._open_ledger()
        self._spent_before = self._ledger.spent if self._ledger is not None else 0
        self._warn_of_silence()
        self._steering.tell_params()
        if any(part.size is not None for part in self._parts.values()):
            self._prepare_at = step + 1  # an optimizer has its state from its first step on
        attachment.tell_runner()
        if attachment.group is not None and attachment.group.world.rank == 0:
            from whistlestop.sdk.stragglers import Stragglers

            self._stragglers = Stragglers(attachment.group, attachment)
        self._plan(step)

    def _warn_of_silence(self) -> None:
        """What would go wrong without anybody noticing."""
        if self._restored is not None and not self._parts and not self._restore_asked:
            self._attachment.warn(
                f"{self.name} goes on at step {self._restored.step}, but nothing of its checkpoint is loaded: call "
                "run.track(...) or run.saves(...) before the loop, or load what run.restore() gives you"
            )
        if self._cadence.counts_epochs and self._per_epoch is None:
            self._attachment.warn(
                f"{self.name} is to save by epochs, but nobody knows how long one is: call run.steps(per_epoch=...)"
            )

    def _boundary(self, step: int) -> bool:
        """Between two steps, when something may be due. True: the loop ends here. Leaves by Paused or Killed."""
        return self._settle(self._look(step))

    # What is due.

    def _look(self, step: int) -> Due:
        """Nothing is done yet, except that changes of parameters hold from here on."""
        self._waits_for_room = False
        if step % _WATCHED_STEPS == 0:
            self._settle_watched()
        attachment = self._attachment
        orders, group = attachment.orders, attachment.group
        if orders[Word.STOP_LEVEL] >= Stop.KILL:
            return Due(step, kill=True)
        if attachment.leads or group is None:
            attachment.progress[Word.ACK_SEQ] = orders[Word.STOP_SEQ]
        if group is not None:
            self._obey_steering(step, group)
        elif step >= orders[Word.STOP_AT_STEP]:
            self._steer(step)
        if self._total is not None and step >= self._total:
            return Due(step, done=True, save=True, why="all steps done")
        if self._ask_rules(step):
            return Due(step, stop=True, save=True, why="stopped")
        due = self._look_alone(step) if group is None else self._look_together(step, group)
        if not due and (step >= self._save_step or (group is None and time.time() >= self._cadence_time)):
            due = Due(step, save=True, why=PERIODIC)
        # Nothing is prepared for a save that can't be made yet: a framework might write all of it to disk.
        self._waits_for_room = group is None and due.save and not due.ends and not self._open_saver().has_room
        return Due(step) if self._waits_for_room else due

    def _look_alone(self, step: int) -> Due:
        orders = self._attachment.orders
        if step < orders[Word.STOP_AT_STEP]:
            return Due(step)
        return self._wishes(step)

    def _wishes(self, step: int) -> Due:
        """What the orders, signals, rules and the program itself want of this process."""
        orders = self._attachment.orders
        level = orders[Word.STOP_LEVEL]
        interrupted = self._interrupts.seen > 0 or orders[Word.RANKS_INTERRUPTED] > 0
        finish = bool(self._finish or self._fired or orders[Word.RANKS_FINISH])
        if level == Stop.FINISH_PHASE or finish or (interrupted and not self._attachment.attached):
            return Due(step, stop=True, save=True, why="stopped")
        # A signal that nobody ordered: the machine is going, or somebody else wants us gone. Not a result.
        if level or orders[Word.PREEMPT_DEADLINE] or interrupted:
            why = "paused" if level else "the capacity is being reclaimed"
            return Due(step, leave=True, save=not orders[Word.PAUSE_LATEST], why=why)
        if orders[Word.CHECKPOINT_NOW] != self._saves_seen or self._save_asked:
            return Due(step, save=True, why="on request")
        return Due(step)

    def _look_together(self, step: int, group: Group) -> Due:
        """Several ranks: rank 0 turns wishes into a decision for a later step; all carry it out there."""
        if group.world.rank > 0:
            self._pass_wishes_on()
        elif self._decided_at is None and group.all_acknowledged():
            self._decide(step, group)
        page = group.decided
        if page[Word.STOP_SEQ] == self._acted or not group.due(step):
            return Due(step)
        seq = page[Word.STOP_SEQ]
        self._acted, self._decided_at = seq, None
        group.acknowledge()
        level = page[Word.STOP_LEVEL]
        if level == Stop.FINISH_PHASE:
            return Due(step, stop=True, save=True, why="stopped")
        if level or page[Word.PREEMPT_DEADLINE]:
            why = "paused" if level else "the capacity is being reclaimed"
            return Due(step, leave=True, save=not page[Word.PAUSE_LATEST], why=why)
        asked = page[Word.CHECKPOINT_NOW]
        if asked != self._saves_told:
            self._saves_told = asked
            return Due(step, save=True, why="on request" if asked % 2 else PERIODIC)
        return Due(step)

    def _decide(self, step: int, group: Group) -> None:
        wish = self._wishes(step)
        words: dict[int, int] = {}
        orders = self._attachment.orders
        if wish.stop:
            words[Word.STOP_LEVEL] = Stop.FINISH_PHASE
        elif wish.leave:
            if self._is_patient() and time.time() < self._open_saver().failed_at + _RETRY_SAVE_SECONDS:
                return  # the last try could not save: train on for a while
            words[Word.PAUSE_LATEST] = orders[Word.PAUSE_LATEST]
            words[Word.PREEMPT_DEADLINE] = orders[Word.PREEMPT_DEADLINE] or 0
            words[Word.STOP_LEVEL] = Stop.PAUSE if orders[Word.STOP_LEVEL] else Stop.NONE
            if not words[Word.STOP_LEVEL]:
                words[Word.PREEMPT_DEADLINE] = words[Word.PREEMPT_DEADLINE] or 1
        elif (wish.save or time.time() >= self._cadence_time) and self._open_saver().has_room:
            if wish.save:
                self._saves_seen = orders[Word.CHECKPOINT_NOW]
                self._save_asked = False
            # Odd: somebody has asked for it.
            words[Word.CHECKPOINT_NOW] = (group.decided[Word.CHECKPOINT_NOW] // 2 + 1) * 2 + wish.save
        if orders[Word.STEERING] != self._steering_seen:
            self._steering_seen = orders[Word.STEERING]
            self._steering.read()
        if self._steering.newest > group.decided[Word.STEERING]:
            words[Word.STEERING] = self._steering.newest
        if words:
            self._decided_at = group.decide(step, words, earliest=orders[Word.STOP_AT_STEP])

    def _pass_wishes_on(self) -> None:
        """A rank that is not the first can only ask for it, until it is decided."""
        finish = bool(self._finish or self._fired)
        if not (self._interrupts.seen or finish) or time.monotonic() < self._ask_again:
            return
        self._ask_again = time.monotonic() + _ASK_AGAIN_SECONDS
        try:
            if finish and not self._told_reasons:
                self._told_reasons = True
                self._tell_reasons(self._own_reasons())
            self._attachment.ask_front(Word.RANKS_FINISH if finish else Word.RANKS_INTERRUPTED)
        except Exception as error:
            self._attachment.warn(f"rank 0 can't be asked to stop: {error}")

    def _own_reasons(self) -> list[Fired]:
        return [*self._fired, *([Fired(*self._finish)] if self._finish else [])]

    def _settle_watched(self) -> None:
        """Late values that stop rules wait for. At fixed steps, whatever the time: a resumed run stops where another
        one would."""
        try:
            self._late_watched.settle()
        except Exception as error:
            self._attachment.say(f"metrics can't be read from their device: {error!r}")

    # Rules and steering.

    def _steer(self, step: int) -> None:
        """One rank: what was asked for holds from here on."""
        asked = self._attachment.orders[Word.STEERING]
        if asked != self._steering_seen:
            self._steering_seen = asked
            self._steering.read()
        if self._steering.newest or step >= self._steering.next_step():
            self._steering.apply(step, up_to=self._steering.newest, set_total=self._set_total(step), tells=True)

    def _obey_steering(self, step: int, group: Group) -> None:
        """Several ranks: new changes from the step that rank 0 has told, old ones where they were made before."""
        page = group.decided
        told = self._steering_told
        if page[Word.STEERING] != told and group.due(step):
            told = page[Word.STEERING]
        if told != self._steering_told:
            self._steering_told = told
            self._steering.read()
        if step >= self._steering.next_step() or (told and self._steering.newest):
            self._steering.apply(step, up_to=told, set_total=self._set_total(step), tells=self._attachment.leads)

    def _set_total(self, step: int) -> Any:
        def set_total(total: int) -> str | None:
            if not step <= total < _MOST_STEPS:
                return f"it can't end at step {total}: {step} are done"
            if self._framework_total is not None and total > self._framework_total:
                return f"its framework ends at step {self._framework_total}: the run can be made shorter, not longer"
            self._total, self._extended = total, True
            self._planned_at = 0  # to be planned anew
            self._make.total = total
            self._attachment.progress[Word.TOTAL] = total
            return None

        return set_total

    # Doing it.

    def _settle(self, due: Due, files: Mapping[str, Path] | None = None) -> bool:
        step = due.step
        if due.kill:
            raise Killed(EXIT_KILLED)
        if due.done:
            return self._finish_loop(step, files)
        if due.stop:
            return self._stop_loop(step, files)
        if due.leave:
            self._pause_loop(due, files)
        elif due.save:
            if self._attachment.group is None and due.why != PERIODIC:
                self._saves_seen = self._attachment.orders[Word.CHECKPOINT_NOW]
                self._save_asked = False
            asked_more = bool(self._save_files) and due.why != PERIODIC
            if asked_more or not self._is_saved(step) or self._attachment.group is not None:
                self._save(step, due.why, files)
        if due:
            self._plan(step)
        else:
            self._replan(step)
        self._spend(step)
        return False

    def _spend(self, step: int) -> None:
        """The step with this index is about to run, and spends privacy. Saying it twice counts once."""
        if self._ledger is not None:
            more = self._spent_before + step + 1 - self._first_step() - self._ledger.spent
            if more > 0:
                self._ledger.spend(more)

    def _finish_loop(self, step: int, files: Mapping[str, Path] | None = None) -> bool:
        self._save_last(step, "all steps done", files)
        if self._attachment.leads:
            self._tell_reasons([Fired(StopReason.COMPLETED, f"all {step} steps done")])
        return self._leave_loop(Loop.FINISHED)

    def _stop_loop(self, step: int, files: Mapping[str, Path] | None = None) -> bool:
        self._save_last(step, "stopped", files)
        fired = self._own_reasons()
        if fired and self._attachment.leads:
            self._tell_reasons(fired)
        if not self._attachment.attached and self._attachment.leads:
            why = f" ({'; '.join(each.text for each in fired)})" if fired else "; start it again to go on from there"
            self._attachment.say(f"{self.name}: stopped at step {step}{why}")
        return self._leave_loop(Loop.STOPPED)

    def _is_patient(self) -> bool:
        """A pause that can't save trains on and tries again. A machine that is being reclaimed has no time for that."""
        orders = self._attachment.orders
        reclaimed = orders[Word.PREEMPT_DEADLINE] or self._interrupts.seen or orders[Word.RANKS_INTERRUPTED]
        return bool(orders[Word.STOP_LEVEL]) and not reclaimed

    def _pause_loop(self, due: Due, files: Mapping[str, Path] | None) -> None:
        """Leaves by Paused; comes back if a pause could not save: then training goes on, and it is tried again."""
        step, group, attachment = due.step, self._attachment.group, self._attachment
        saver = self._open_saver()
        leave = True
        if due.save and step > self._first_step() and not self._is_saved(step):
            if group is None and self._is_patient() and time.time() < saver.failed_at + _RETRY_SAVE_SECONDS:
                return
            saved = self._save(step, due.why, files)
            leave = saved is not None or not self._is_patient() or not attachment.leads
        if group is not None:
            leave = self._leave_together(group, leave)
        if not leave:
            return
        attachment.progress[Word.LOOP] = Loop.PAUSED
        raise Paused(EXIT_PAUSED)

    def _leave_together(self, group: Group, leave: bool) -> bool:
        """All ranks leave, or none, as rank 0 says once it has saved, and all at the same time: a launcher that sees
        one of them leave ends the others."""
        self._leaves += 1
        if group.world.rank == 0:
            group.tell({OUTCOME: self._leaves * 2 + leave})
            return leave
        group.wait(lambda: group.decided[OUTCOME] // 2 >= self._leaves, "rank 0 to save")
        return bool(group.decided[OUTCOME] % 2)

    def _leave_loop(self, loop: Loop) -> bool:
        self._warn_of_unknown_names()
        progress = self._attachment.progress
        progress[Word.STAGE] = ProgramStage.FINISHING
        progress[Word.LOOP] = loop
        if self._stragglers is not None:
            self._stragglers.close()
        if self._attachment.group is not None:
            self._attachment.group.end(loop)
        if not self._attachment.attached:
            self._interrupts.restore()  # behind the loop Ctrl-C is the user's again
        return True

    def _plan(self, step: int) -> None:
        """When to look closer next."""
        if step >= self._prepare_at:
            self._prepare_saves(step)
        self._attachment.count_dropped()
        if not self._waits_for_room:
            self._save_step = self._cadence.next_step(step, per_epoch=self._per_epoch)
        saver = self._open_saver()
        now = time.time()
        failed = saver.failed_at != self._failed_seen
        anew = self._cadence_time == math.inf or saver.saved_step == step or failed
        if anew:
            self._failed_seen, self._counts_from = saver.failed_at, now
        cost = saver.cost
        measured = cost is not None and saver.saved_step >= 0 and self._measured.saved(saver.saved_step, cost)
        if anew or measured:
            self._plan_time(self._counts_from)
        if saver.put_off:  # as soon as a slot is free
            saver.put_off, self._cadence_time = False, now
        total = math.inf if self._total is None else self._total
        self._planned_at = min(self._save_step, total, self._steering.next_step(), self._prepare_at)
        if cost is None:  # what it costs is seen in the next step
            self._planned_at = min(self._planned_at, step + 1)
        self._set_next_look(step)

    def _plan_time(self, now: float) -> None:
        """The next save by the clock, by what saves have cost so far."""
        attachment, measured = self._attachment, self._measured
        measured.durable(attachment.orders[Word.DURABLE_STEP], attachment.orders.seconds(Word.DURABLE_SECONDS))
        costs = measured.costs(age=time.monotonic() - self._loop_began)
        self._cadence_time = self._cadence.next_time(now, costs=costs)
        interval = self._cadence.interval(costs)
        if attachment.leads and interval is not None and measured.is_news(interval.seconds):
            text = f"{self.name} saves {interval.why}"
            attachment.tell({"kind": "message", "level": "info", "text": text})
            if not attachment.attached:
                attachment.say(text)

    def _prepare_saves(self, step: int) -> None:
        """Make room for them, so that the first one costs the loop no more than the others."""
        tried = step - self._first_step()
        try:
            done = self._open_saver().prepare()
        except Exception as error:  # the save itself will tell
            self._attachment.say(f"no room could be made for saves: {error!r}")
            done = True
        self._prepare_at = math.inf if done or tried > _PREPARE_STEPS else step + tried

    def _replan(self, step: int) -> None:
        """The same, when nothing was done but to look."""
        if step >= self._planned_at:
            self._plan(step)
        else:
            self._set_next_look(step)

    def _set_next_look(self, step: int) -> None:
        """The flag is read last: a signal may come meanwhile."""
        now = time.time()
        self._late.settle_old(now)
        self._rules_step = self._rules.next_step(step)
        self._save_time = min(
            self._cadence_time if self._attachment.leads else math.inf,
            now + self._rules.next_seconds() - self._training_seconds(),
            self._late.due_at,
        )
        self._check_at = min(self._planned_at, self._rules_step)
        if self._late_watched.due_at < math.inf:
            self._check_at = min(self._check_at, step - step % _WATCHED_STEPS + _WATCHED_STEPS)
        if self._ledger is not None or self._waiting():
            self._check_at = -1

    def _waiting(self) -> bool:
        """For a step, for other ranks, or for a save that failed."""
        orders, group = self._attachment.orders, self._attachment.group
        if group is not None and (self._decided_at is not None or group.decided[Word.STOP_SEQ] != self._acted):
            return True
        if group is not None and group.world.rank > 0:
            return bool(self._interrupts.seen or self._finish or self._fired or self._fresh)
        asked = (
            orders[Word.STOP_LEVEL] or orders[Word.PREEMPT_DEADLINE] or orders[Word.CHECKPOINT_NOW] != self._saves_seen
        )
        told = orders[Word.RANKS_INTERRUPTED] or orders[Word.RANKS_FINISH] or self._fresh
        if group is not None and (orders[Word.STEERING] != self._steering_seen or self._steering.newest):
            return True
        return bool(asked or told or self._interrupts.seen or self._finish or self._fired or self._save_asked)


def _micro_steps(make: type[Step], index: int, accumulate: int) -> Generator[Step, None, None]:
    """The parts of one step, whose gradients are added up. Nothing is due between them: half a step can't be saved."""
    for micro in range(accumulate):
        step = make(index)
        step.micro = micro
        yield step
