"""What a project may spend: told, kept to at submit, and kept to by what runs."""

import math
import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from whistlestop.capacity.pools import Market
from whistlestop.domain.clock import iso
from whistlestop.domain.credits import BUDGET_OF, Charge, used
from whistlestop.domain.errors import BudgetExceeded, NotFound
from whistlestop.domain.stops import Stop
from whistlestop.server.services import ingest
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import durations, events, ledger, phases, pools, runs
from whistlestop.wire.spec import PhaseKind, PhaseSpec, Spec
from whistlestop.wire.usage import BudgetBody, BudgetView

Row = sa.Row[Any]
FORCED = "budget_forced"  # an event: this run may spend more than its project has left
LEAVING = 2.0  # seconds from a stop to the proven end, until one was measured
AT_MOST = 600.0  # of those that were measured


@dataclass(frozen=True)
class Judged:
    """A run at its submit, where its project has a budget."""

    need: float | None = None  # what it will cost, as far as anybody can tell
    beyond: str | None = None  # what is wrong with it, if it is forced


@dataclass(frozen=True)
class Balance:
    """Of a project, or of a run."""

    whose: str  # "project lab"
    project: str
    credits: float  # the budget
    since: float
    by: str
    spent: float  # by what has ended
    running: float  # by what runs, up to now
    per_hour: float

    @property
    def left(self) -> float:
        return self.credits - self.spent - self.running

    def seconds(self, rate: float | None = None) -> float | None:
        """How long it lasts: at the rate of what runs, or at another one."""
        per_hour = self.per_hour if rate is None else rate
        return self.left * 3600.0 / per_hour if per_hour > 0 else None


def balances(context: Context, connection: sa.Connection, project: str | None = None) -> list[Balance]:
    return [_balance(context, connection, row) for row in ledger.all_budgets(connection, project)]


def view(balance: Balance) -> BudgetView:
    lasts = balance.seconds()
    return BudgetView(
        project=balance.project,
        credits=balance.credits,
        since=iso(balance.since),
        by=balance.by,
        spent=balance.spent,
        running=balance.running,
        balance=balance.left,
        per_hour=balance.per_hour,
        lasts_s=None if lasts is None else max(0.0, lasts),
    )


def put(context: Context, project: str, body: BudgetBody, actor: Actor) -> BudgetView:
    """Another amount counts from where the one before did, unless it is asked to count anew."""
    now = context.clock()
    with context.database.write() as connection:
        before = next(iter(ledger.all_budgets(connection, project)), None)
        since = now if before is None or body.restart else before.since
        ledger.put_budget(connection, project, credits=body.credits, since=since, by=actor.name)
        (made,) = balances(context, connection, project)
    context.hub.capacity_changed()
    return view(made)


def remove(context: Context, project: str) -> None:
    with context.database.write() as connection:
        if not ledger.remove_budget(connection, project):
            raise NotFound(f"project {project} has no budget", hint="whistle usage shows those there are")
    context.hub.capacity_changed()


def check(context: Context, connection: sa.Connection, spec: Spec, *, workflow: str | None, force: bool) -> Judged:
    """Raise BudgetExceeded if the project can't pay for this run beside those that it has taken; with `force` say what
    would have been said."""
    balance = next(iter(balances(context, connection, spec.project)), None)
    if balance is None:
        return Judged()
    if costs_nothing(connection, spec):
        return Judged(0.0)
    need, why = _need(connection, spec, workflow)
    others = _promised(context, connection, spec.project)
    if balance.left > 0 if need is None else need + others <= balance.left:
        return Judged(need)
    text = f"project {spec.project} has {max(0.0, balance.left):.2f} of its {balance.credits:.2f} credits left"
    if others and need is not None:
        text += f", {others:.2f} of them for runs that it has taken"
    if need is not None:
        text += f", and this run needs {need:.2f}{why}"
    if force:
        return Judged(need, text)
    enough = math.ceil(balance.credits - balance.left + others + (need or 1.0))
    more = shlex.join(["whistle", "usage", "budget", spec.project, str(enough)])
    raise BudgetExceeded(text, hint=f"give it more: {more}; or spend it all the same: --force")


