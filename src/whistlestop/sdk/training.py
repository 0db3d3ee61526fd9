"""One training from its beginning to its end: attaching, restoring, saving, telling. Its steps are in looping.py."""

import atexit
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whistlestop.channel.layout import Loop, Word
from whistlestop.domain import skipping
from whistlestop.domain.errors import BadRequest
from whistlestop.domain.reasons import StopReason
from whistlestop.domain.skipping import Ranges
from whistlestop.sdk.attachment import Attachment
from whistlestop.sdk.cadence import AnyOf
from whistlestop.sdk.costs import Measured
from whistlestop.sdk.forks import open_runs
from whistlestop.sdk.group import POISONED, SPENT, Group
from whistlestop.sdk.interrupts import Interrupts
from whistlestop.sdk.moment import AnyRules, Fired, Moment, NoRules
from whistlestop.sdk.parts import Part
from whistlestop.sdk.place import FINISHED, find_place
from whistlestop.sdk.saver import PERIODIC, Restored, Saver
from whistlestop.sdk.settings import Settings
from whistlestop.sdk.steering import Steering
from whistlestop.sdk.step import Step
from whistlestop.sdk.summary import plain_summary
from whistlestop.sdk.values import LateValues, is_late, is_plain, number_of

if TYPE_CHECKING:
    from whistlestop.sdk.committing import Saved
    from whistlestop.sdk.deaths import Watch
    from whistlestop.sdk.privacy import PrivacyLedger
    from whistlestop.sdk.stragglers import Stragglers

LEDGER = "privacy.ledger"
EXIT_RANK_DIED = 76
_GRACE_SECONDS = 3.0  # for the collective to fail by itself, and for the program to say what it has to say


