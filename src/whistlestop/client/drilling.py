"""A drill: one loss after another is inflicted on a run that trains, and each recovery is watched and judged."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from whistlestop.client.recovery import LOOK_EVERY, OVER, Recovery, wait_for_recovery
from whistlestop.domain.errors import Refused

if TYPE_CHECKING:
    from whistlestop.client.client import Client
    from whistlestop.wire.api import PhaseView, RunView

Name = Literal["link", "storage", "save", "program", "host", "preempt"]
# The gentle ones first: those that end an attempt find a run that was seen to survive the others.
FAULTS: dict[Name, str] = {
    "link": "the server is out of reach",
    "storage": "the storage is slow",
    "save": "a save fails",
    "program": "the program dies",
    "host": "the host is lost",
    "preempt": "the capacity is taken back with notice",
}
_ENDS = ("program", "host", "preempt")  # an attempt
FRESH_STEPS = 2  # of an attempt before the next blow: it really trains


@dataclass(frozen=True)
class Outcome:
    fault: Name
    seconds: float = 0.0  # until it was over: reached again, saved, or further than before
    redone: int = 0  # steps
    redone_s: float = 0.0
    steps_meanwhile: int = 0  # made while it lasted
    attempt: int = 0  # the one that was struck
    next_attempt: int | None = None
    resumed_from: int | None = None
    text: str = ""  # what happened, in a sentence
    warnings: list[str] = field(default_factory=list)  # it went well, but
    wrong: list[str] = field(default_factory=list)


class Drill:
    """`seconds`: how long the gentle ones last. `notice`: of the preemption. `within`: then a recovery has failed."""

    def __init__(
        self, client: "Client", run: str, *, phase: str | None, seconds: float, notice: float, within: float
    ) -> None:
        self._client, self._run, self._within = client, run, within
        self._seconds, self._notice = seconds, notice
        self.phase = phase or self._train_phase()

    def prepare(self) -> bool:
        """What can't be resumed would be lost as a whole, not rehearsed: where nothing is saved yet, it saves now."""
        self._until_it_trains()
        if self._is_saved():
            return False
        self._save()
        return True

    def inflict(self, fault: Name) -> Outcome:
        self._until_it_trains()
        if fault in _ENDS and not self._is_saved():
            raise Refused(
                f"phase {self.phase} has no checkpoint, although it was asked for one: it would lose all of its work",
                hint=f"its events say why it does not save: whistle events {self._run}",
            )
        act: Callable[[], Outcome] = {
            "link": self._link, "storage": self._storage, "save": self._failing_save,
            "program": lambda: self._loss("program"), "host": lambda: self._loss("host"), "preempt": self._preempt,
        }[fault]  # fmt: skip
        return act()

    # --- what it goes on through --------------------------------------------------------------------------------

    def _link(self) -> Outcome:
        since, before, began = self._newest_event(), self._look()[1], time.monotonic()
        struck = self._client.rehearse(self._run, "link", seconds=self._seconds, phase=self.phase)
        told = self._wait(lambda: self._told(since, "rehearsal"))
        seconds = time.monotonic() - began
        shown = self._until_it_moves(before.progress.step)
        steps = shown.progress.step - before.progress.step
        words = f"it trained on, and was heard of again; {steps:,} steps meanwhile"
        outcome = Outcome("link", seconds=seconds, steps_meanwhile=steps, attempt=struck.attempt, text=words)
        return self._same_attempt(outcome, shown, [] if told else ["its runner was not heard of again"])

    def _storage(self) -> Outcome:
        return self._saving("storage", "the save came late, and training went on", told="")

    def _failing_save(self) -> Outcome:
        return self._saving("save", "the save failed, was told of, and was made good", told="save_failed")

    def _saving(self, fault: Literal["storage", "save"], words: str, *, told: str) -> Outcome:
        since, before, began = self._newest_event(), self._look()[1], time.monotonic()
        struck = self._client.rehearse(self._run, fault, seconds=self._seconds, phase=self.phase)
        saved = self._save()
        seconds = time.monotonic() - began
        shown = self._look()[1]
        steps = shown.progress.step - before.progress.step
        wrong = [] if saved else [f"no checkpoint was made within {self._within:.0f} s"]
        if told and not self._told(since, told):
            wrong.append("nobody was told that it failed")
        if not steps:
            wrong.append("training stood still")
        said = f"{words}; {steps:,} steps meanwhile"
        return self._same_attempt(
            Outcome(fault, seconds=seconds, steps_meanwhile=steps, attempt=struck.attempt, text=said), shown, wrong
        )

    def _same_attempt(self, outcome: Outcome, shown: "PhaseView", wrong: list[str]) -> Outcome:
        newest = shown.attempts[-1]
        if newest.number != outcome.attempt:
            wrong = [*wrong, f"attempt {outcome.attempt} did not survive it"]
        return replace(outcome, wrong=wrong)

    # --- what ends an attempt -----------------------------------------------------------------------------------

    def _loss(self, fault: Literal["program", "host"]) -> Outcome:
        durable, began = self._durable(), time.monotonic()
        struck = self._client.rehearse(self._run, fault, phase=self.phase)
        found = self._recovery(struck.attempt, began)
        return self._judged(fault, found, durable, [struck.warning] if struck.warning else [])

    def _preempt(self) -> Outcome:
        durable, shown, began = self._durable(), self._look()[1], time.monotonic()
        number = shown.attempts[-1].number
        self._client.preempt(self._run, notice_s=self._notice, attempts=[number])
        outcome = self._judged("preempt", self._recovery(number, began), durable, [])
        if outcome.redone > 1:
            many = f"{outcome.redone} steps were done again: its save did not fit into the notice"
            return replace(outcome, wrong=[*outcome.wrong, many])
        return outcome

    def _recovery(self, attempt: int, began: float) -> Recovery:
        return wait_for_recovery(self._client, self._run, self.phase, attempt, within=self._within, since=began)

    def _judged(self, fault: Name, found: Recovery, durable: int, warnings: list[str]) -> Outcome:
        wrong = []
        if not found.recovered:
            wrong.append(f"it did not recover within {found.seconds:.0f} s: it is {found.status} ({found.reason})")
        elif (found.resumed_from or 0) < durable:
            wrong.append(f"step {durable} was safe, and it resumed from {found.resumed_from or 'the start'}")
        how = "it was killed, as the rehearsal asked" if fault == "program" else found.reason
        begun = f"step {found.resumed_from:,}" if found.resumed_from is not None else "the start"
        return Outcome(
            fault,
            seconds=found.seconds,
            redone=found.redone,
            redone_s=found.redone_s,
            attempt=found.attempt,
            next_attempt=found.next_attempt,
            resumed_from=found.resumed_from,
            text=f"attempt {found.attempt}: {how}; from {begun} on in pool {found.next_pool}{_way(found)}",
            warnings=warnings,
            wrong=wrong,
        )

    # --- looking ------------------------------------------------------------------------------------------------

    def _train_phase(self) -> str:
        view = self._client.run(self._run)
        for phase in view.phases:
            if phase.kind == "train" and phase.status == "running":
                return phase.name
        raise Refused(
            f"run #{view.number} ({view.name}) has no train phase that runs now",
            hint=f"a drill is for a run that trains: whistle show {view.number}",
        )

    def _look(self) -> tuple["RunView", "PhaseView"]:
        view = self._client.run(self._run)
        return view, next(phase for phase in view.phases if phase.name == self.phase)

    def _until_it_trains(self) -> None:
        def trains() -> bool:
            view, phase = self._look()
            if view.status in OVER or phase.status in OVER:
                raise Refused(f"run #{view.number} ({view.name}) is {view.status}: the drill ends here")
            if (
                not phase.attempts
                or not phase.attempts[-1].up
                or phase.attempts[-1].stage not in ("training", "evaluating", "saving")
            ):
                return False
            return phase.progress.step >= (phase.attempts[-1].resumed_from or 0) + FRESH_STEPS

        if not self._wait(trains):
            raise Refused("it does not train", hint=f"whistle show {self._run}")

    def _until_it_moves(self, step: int) -> "PhaseView":
        self._wait(lambda: self._look()[1].progress.step > step)
        return self._look()[1]

    def _is_saved(self) -> bool:
        return any(each.phase == self.phase for each in self._client.checkpoints(self._run))

    def _durable(self) -> int:
        """The newest step that must not be lost."""
        return max((each.step for each in self._client.checkpoints(self._run) if each.phase == self.phase), default=0)

    def _save(self) -> bool:
        done = self._client.save(self._run, phase=self.phase, note="")
        asked = next(phase for phase in done.run.phases if phase.name == self.phase).saves.requested
        return self._wait(lambda: self._look()[1].saves.done >= asked)

    def _newest_event(self) -> int:
        found = self._client.events(self._run, newest=True, limit=1)
        return found[-1].seq if found else 0

    def _told(self, since: int, kind: str) -> bool:
        return any(event.kind == kind for event in self._client.events(self._run, after=since, limit=5000))

    def _wait(self, happened: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + self._within
        while not happened():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_EVERY)
        return True


def _way(found: Recovery) -> str:
    """Where the time went."""
    stations = {
        "proven": found.ended_s, "placed": found.placed_s, "started": found.started_s, "first step": found.stepped_s,
    }  # fmt: skip
    told = [f"{name} after {seconds:.1f} s" for name, seconds in stations.items() if seconds is not None]
    return f" ({', '.join(told)})" if told else ""


def chosen(only: list[str]) -> list[Name]:
    """In their order; ValueError names one that is not there."""
    for name in only:
        if name not in FAULTS:
            raise ValueError(name)
    return [name for name in FAULTS if not only or name in only]
