"""What guards do about a finding. It is written down, told and asked for in one transaction: a crash before its end
leaves nothing, one behind it leaves a request that stands; nothing happens twice."""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from whistlestop.diagnosis.evidence import Evidence
from whistlestop.diagnosis.findings import KINDS, Cause, Weight
from whistlestop.diagnosis.guards import Act, Action, Open, Scene, decide, safe_until
from whistlestop.domain import skipping
from whistlestop.domain.checkpoints import passed_over
from whistlestop.domain.guarding import GUARD, stop_by
from whistlestop.domain.states import PHASE_ENDED, RUN_ENDED, AttemptState
from whistlestop.domain.stops import Stop
from whistlestop.server.services import verbs
from whistlestop.server.services.context import Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import checkpoints, events, findings, phases
from whistlestop.wire.spec import Do, GuardSpec

Row = sa.Row[Any]
SPOILS = frozenset({Cause.NON_FINITE, Cause.DIVERGING})  # what is saved from then on is no good
LEAVING = 30.0  # seconds for a program that is started again and has something worth saving


class Removed(Exception):
    """All that is kept is spoilt, and a good checkpoint lies in the trash. It has to be had back first, with no
    transaction open: nothing was done, and the same is to be asked again."""

    def __init__(self, checkpoint: Row) -> None:
        super().__init__(checkpoint.id)
        self.checkpoint = checkpoint


def act(
    context: Context,
    connection: sa.Connection,
    run: Row,
    phase: Row,
    attempt: Row,
    evidence: Evidence,
    *,
    ended: bool,
    gone: Collection[str] | None = (),
) -> bool:
    """True: something was asked for. `ended`: what was found is about the attempt's end. `gone`: removed checkpoints
    that can't be had back; None: not one of them can. Raises Removed."""
    guards = spec_of(run.spec).phase(phase.name).guards if phase.guarded else ()
    if not guards:
        return False
    now = context.clock()
    found = [
        Open(row.id, row.cause, row.confidence, row.says, row.first_at, row.attempt, row.step)
        for row in findings.open_of_phase(connection, phase.id)
    ]
    history = [Act(row.guard, row.finding, Do(row.do)) for row in findings.acts(connection, phase.id)]
    actions = decide(guards, found, history, _scene(run, phase, attempt, ended=ended), now)
    doing = _Doing(context, connection, run, phase, attempt, evidence, now, gone)
    asked = [doing.do(guards[action.guard], action, history) for action in actions]
    return any(asked)


def _scene(run: Row, phase: Row, attempt: Row, *, ended: bool) -> Scene:
    over = run.state in RUN_ENDED or phase.state in PHASE_ENDED
    live = attempt.state == AttemptState.STARTED
    return Scene(
        attempt.number,
        live=live and not over,
        ended=ended and not live and not over,
        ending=run.request > Stop.NONE or phase.stop_seq > 0 or (live and attempt.preempt_at is not None),
    )