class Training:
    """The state of one training, and everything about it but its steps."""

    def __init__(
        self,
        settings: Settings,
        *,
        checkpoints: Path | None,
        resume: str,
        cadence: AnyOf,
        keep: int,
        stop_when: Sequence[Any],
        lazy: bool = False,
    ) -> None:
        self.name = settings.name
        self.inputs = settings.inputs
        self.summary: dict[str, Any] = {}  # told to the server when the run ends
        self._started = False
        self._settings = settings
        self._checkpoints = checkpoints
        self._resume = resume
        self._cadence = cadence
        self._keep = keep
        self._lazy = lazy
        self._measured = Measured(settings.rate)
        self._attachment = Attachment()
        self._interrupts = Interrupts(second_ends=settings.channel is None, wake=self._wake)
        self._early_warnings: list[str] = []  # from before there is anybody to tell
        self._rules = self._make_rules(stop_when)
        self._skips = self._read_skips()
        self._steering = Steering(None, self._tell)
        self._late = LateValues(self._point, self._refuse)
        self._late_watched = LateValues(self._point, self._refuse)  # read at fixed steps: the rules decide by them
        self._watch: Watch | None = None  # over the other ranks of this node
        self._say_bye: Callable[[], None] | None = None  # to other nodes
        self._stragglers: Stragglers | None = None  # rank 0: looks for slow ones
        self._ending = threading.Event()  # the program is on its way out
        self._ledger: PrivacyLedger | None = None
        self._discarded = 0  # steps that spent privacy and were lost with what came behind a checkpoint
        self._saver: Saver | None = None
        self._restored: Restored | None = None
        self._restore_done = False
        self._restore_asked = False  # by the program: it takes care of what it gets
        self._parts: dict[str, Part] = {}
        self._closed = False
        self._looping = False
        self._iterator: Callable[[], Generator[Step, None, None] | None] = lambda: None  # a weak reference
        self._at = [0]  # index of the step that runs
        self._total: int | None = None
        self._extended = False  # people have changed it
        self._per_epoch: int | None = None
        self._check_at: float = 0  # the loop looks closer from this step on; -1: at once
        self._save_time: float = math.inf  # and from this time on
        self._rules_step: float = math.inf
        self._save_asked = False
        self._finish: tuple[StopReason, str] | None = None
        self._fired: list[Fired] = []  # stop rules
        self._fresh: list[dict[str, float]] = []  # values that the stop rules have not seen yet, in their order
        self._saved_rules: tuple[Mapping[str, Any], bool] | None = None  # their state in the last save
        self._logged: set[str] = set()  # names
        self._latest: dict[str, float] = {}  # the newest of those that they watch
        self._seconds_before = 0.0  # of training, in earlier attempts
        self._loop_began = 0.0
        self._position: tuple[int, int] | None = None  # epoch and batch of a loop over data
        self._together: int | None = None  # samples of a batch of all ranks, where that is known
        self._together_before: int | None = None  # and when the checkpoint was made
        self._save_files: Mapping[str, Path] = {}  # for the next save that the program has asked for
        self._own_save = -1  # the index of the step in which, or behind which, the program saved by itself

    def _wake(self) -> None:
        """Make the loop look closer at its next boundary."""
        self._check_at = -1

    # Beginning and end.

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        attachment = self._attachment
        attachment.attach(self._settings)
        self._steering = Steering(self._settings.channel if attachment.attached else None, self._tell)
        self._steering.read()
        if attachment.metrics is not None:
            self.__dict__["log"] = attachment.metrics.recorder(self._at, self._log_slowly)
        self._interrupts.second_ends = not attachment.attached
        if attachment.attached:  # alone, Ctrl-C is the user's until the loop begins
            self._interrupts.install()
        if attachment.group is not None:
            self._meet_others(attachment.group)
        open_runs.add(self)
        atexit.register(self._end_at_exit)
        for text in self._early_warnings:
            attachment.warn(text)

    def _read_skips(self) -> Ranges:
        if self._settings.skip == "[]":
            return ()
        try:
            return skipping.read(json.loads(self._settings.skip))
        except ValueError as error:  # a variable that anybody may have set
            self._warn(f"no data is passed over: {error}")
            return ()

    def _make_rules(self, stop_when: Sequence[Any]) -> AnyRules:
        if not stop_when and self._settings.stop_when.strip() in ("", "[]"):
            return NoRules()
        from whistlestop.sdk.rules import Rules

        return Rules.make(stop_when, self._settings.stop_when, warn=self._warn).for_rank(self._settings.rank)

    def _meet_others(self, group: Group) -> None:
        from whistlestop.sdk.deaths import Watch

        if group.world.nodes > 1:
            from whistlestop.sdk.nodes import meet

            self._say_bye = meet(group, self._settings, self._attachment, self._on_lost)
        self._watch = Watch(group, self._on_lost)

    def _warn(self, text: str) -> None:
        if self._started:
            self._attachment.warn(text)
        else:
            self._early_warnings.append(text)

    def _tell(self, event: dict[str, Any]) -> None:
        if self._attachment.leads:
            self._attachment.tell(event)

    def _on_lost(self, rank: int, named: str, told: Callable[[], None] = lambda: None) -> None:
        """In the thread that watches. The main one may hang in a collective that nobody can end but the system."""
        self._attachment.warn(f"{named} has died; rank {self._settings.rank} can't go on without it")
        self._attachment.tell({"kind": "rank_died", "rank": rank, "step": self._at[0]})
        told()
        if not self._ending.wait(_GRACE_SECONDS):
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except (OSError, ValueError, AttributeError):
                    pass
            if self._attachment.group is not None:
                self._attachment.group.leave()
            os._exit(EXIT_RANK_DIED)

    def _end(self, error: BaseException | None, *, proven: bool = True) -> None:
        """`proven`: without an error the loop was left by a `break`, not by sys.exit() or the like."""
        if self._closed:
            return
        if error is not None and not isinstance(error, SystemExit) and self._watch is not None:
            self._watch.look_again()
        self._ending.set()
        self._close_loop()
        self._closed = True
        atexit.unregister(self._end_at_exit)
        progress = self._attachment.progress
        left = progress[Word.LOOP] == Loop.LEFT
        if left and (error is not None or not proven):
            # Not left by `break`, or nobody knows: a crash in the middle, not an end.
            progress[Word.LOOP] = Loop.INSIDE
            if error is None:
                self._attachment.warn(
                    f"{self.name} ended inside its loop, at step {self._at[0]}; this does not count as the end of "
                    "training, and nothing was saved. To leave the loop by `break`, put it into `with run:`"
                )
        elif left:
            self._save_where_left()
            self._tell_reasons([Fired(StopReason.CUSTOM, "the program left its loop")])
        if self._saver is not None:
            self._saver.finish()
        if error is None and progress[Word.LOOP] in (Loop.FINISHED, Loop.LEFT):
            self._mark_finished()
        self._settle_values()
        self._attachment.tell_runner()
        if self.summary:
            self._tell({"kind": "summary", "values": plain_summary(self.summary)})
        self._interrupts.restore()
        self._let_go_of_ranks(Loop(progress[Word.LOOP]), error)
        if self._ledger is not None:
            self._ledger.close()
        if self._saver is not None:
            self._saver.close()
        self._attachment.close()
        self.__dict__.pop("log", None)
        open_runs.discard(self)

    def _let_go_of_ranks(self, loop: Loop, error: BaseException | None) -> None:
        """A rank that ends inside its loop ends the others too: they are told by its end, not by words."""
        if self._watch is not None:
            self._watch.close()
        if self._stragglers is not None:
            self._stragglers.close()
        group = self._attachment.group
        if group is None:
            return
        if loop is not Loop.INSIDE and (loop is not Loop.NONE or error is None):
            group.end(loop if loop is not Loop.NONE else Loop.LEFT)
        if self._say_bye is not None:
            self._say_bye()
        group.leave()

    def _close_loop(self) -> None:
        """After a `break` somebody may still hold the iterator (a progress bar does): it waits in the middle."""
        iterator = self._iterator()
        try:
            if iterator is not None and self._attachment.progress[Word.LOOP] == Loop.INSIDE:
                iterator.close()
        except ValueError:  # it is running, in another thread: not ours to end
            pass

    def _end_at_exit(self) -> None:
        """For programs without the `with` block. `last_value` is the error that is ending the program, if any; of
        sys.exit() nothing can be seen here."""
        self._end(getattr(sys, "last_value", None), proven=False)

    def _let_go(self) -> None:
        """In a forked child: the channel is the parent's, and terminate() must end the child."""
        self._interrupts.restore()
        self._attachment.abandon()
        self._late.forget()
        self._late_watched.forget()
        self._watch = self._ledger = self._stragglers = None
        self.__dict__.pop("log", None)
        self._closed = True
        atexit.unregister(self._end_at_exit)

    # Restoring and saving.

    def _restore(self) -> Restored | None:
        if self._restore_done:
            return self._restored
        self._start()
        saver = self._open_saver()
        self._restored = saver.restore()
        self._restore_done = True
        if self._restored is None:
            return None
        step, meta = self._restored.step, self._restored.meta
        self._at[0] = step
        self._attachment.progress[Word.RESUMED_STEP] = step
        self._attachment.progress[Word.STEP] = step
        self._seconds_before = _number(meta.get("seconds"))
        self._measured.load(meta.get("costs"))
        if isinstance(latest := meta.get("latest"), Mapping):
            self._latest = {str(name): _number(value, math.nan) for name, value in latest.items()}
        match meta.get("position"):
            case [int(epoch), int(batch)]:
                self._position = epoch, batch
        if isinstance(together := meta.get("together"), int):
            self._together_before = together
        if isinstance(meta.get("rules"), Mapping):
            self._rules.load(meta["rules"])
        if meta.get("fired") is True and self._starts_from_its_own():
            self._fired = self._rules.again(Moment(step, self._seconds_before, {}, dict(self._latest)))
        if self._attachment.leads:
            self._attachment.say(f"{self.name}: going on at step {step} from {self._restored.path}")
        return self._restored

    def _open_saver(self) -> Saver:
        if self._saver is None:
            attachment = self._attachment
            place = find_place(
                self._settings,
                checkpoints=self._checkpoints,
                resume=self._resume,
                group=attachment.group,
                leads=self._settings.rank == 0,
                orders=attachment.orders if attachment.attached else None,
            )
            for note in place.notes:
                attachment.warn(note)
            self._saver = Saver(place, attachment, keep=self._keep, digests=self._settings.digests, lazy=self._lazy)
            self._saver.parts = self._parts
        return self._saver

    def _open_ledger(self) -> None:
        """The count of steps that spend privacy, where there is such a rule. It stands beside the checkpoints; rank 0
        keeps it, and tells the others how many steps were run that no checkpoint knows of."""
        self._rules.check()
        if self._rules.privacy is None or self._ledger is not None:
            return
        group, step = self._attachment.group, self._at[0]
        if group is not None and group.world.rank > 0:
            group.wait(lambda: group.decided[SPENT] > 0, "rank 0 to open the privacy ledger")
            self._discarded = group.decided[SPENT] - 1
            return
        from whistlestop.sdk.privacy import PrivacyLedger

        place = self._open_saver().place
        directory = place.store.root / place.phase
        directory.mkdir(parents=True, exist_ok=True)
        self._ledger = PrivacyLedger.open(directory / LEDGER)
        spent = self._restored.meta.get("spent") if self._restored is not None else 0
        self._ledger.at_least(max(step, int(_number(spent))))
        if group is not None:
            group.tell({SPENT: self._ledger.spent - step + 1})

    def _spent(self, step: int) -> int:
        return self._ledger.spent if self._ledger is not None else step + self._discarded

    def _add_part(self, name: str, part: Part) -> None:
        if self._restore_done:
            raise BadRequest(f"{name} is tracked too late: the checkpoint has been loaded without it")
        if not name.isidentifier() or name in self._parts:
            raise BadRequest(f"{name!r} is tracked twice, or is not a plain name")
        self._parts[name] = part

    def _first_step(self) -> int:
        return self._restored.step if self._restored else 0

    def _save_last(self, step: int, why: str, files: Mapping[str, Path] | None = None) -> None:
        """The phase's result, unless that very checkpoint is there already."""
        untouched = self._starts_from_its_own() and step == self._first_step()
        if not untouched and not self._is_saved(step):
            self._save(step, why, files)

    def _save_where_left(self) -> None:
        """After a `break`. What the program saved in that step, or behind it, is the result; else what is there now,
        even if the step was saved before its work began: that work may be in it."""
        if self._own_save != self._at[0]:
            self._save(self._at[0], "the loop was left")
        elif self._saver is not None and self._saver.saved_step > self._at[0]:
            self._at[0] = self._attachment.progress[Word.STEP] = self._saver.saved_step

    def _save(self, step: int, why: str, files: Mapping[str, Path] | None = None) -> "Saved | None":
        self._settle_values()
        self._ask_rules(step)
        group = self._attachment.group
        if group is not None and self._rules.poisoned:
            group.mine[POISONED] = 1
        metrics = self._attachment.metrics.latest() if self._attachment.metrics else {}
        meta: dict[str, Any] = {
            "epoch": self._epoch_of(step),
            "position": list(self._position) if self._position else None,
            "together": self._together,
            "total": self._total,
            "metrics": {name: value if math.isfinite(value) else None for name, value in metrics.items()},
            "seconds": self._training_seconds(),
            "rules": self._rules.state(),
            "latest": dict(self._latest),
            "fired": bool(self._fired),
            "healthy": not self._rules.poisoned and not (group is not None and group.most(POISONED)),
            "costs": self._measured.state(),
        }
        if self._ledger is not None:
            meta["spent"] = self._ledger.spent
        self._saved_rules = meta["rules"], meta["fired"]
        if why != PERIODIC:  # that one may be put off, and is not what they were given for
            files, self._save_files = {**self._save_files, **(files or {})}, {}
        return self._open_saver().save(int(step), why=why, meta=meta, files=files)

    def _is_saved(self, step: int) -> bool:
        """This very state: the rules may have seen more since the step was saved. Ranks have to be of one opinion."""
        if self._open_saver().saved_step != step:
            return False
        return self._attachment.group is not None or self._saved_rules == (self._rules.state(), bool(self._fired))

    def _starts_from_its_own(self) -> bool:
        """The checkpoint that it goes on from is one of this phase, not of another run."""
        place = self._open_saver().place
        if place.start is None:
            return False
        fetched = self._settings.restore_own and place.start.path == self._settings.restore
        return fetched or place.start.path.parent == place.store.root / place.phase

    def _epoch_of(self, step: int) -> int:
        if self._per_epoch:
            return step // self._per_epoch
        return self._position[0] if self._position else 0

    def _ask_rules(self, step: int) -> bool:
        """Let the stop rules see what was logged; what fires is in `_fired`. True: one that fires at this very step in
        every rank."""
        rules = self._rules
        if rules.empty:
            return False
        seconds = self._training_seconds()
        if not (self._fresh or step >= self._rules_step or seconds >= rules.next_seconds()):
            return False
        exact = False
        points, self._fresh = self._fresh or [{}], []
        for values in points:
            self._latest.update(values)
            fired = rules.look(Moment(step, seconds, values, dict(self._latest), self._spent(step)))
            known = {each.reason for each in self._fired}
            self._fired += [each for each in fired if each.reason not in known]
            exact = exact or any(each.exact for each in fired)
        return exact

    def _training_seconds(self) -> float:
        return self._seconds_before + (time.monotonic() - self._loop_began if self._loop_began else 0.0)

    def _mark_finished(self) -> None:
        place = self._saver.place if self._saver else None
        if place is None or self._saver is None or not place.standalone or not self._attachment.leads:
            return
        if self._saver.saved_step != self._at[0] and self._first_step() != self._at[0]:
            return  # the last save failed: the next start goes on from the one before
        try:
            (place.store.root / place.phase / FINISHED).touch()
        except OSError as error:
            self._attachment.warn(f"the end of this training could not be noted: {error}")

    # Telling.

    def _tell_reasons(self, fired: Sequence[Fired]) -> None:
        """Why training stopped; the first one is decisive."""
        reasons = [
            {"reason": each.reason.value, "decisive": index == 0, "text": each.text} for index, each in enumerate(fired)
        ]
        self._attachment.tell({"kind": "stop_reasons", "reasons": reasons})

    def _log_slowly(self, scalars: Mapping[str, Any]) -> None:
        """The first time that these names are logged, and whenever a value is not just a number. Never raises."""
        try:
            self._log_at(self._at[0], time.time(), scalars)
            metrics = self._attachment.metrics
            if metrics is None or not all(map(is_plain, scalars.values())):
                return
            watched = self._rules.watches
            if watched is not None and watched.isdisjoint(scalars):
                metrics.allow(tuple(scalars))
        except Exception as error:
            self._attachment.say(f"metrics can't be written: {error!r}")

    def _log_at(self, step: int, at: float, scalars: Mapping[str, Any]) -> None:
        good: dict[str, float] = {}
        late: dict[str, Any] = {}
        self._logged.update(map(str, scalars))
        for name, value in scalars.items():
            if is_late(value):
                late[str(name)] = value
                continue
            try:
                good[str(name)] = number_of(value)
            except Exception:
                self._refuse(name, value)
        if good:
            self._point(step, at, good)
        if not late:
            return
        watched = self._rules.watches
        decides = {name: value for name, value in late.items() if watched is None or name in watched}
        if decides and not self._rules.empty:
            self._late_watched.keep(step, at, decides)
            self._wake()
        if rest := {name: value for name, value in late.items() if name not in decides or self._rules.empty}:
            self._late.keep(step, at, rest)
            self._save_time = min(self._save_time, self._late.due_at)

    def _point(self, step: int, at: float, values: Mapping[str, float]) -> None:
        self._attachment.points(step, at, values)
        watched = self._rules.watches
        seen = {name: value for name, value in values.items() if watched is None or name in watched}
        if not seen or self._rules.empty:
            return
        if self._fresh and seen.keys().isdisjoint(self._fresh[-1]):
            self._fresh[-1].update(seen)
        else:
            self._fresh.append(seen)
        self._wake()

    def _warn_of_unknown_names(self) -> None:
        """A misspelt metric: the rule would never fire, and nobody would know why."""
        watched = self._rules.watches or frozenset()
        if self._attachment.leads and self._logged and (unknown := sorted(watched - self._logged)):
            self._attachment.warn(
                f"a stop rule waits for {', '.join(unknown)}, which was never logged; logged were: "
                f"{', '.join(sorted(self._logged))}"
            )

    def _refuse(self, name: str, value: Any) -> None:
        self._attachment.say(f"log({name}=…) is not a number ({type(value).__name__}); it is left out")

    def _settle_values(self) -> None:
        try:
            self._late.settle()
            self._late_watched.settle()
        except Exception as error:
            self._attachment.say(f"metrics can't be read from their device: {error!r}")


def _number(value: object, default: float = 0.0) -> float:
    return float(value) if isinstance(value, int | float) else default
