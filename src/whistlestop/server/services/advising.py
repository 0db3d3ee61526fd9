"""Should this run be killed? Gathered, judged, weighed, and put into words. Read only: nothing here acts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from whistlestop.diagnosis.advice import Advice, advise
from whistlestop.diagnosis.choices import Choice
from whistlestop.diagnosis.evidence import Evidence, Saved
from whistlestop.diagnosis.findings import KINDS, Finding
from whistlestop.diagnosis.forecast import Gain
from whistlestop.diagnosis.judge import judge
from whistlestop.domain.clock import iso
from whistlestop.domain.estimates import Left
from whistlestop.domain.states import AttemptState
from whistlestop.server.services import checkpoint_views, evidence, views
from whistlestop.server.services.asking import phase_named
from whistlestop.server.services.context import Context
from whistlestop.server.store import checkpoints, phases
from whistlestop.wire.advice import AdviceView, AheadView, BandView, ChoiceView, FoundView, GainView

Row = sa.Row[Any]


def advice_on(context: Context, connection: sa.Connection, run: Row, phase: str | None = None) -> AdviceView:
    """About this phase; without a name about the one that runs, comes next or ended it."""
    rows = phases.of_runs(connection, [run.id]).get(run.id, [])
    about = views.current_phase(rows) if phase is None else phase_named(rows, run, phase)
    if about is None:
        seen = Evidence(now=context.clock(), status=run.state)
    else:
        seen = _with_what_is_safe(context, connection, run, about, rows)
    return _view(run, about, seen, advise(seen, judge(seen)))


def _with_what_is_safe(
    context: Context, connection: sa.Connection, run: Row, phase: Row, rows: Sequence[Row]
) -> Evidence:
    """The evidence, with its pace as lists and budgets see it, and with the checkpoints that a run may go on from."""
    attempts = phases.attempts_of_runs(connection, [run.id]).get(run.id, [])
    live = [row for row in attempts if row.phase_id == phase.id and row.state == AttemptState.STARTED]
    pace = views.pace_of(context, live[-1].id) if live else None
    kept = checkpoints.of_run(connection, run.id, phase.name)
    best = checkpoint_views.best_ids(run, kept)
    good = [row for row in kept if checkpoints.eligible(row)]
    return replace(
        evidence.gather(context, connection, run, phase),
        marks=pace.history if pace is not None else (),
        saved=tuple(Saved(row.step, row.committed_at, row.id in best) for row in good),
        follows=any(phase.name in row.needs for row in rows),
    )


def _view(run: Row, phase: Row | None, seen: Evidence, advice: Advice) -> AdviceView:
    coming = advice.forecast
    return AdviceView(
        run=run.id,
        number=run.number,
        name=run.name,
        phase=phase.name if phase is not None else None,
        status=run.state,
        at=iso(seen.now),
        verdict=advice.verdict.value,
        sure=advice.sure,
        reason=advice.reason,
        do=advice.do,
        fraction=advice.fraction,
        goes_back_to=advice.goes_back_to,
        spent=seen.spent,
        seconds=_band(coming.left),
        credits=_band(coming.cost),
        saves=coming.cost.likely if coming.cost is not None else None,
        findings=[_found(each) for each in advice.findings],
        gain=_gain(coming.gain) if coming.gain is not None else None,
        choices=[_choice(each) for each in advice.choices],
    )


def _found(finding: Finding) -> FoundView:
    return FoundView(
        cause=finding.cause.value,
        weight=finding.weight.value,
        headline=KINDS[finding.cause].says,
        confidence=finding.confidence,
        says=finding.says,
        evidence=list(finding.evidence),
        do=finding.what_to_do,
        metric=finding.metric,
        step=finding.step,
        rank=finding.rank,
        host=finding.host,
        at=iso(finding.at) if finding.at else None,
    )


def _gain(gain: Gain) -> GainView:
    least, likely, most = gain.better
    return GainView(
        metric=gain.metric,
        aim="max" if gain.aim == "max" else "min",
        now=gain.now,
        end=BandView(low=gain.end.low, likely=gain.end.likely, high=gain.end.high),
        better=BandView(low=least, likely=likely, high=most),
        noise=gain.noise,
        distinct=gain.distinct,
        curve=list(gain.curve),
        ahead=[AheadView(step=each.step, low=each.low, likely=each.likely, high=each.high) for each in gain.ahead],
    )


def _choice(choice: Choice) -> ChoiceView:
    return ChoiceView(
        verb=choice.verb.value,
        seconds=_band(choice.seconds),
        credits=_band(choice.credits),
        saves=choice.saves,
        lost_steps=choice.lost_steps,
        gets=choice.gets,
    )


def _band(left: Left | None) -> BandView | None:
    return None if left is None else BandView(low=left.low, likely=left.likely, high=left.high)