def check_resume(context: Context, connection: sa.Connection, run: Row) -> None:
    """Raise BudgetExceeded if its project has nothing left: what starts on that ends at once, a task as failed."""
    balance = next(iter(balances(context, connection, run.project)), None)
    if balance is None or balance.left > 0 or is_forced(connection, run.id):
        return
    if not costs_nothing(connection, spec_of(run.spec)):
        enough = math.ceil(balance.credits - balance.left + 1)
        more = shlex.join(["whistle", "usage", "budget", run.project, str(enough)])
        text = f"project {run.project} has none of its {balance.credits:.2f} credits left for run #{run.number}"
        raise BudgetExceeded(text, hint=f"give it more: {more}")


class Purse:
    """What projects have left for one attempt more, in one transaction: however many are asked for, each project is
    looked at once. What begins in it has not cost anything yet."""

    def __init__(self, context: Context, connection: sa.Connection) -> None:
        self._context, self._connection = context, connection
        self._balances: dict[str, Balance | None] = {}
        self._stops: Sequence[Row] | None = None

    def seconds_left(self, run: Row, rate: float) -> float | None:
        """How long an attempt of this rate could run on what its project has left, if it ran alone."""
        if run.project not in self._balances:
            found = balances(self._context, self._connection, run.project)
            self._balances[run.project] = next(iter(found), None)
        balance = self._balances[run.project]
        if balance is None or rate <= 0 or is_forced(self._connection, run.id):
            return None
        return balance.seconds(rate)

    def reserve(self, run: Row, limit: float) -> float:
        """Seconds to be kept free for leaving, so that the proven end comes before the credits do."""
        if self._stops is None:
            self._stops = durations.stops(self._connection)
        made = [row.seconds for row in self._stops if (row.project, row.run) == (run.project, run.name)]
        return min(max(made, default=LEAVING), AT_MOST, max(0.0, limit) / 2)


def is_forced(connection: sa.Connection, run_id: str) -> bool:
    return bool(events.of_run(connection, run_id, kinds=(FORCED,), limit=1))


def watch(context: Context) -> None:
    """What runs on credits that come to their end leaves before they do: training with its checkpoint, a task by a
    pause. Each runner keeps to a limit of its own, but knows nothing of what is spent beside it."""
    with context.database.read() as connection:
        of_projects = [each for each in balances(context, connection) if _ends(context, connection, each)]
        of_runs = [
            (run.id, balance)
            for run in ledger.runs_with_company(connection)
            if _ends(context, connection, balance := of_run(context, connection, run))
        ]
    for run_id, balance in of_runs:
        _stop_all(context, balance, run_id=run_id)
    for balance in of_projects:
        _stop_all(context, balance)


def _ends(context: Context, connection: sa.Connection, balance: Balance) -> bool:
    left = balance.seconds()
    if left is None:
        return False
    made = [row.seconds for row in durations.stops(connection) if row.project == balance.project]
    return left <= context.settings.tick + min(max(made, default=LEAVING), AT_MOST)


def _stop_all(context: Context, balance: Balance, run_id: str | None = None) -> None:
    now, by = context.clock(), f"{BUDGET_OF}{balance.whose}"
    why = f"{by} is used up: {max(0.0, balance.left):.2f} of {balance.credits:.2f} credits are left"
    touched: set[str] = set()
    with context.database.write() as connection:
        for row in ledger.live(connection, project=balance.project, run_id=run_id):
            if row.request > Stop.NONE or row.stop_seq or row.price * len(row.slots) <= 0:
                continue
            if run_id is None and is_forced(connection, row.run_id):
                continue
            if row.kind == PhaseKind.TRAIN:
                asked = phases.ask_stop(connection, row.phase_id, by=by, at=now)
                kind, text = "stop_requested", f"stop of phase {row.phase} requested: {why}"
            else:
                asked = runs.ask(
                    connection, row.run_id, Stop.PAUSE, request_latest=False, request_by=by, request_at=now
                )
                kind, text = "pause_requested", f"pause requested: {why}"
            if asked:
                events.add(connection, row.run_id, kind, text, at=now, phase=row.phase)
                touched.add(row.run_id)
        orders = [order for each in touched for order in ingest.standing_orders(connection, each)]
    for attempt_id, order in orders:
        context.hub.ordered(attempt_id, order)
    for each in touched:
        context.hub.changed(each)


