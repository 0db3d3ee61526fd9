"""What a node of a cluster is given: its part of the attempt, with nothing in it that is only on this machine."""

import msgspec
import sqlalchemy as sa

from whistlestop.blobs.open import is_remote
from whistlestop.domain.errors import NotFound, Refused
from whistlestop.engines.attempt_files import seat_of
from whistlestop.server.services import launches, storages
from whistlestop.server.services.context import Context
from whistlestop.server.services.kits import Kits
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import phases, pools, runs
from whistlestop.wire.launch import Launch, Ready

Row = sa.Row[tuple[object, ...]]


def ready(context: Context, kits: Kits, attempt_id: str, token: str, node: int, url: str) -> Ready:
    launch, secrets = launches.build(context, attempt_id, token, url)
    if not 0 <= node < launch.nodes:
        raise NotFound(f"attempt {attempt_id} has {launch.nodes} nodes, and this is none of them: {node}")
    with context.database.read() as connection:
        attempt = phases.attempt(connection, attempt_id)
        assert attempt is not None
        run, pool = runs.get(connection, attempt.run_id), pools.get(connection, attempt.pool)
        phase = phases.get(connection, attempt.phase_id)
    settings = pool.settings if pool is not None else {}
    where = storages.root(context.settings, run)
    if launch.kind == "train" and not is_remote(where) and not settings.get("shared"):
        raise Refused(
            f"pool {attempt.pool} is on other machines, and the checkpoints of run #{run.number} are kept on this one",
            hint="start the server with --checkpoints s3://BUCKET, or say `shared: true` of a pool that sees them",
        )
    if run.bundle is None and not settings.get("shared"):
        raise Refused(
            f"pool {attempt.pool} is on other machines, and run #{run.number} runs in place, in {run.in_place} of this",
            hint="submit it without --in-place, or say `shared: true` of a pool that sees that directory",
        )
    return Ready(
        launch=_for_node(launch, node, lease=settings.get("lease"), shared=not is_remote(where)),
        secrets=secrets,
        seat=seat_of(attempt_id, node, launch.nodes),
        bundle=run.bundle,
        kit=kits.get().digest,
        own=sorted(spec_of(run.spec).phase(phase.name).env),
    )


def _for_node(launch: Launch, node: int, *, lease: float | None, shared: bool) -> Launch:
    share = len(launch.slots) // launch.nodes
    return msgspec.structs.replace(
        launch,
        node=node,
        slots=launch.slots[node * share : (node + 1) * share],
        directory="",
        workdir=launch.workdir if launch.bundle is None else "",
        bundle=None,
        checkpoints=launch.checkpoints if shared else "",
        lease=lease,
        sdk_path=None,
        server_file=None,
    )