class _Doing:
    """One guard's action, in a transaction that is open."""

    def __init__(
        self,
        context: Context,
        connection: sa.Connection,
        run: Row,
        phase: Row,
        attempt: Row,
        evidence: Evidence,
        now: float,
        gone: Collection[str] | None,
    ) -> None:
        self._context, self._connection, self._now, self._gone = context, connection, now, gone
        self._run, self._phase, self._attempt, self._evidence = run, phase, attempt, evidence

    def do(self, guard: GuardSpec, action: Action, history: list[Act]) -> bool:
        back = self._back(guard, action)
        made = sum(act.guard == action.guard and act.do is guard.do for act in history)
        text = self._words(guard, action, made, back)
        new = findings.acted(
            self._connection,
            run_id=self._run.id,
            phase_id=self._phase.id,
            guard=action.guard,
            finding=action.finding.id,
            attempt=self._attempt.number,
            do=action.do.value,
            dry=action.dry,
            at=self._now,
            text=text,
        )
        if not new:
            return False
        events.add(
            self._connection,
            self._run.id,
            GUARD,
            text,
            at=self._now,
            actor=GUARD,
            phase=self._phase.name,
            attempt=self._attempt.number,
            data={
                "guard": action.guard,
                "do": action.do.value,
                "dry": action.dry,
                "cause": action.finding.cause,
                "step": action.finding.step,
                **(back.data() if back is not None and action.do is Do.ROLL_BACK else {}),
            },
        )
        if action.dry or action.do is Do.NOTIFY:
            return False
        self._ask(action, text, back)
        return True

    def _ask(self, action: Action, text: str, back: "_Back | None") -> None:
        by = stop_by(action.finding.cause)
        if back is not None:
            if back.removed is not None:
                raise Removed(back.removed)
            self._pass_over(back)
        match action.do:
            case Do.KILL:
                verbs.by_guard(self._context, self._connection, self._run, by, "kill")
            case Do.PAUSE:
                verbs.by_guard(self._context, self._connection, self._run, by, "pause")
            case Do.STOP:
                phases.ask_stop(self._connection, self._phase.id, by=by, at=self._now)
            case Do.FAIL:
                self._end(action, by, text, fails=True)
            case Do.RESTART | Do.ROLL_BACK:
                self._end(action, by, text, fails=False)

    def _end(self, action: Action, by: str, text: str, *, fails: bool) -> None:
        verdict = {"attempt": self._attempt.number, "fails": fails, "text": text}
        phases.update(self._connection, self._phase.id, verdict=verdict)
        if self._attempt.state != AttemptState.STARTED:
            return
        # What is fatal leaves nothing that is worth the wait.
        fatal = fails or action.do is Do.ROLL_BACK or KINDS[Cause(action.finding.cause)].weight is Weight.FATAL
        until = self._now + (0.0 if fatal else LEAVING)
        phases.ask_preempt(self._connection, self._attempt.id, until=until, by=by, why=text, at=self._now)

    def _pass_over(self, back: "_Back") -> None:
        checkpoints.pass_over(
            self._connection, self._run.id, self._phase.name, attempt=self._attempt.number, step=back.bad_from
        )
        over = [*self._phase.passed_over, [self._attempt.number, back.bad_from]]
        skips = skipping.joined([*skipping.read(self._phase.skips), *back.skips])
        phases.update(self._connection, self._phase.id, passed_over=over, skips=[list(each) for each in skips])

    def _back(self, guard: GuardSpec, action: Action) -> "_Back | None":
        """Where to, and without which data: a guard that acts upon what spoils the training has nobody go on from what
        was saved since, whatever else it does. None: nothing is spoilt, or the finding does not say where it began."""
        step, rolls = action.finding.step, action.do is Do.ROLL_BACK
        if step is None or not (rolls or action.finding.cause in SPOILS):
            return None
        bad_from = safe_until(self._evidence, action.finding.cause, step) + 1
        rules = [*self._phase.passed_over, [self._attempt.number, bad_from]]
        # With the removed ones, as a launch counts them: where there were any, it does not begin at its beginning.
        rows = checkpoints.of_run(self._connection, self._run.id, self._phase.name, trashed=True)
        rows = [row for row in rows if not passed_over(rules, attempt=row.attempt, step=row.step)]
        good = next((row for row in rows if checkpoints.eligible(row)), None)
        removed = next((row for row in rows if self._can_be_had_back(row)), None) if good is None else None
        to = good or removed
        if to is None and any(row.trashed_until is None or self._phase.restore_from is None for row in rows):
            return _Back(bad_from, nowhere=True)
        begins = to.step if to is not None else self._run.parent_step if self._phase.restore_from else 0
        skips = _left_out(guard, self._phase, begins or 0, step) if rolls else ()
        return _Back(bad_from, to.step if to is not None else None, skips, removed=removed)

    def _can_be_had_back(self, row: Row) -> bool:
        if self._gone is None or row.id in self._gone or row.trashed_until is None:
            return False
        return bool(row.healthy and row.verified and row.trashed_until > self._now)

    def _words(self, guard: GuardSpec, action: Action, made: int, back: "_Back | None") -> str:
        name, number = self._phase.name, self._attempt.number
        often = f" ({made + 1} of {guard.times} times)" if guard.repeats else ""
        does = {
            Do.NOTIFY: "this is only told",
            Do.STOP: f"phase {name} is stopped and keeps its result",
            Do.PAUSE: "the run is paused",
            Do.KILL: "the run is killed",
            Do.FAIL: f"phase {name} fails and is not tried again",
            Do.RESTART: f"attempt {number} ends, and the next one goes on from the newest healthy checkpoint{often}",
            Do.ROLL_BACK: f"attempt {number} ends, and the next one goes back{back.in_words() if back else ''}{often}",
        }[action.do]
        if action.spent:
            times = f"{guard.times} time{'s' if guard.times > 1 else ''}"
            did = "started again" if guard.do is Do.RESTART else "rolled back"
            does = f"it was {did} {times}, as often as it may: {does}"
        dry = "in dry mode, or else: " if action.dry else ""
        return f"guard {action.guard + 1}: {action.finding.says}; {dry}{does}"


class _Back:
    def __init__(
        self,
        bad_from: int,
        good: int | None = None,
        skips: skipping.Ranges = (),
        *,
        removed: Row | None = None,
        nowhere: bool = False,
    ) -> None:
        self.bad_from = bad_from  # a checkpoint of this step or a later one may be spoilt
        self.good = good  # step of the one to go on from
        self.skips = skips
        self.removed = removed  # that one, if it lies in the trash
        self.nowhere = nowhere  # none can be used, and there were some: a person has to say what to go on from

    def in_words(self) -> str:
        if self.nowhere:
            return f", but no checkpoint from before step {self.bad_from} can be used: they were removed or are damaged"
        to = f" to the checkpoint of step {self.good}" if self.good is not None else " to its beginning"
        if not self.skips:
            return to
        first, behind = self.skips[0]
        return f"{to}, without the data of batches {first} to {behind - 1}"

    def data(self) -> dict[str, Any]:
        return {"to": self.good, "skip": [list(each) for each in self.skips]}


def _left_out(guard: GuardSpec, phase: Row, begins: int, step: int) -> skipping.Ranges:
    """By the data's own numbers. All from the checkpoint to where it went wrong; or so many up to there, and where the
    checkpoint is nearer than that, the rest from behind it."""
    known = skipping.read(phase.skips)
    if guard.skip is None:
        return skipping.joined([(skipping.batch_of(begins, known), skipping.batch_of(step, known) + 1)])
    first = skipping.batch_of(max(begins, step + 1 - guard.skip), known)
    return skipping.joined([(first, first + guard.skip)])
