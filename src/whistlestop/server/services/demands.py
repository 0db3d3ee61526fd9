"""What a phase's spec asks of capacity, as the planner takes it."""

import logging
from dataclasses import dataclass

from whistlestop.capacity.choose import CHANGEOVER, Wants
from whistlestop.server.services.specs import spec_of
from whistlestop.wire.spec import PhaseKind, PhaseSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """What a phase's spec asks of capacity. It never changes."""

    wants: Wants
    limit: float | None  # seconds until it is over at the latest
    grace: float  # of them, after its time limit
    yields: bool  # may make room for a run of higher priority, once it has saved
    held: str = ""  # why it can't be started at all


def of(text: str, name: str, slots: int) -> Asked:
    """Of a phase of a stored spec. One that this version can't read any more is nobody else's trouble."""
    try:
        return asked(spec_of(text).phase(name))
    except Exception as error:
        log.exception("the spec of phase %s can't be read", name)
        held = f"a version of the server that can read its spec: {error}"
        return Asked(Wants(slots=slots), limit=None, grace=0.0, yields=False, held=held)


def asked(phase: PhaseSpec) -> Asked:
    capacity, grace = phase.capacity, phase.grace.total.total_seconds()
    return Asked(
        Wants(
            slots=phase.all_slots,
            pools=capacity.pools,
            kind=capacity.kind,
            region=capacity.region,
            market=capacity.market,
            changeover=capacity.changeover.total_seconds() if capacity.changeover is not None else CHANGEOVER,
        ),
        limit=phase.time_limit.total_seconds() + grace if phase.time_limit is not None else None,
        grace=grace,
        yields=capacity.preemptible and phase.kind is PhaseKind.TRAIN,
    )
