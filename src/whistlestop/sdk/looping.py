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
from whistlestop.sdk.group import OUTCOME, Group
from whistlestop.sdk.moment import Fired, Moment
from whistlestop.sdk.step import Step, step_type
from whistlestop.sdk.training import Training

EXIT_KILLED = 137
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
        self._save_time: float = math.inf
        self._saves_seen = 0
        self._decided_at: int | None = None  # rank 0: the step that it has told the others
        self._acted = 0  # number of the last decision that was carried out
        self._leaves = 0  # pauses that were tried
        self._saves_told = 0  # by rank 0, and carried out
        self._passed_on = [False, False]  # to rank 0: that we were interrupted, that we want to end
        self._cadence_time: float = math.inf  # the next save by the clock
        self._rules_step: float = math.inf
        self._steering_seen = 0
        self._steering_told = 0

    def _loop(self, accumulate: int = 1) -> Generator[Step, None, None]:
        self._enter_loop()
        per_epoch = self._per_epoch
        make = self._make
        orders = self._attachment.orders.words[_ORDERS]
        words, doubles = self._attachment.progress.words, self._attachment.progress.doubles
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
        self._loop_began = time.monotonic()
        self._interrupts.install()
        self._open_ledger()
        self._warn_of_silence()
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
        exact = self._ask_rules(step)
        if exact:
            return Due(step, stop=True, save=True, why="stopped")
        due = self._look_alone(step) if group is None else self._look_together(step, group)
        if not due.ends and (step >= self._save_step or (group is None and time.time() >= self._cadence_time)):
            return Due(step, save=True, why="on its cadence")
        return due

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
        seq = page[Word.STOP_SEQ]
        if seq == self._acted or step < page[Word.STOP_AT_STEP]:
            return Due(step)
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
            return Due(step, save=True, why="on request")
        return Due(step)

    def _decide(self, step: int, group: Group) -> None:
        wish = self._wishes(step)
        words: dict[int, int] = {}
        orders = self._attachment.orders
        if wish.stop:
            words[Word.STOP_LEVEL] = Stop.FINISH_PHASE
        elif wish.leave:
            if time.time() < self._open_saver().failed_at + _RETRY_SAVE_SECONDS and orders[Word.STOP_LEVEL]:
                return  # the last try could not save: train on for a while
            words[Word.PAUSE_LATEST] = orders[Word.PAUSE_LATEST]
            words[Word.PREEMPT_DEADLINE] = orders[Word.PREEMPT_DEADLINE] or 0
            words[Word.STOP_LEVEL] = Stop.PAUSE if orders[Word.STOP_LEVEL] else Stop.NONE
            if not words[Word.STOP_LEVEL]:
                words[Word.PREEMPT_DEADLINE] = words[Word.PREEMPT_DEADLINE] or 1
        elif wish.save or time.time() >= self._cadence_time:
            self._saves_seen = orders[Word.CHECKPOINT_NOW]
            self._save_asked = False
            words[Word.CHECKPOINT_NOW] = group.decided[Word.CHECKPOINT_NOW] + 1
        if orders[Word.STEERING] != self._steering_seen:
            self._steering_seen = orders[Word.STEERING]
            self._steering.read()
        if self._steering.newest > group.decided[Word.STEERING]:
            words[Word.STEERING] = self._steering.newest
        if words:
            self._decided_at = group.decide(step, words, earliest=orders[Word.STOP_AT_STEP])

    def _pass_wishes_on(self) -> None:
        """A rank that is not the first can only ask for it."""
        try:
            if self._interrupts.seen and not self._passed_on[0]:
                self._passed_on[0] = True
                self._attachment.ask_front(Word.RANKS_INTERRUPTED)
            if (self._finish or self._fired) and not self._passed_on[1]:
                self._passed_on[1] = True
                self._tell_reasons([*self._fired, *([Fired(*self._finish)] if self._finish else [])])
                self._attachment.ask_front(Word.RANKS_FINISH)
        except Exception as error:
            self._attachment.warn(f"rank 0 can't be asked to stop: {error}")

    # Rules and steering.

    def _ask_rules(self, step: int) -> bool:
        """True: a rule fires that fires at this very step in every rank. Others become a wish."""
        rules = self._rules
        if rules.empty:
            return False
        seconds = self._training_seconds()
        if not (self._fresh or step >= self._rules_step or seconds >= rules.next_seconds()):
            return False
        values, self._fresh = self._fresh, {}
        fired = rules.look(Moment(step, seconds, values, dict(self._latest), self._spent(step)))
        known = {each.reason for each in self._fired}
        self._fired += [each for each in fired if each.reason not in known]
        return any(each.exact for each in fired)

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
        told = page[Word.STEERING] if step >= page[Word.STOP_AT_STEP] else self._steering_told
        if told != self._steering_told:
            self._steering_told = told
            self._steering.read()
        if step >= self._steering.next_step() or (told and self._steering.newest):
            self._steering.apply(step, up_to=told, set_total=self._set_total(step), tells=self._attachment.leads)

    def _set_total(self, step: int) -> Any:
        def set_total(total: int) -> str | None:
            if total < step:
                return f"it can't end at step {total}: {step} are done"
            self._total = total
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
            if self._attachment.group is None:
                self._saves_seen = self._attachment.orders[Word.CHECKPOINT_NOW]
                self._save_asked = False
            if self._open_saver().saved_step != step or self._attachment.group is not None:
                self._save(step, due.why, files)
        self._plan(step)
        if self._ledger is not None:
            self._ledger.spend()
        return False

    def _finish_loop(self, step: int, files: Mapping[str, Path] | None = None) -> bool:
        self._save_last(step, "all steps done", files)
        if self._attachment.leads:
            self._tell_reasons([Fired(StopReason.COMPLETED, f"all {step} steps done")])
        return self._leave_loop(Loop.FINISHED)

    def _stop_loop(self, step: int, files: Mapping[str, Path] | None = None) -> bool:
        self._save_last(step, "stopped", files)
        fired = [*self._fired, *([Fired(*self._finish)] if self._finish else [])]
        if fired and self._attachment.leads:
            self._tell_reasons(fired)
        if not self._attachment.attached and self._attachment.leads:
            why = f" ({'; '.join(each.text for each in fired)})" if fired else "; start it again to go on from there"
            self._attachment.say(f"{self.name}: stopped at step {step}{why}")
        return self._leave_loop(Loop.STOPPED)

    def _pause_loop(self, due: Due, files: Mapping[str, Path] | None) -> None:
        """Leaves by Paused; comes back if a pause could not save: then training goes on, and it is tried again."""
        step, group, attachment = due.step, self._attachment.group, self._attachment
        interrupted = self._interrupts.seen > 0
        saver = self._open_saver()
        patient = bool(attachment.orders[Word.STOP_LEVEL]) and not interrupted  # a reclaimed machine has no time
        self._leaves += 1
        fine = True
        if due.save and step > self._first_step() and saver.saved_step != step:
            if group is None and time.time() < saver.failed_at + _RETRY_SAVE_SECONDS and patient:
                return
            saved = self._save(step, due.why, files)
            fine = saved is not None or not attachment.leads
        if group is not None:
            fine = self._outcome(group, fine)
        if not fine and patient:
            return
        attachment.progress[Word.LOOP] = Loop.PAUSED
        raise Paused(EXIT_PAUSED)

    def _outcome(self, group: Group, fine: bool) -> bool:
        """Whether rank 0 could save: all ranks leave, or none, and all at the same time. A launcher that sees one of
        them leave ends the others."""
        if group.world.rank == 0:
            group.tell({OUTCOME: self._leaves * 2 + fine})
            return fine
        group.wait(lambda: group.decided[OUTCOME] // 2 >= self._leaves, "rank 0 to save")
        return bool(group.decided[OUTCOME] % 2)

    def _leave_loop(self, loop: Loop) -> bool:
        progress = self._attachment.progress
        progress[Word.STAGE] = ProgramStage.FINISHING
        progress[Word.LOOP] = loop
        if self._attachment.group is not None:
            self._attachment.group.end(loop)
        if not self._attachment.attached:
            self._interrupts.restore()  # behind the loop Ctrl-C is the user's again
        return True

    def _plan(self, step: int) -> None:
        """When to look closer next. The flag is read last: a signal may come while this is being worked out."""
        self._attachment.count_dropped()
        self._save_step = self._cadence.next_step(step, per_epoch=self._per_epoch)
        saver = self._open_saver()
        now = time.time()
        if self._cadence_time == math.inf or saver.saved_step == step or saver.failed_at > 0:
            self._cadence_time = self._cadence.next_time(now, save_seconds=saver.save_seconds)
        self._rules_step = self._rules.next_step(step)
        self._save_time = min(
            self._cadence_time if self._attachment.leads else math.inf,
            now + self._rules.next_seconds() - self._training_seconds(),
        )
        total = math.inf if self._total is None else self._total
        self._check_at = min(self._save_step, total, self._rules_step, self._steering.next_step())
        if self._ledger is not None or self._waiting():
            self._check_at = -1

    def _waiting(self) -> bool:
        """For a step, for other ranks, or for a save that failed."""
        orders, group = self._attachment.orders, self._attachment.group
        if group is not None and (self._decided_at is not None or group.decided[Word.STOP_SEQ] != self._acted):
            return True
        if group is not None and group.world.rank > 0:
            wished = self._interrupts.seen and not self._passed_on[0]
            return bool(wished or ((self._finish or self._fired) and not self._passed_on[1]))
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