def of_run(context: Context, connection: sa.Connection, run: Row) -> Balance:
    now = context.clock()
    made = phases.attempts_of_runs(connection, [run.id])[run.id]
    charges = [Charge(len(row.slots), row.price, row.started_at, row.ended_at) for row in made]
    live = [charge for charge in charges if charge.until is None]
    return Balance(
        whose=f"run #{run.number}",
        project=run.project,
        credits=run.budget,
        since=run.created_at,
        by=run.created_by,
        spent=used([charge for charge in charges if charge.until is not None], now),
        running=used(live, now),
        per_hour=sum(charge.slots * charge.price for charge in live),
    )


def _promised(context: Context, connection: sa.Connection, project: str) -> float:
    """What the runs that it has taken will still need, as far as it was said: those that wait for slots, and the rest
    of those that run."""
    now, running = context.clock(), dict[str, float]()
    for row in ledger.meters(connection, project):
        cost = Charge(len(row.slots), row.price, row.started_at, None).credits(now)
        running[row.run_id] = running.get(row.run_id, 0.0) + cost
    promised = ledger.promised(connection, project, forced=FORCED)
    return float(sum(max(0.0, row.need - row.spent - running.get(row.id, 0.0)) for row in promised))


def _balance(context: Context, connection: sa.Connection, row: Row) -> Balance:
    now = context.clock()
    live = ledger.meters(connection, row.project)
    charges = [Charge(len(each.slots), each.price, max(each.started_at, row.since), None) for each in live]
    return Balance(
        whose=f"project {row.project}",
        project=row.project,
        credits=row.credits,
        since=row.since,
        by=row.by,
        spent=context.hub.spendings.since(connection, row.project, row.since),
        running=sum(charge.credits(now) for charge in charges),
        per_hour=sum(charge.slots * charge.price for charge in charges),
    )


def _need(connection: sa.Connection, spec: Spec, workflow: str | None) -> tuple[float | None, str]:
    """What a run will cost, as far as anybody can tell before it runs, and who says so."""
    if spec.budget is not None:
        return spec.budget, ", which is its own budget"
    trains = [phase for phase in spec.phases if phase.kind is PhaseKind.TRAIN]
    if trains and all(phase.work is not None for phase in trains):
        there = pools.all_pools(connection)
        return sum(_cost(phase, there) for phase in spec.phases), " by its own estimate"
    if workflow is not None:
        name = workflow.partition("@")[0]
        made = ledger.of_workflow(connection, name)
        if made:
            return statistics.fmean(made), f", as {len(made)} runs of workflow {name} did on average"
    return None, ""


def costs_nothing(connection: sa.Connection, spec: Spec) -> bool:
    """Wherever it goes: what is free is bound by no budget."""
    there = pools.all_pools(connection)
    return all(max(_prices(phase, there), default=1.0) <= 0 for phase in spec.phases)


def _cost(phase: PhaseSpec, there: Sequence[Row]) -> float:
    """On the cheapest pool that it may use."""
    hours = phase.work.total_seconds() / 3600.0 if phase.work is not None else 0.0
    return hours * phase.all_slots * min(_prices(phase, there), default=0.0)


def _prices(phase: PhaseSpec, there: Sequence[Row]) -> list[float]:
    """Of the pools that it may use."""
    wants = phase.capacity
    return [
        row.price
        for row in there
        if (not wants.pools or row.name in wants.pools)
        and wants.kind in ("", row.kind)
        and wants.region in ("", row.region)
        and (wants.market == "any" or Market(row.market) == wants.market)
    ]
