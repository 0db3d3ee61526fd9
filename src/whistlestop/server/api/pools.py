"""Pools and hosts: the capacity there is. Everybody may look, an admin changes it."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from whistlestop.server.api.access import Admin, Ctx, Member, Viewer
from whistlestop.server.api.readings import Reads
from whistlestop.server.services import hosts, pools
from whistlestop.wire.pools import (
    HOST_NAME,
    Applied,
    ApplyBody,
    ClusterView,
    ExcludeBody,
    HostDone,
    HostView,
    NewPool,
    PoolBody,
    PoolView,
    ReadmitBody,
)
from whistlestop.wire.spec_capacity import POOL_NAME

router = APIRouter(tags=["capacity"])

Name = Annotated[str, Path(pattern=f"^{POOL_NAME}$")]
HostName = Annotated[str, Path(pattern=f"^{HOST_NAME}$")]


@router.get("/pools")
def list_pools(context: Ctx, _actor: Viewer) -> list[PoolView]:
    with context.database.read() as connection:
        return pools.views(context, connection)


@router.post("/pools", status_code=201)
def add_pool(body: NewPool, context: Ctx, _actor: Admin) -> PoolView:
    return pools.add(context, body)


@router.post("/pools/apply")
def apply_pools(body: ApplyBody, context: Ctx, _actor: Admin) -> Applied:
    """A file of pools: all of it or nothing."""
    return pools.apply(context, body)


@router.get("/clusters")
async def list_clusters(request: Request, reads: Reads, _actor: Member) -> list[ClusterView]:
    """Of each pool that is on a cluster: whether that can be reached, and what can be used of it now."""
    look: Callable[[], list[ClusterView]] = request.app.state.clusters
    return await reads.waited(look)


@router.get("/pools/{name}")
def show_pool(name: Name, context: Ctx, _actor: Viewer) -> PoolView:
    with context.database.read() as connection:
        return pools.view(context, connection, name)


@router.put("/pools/{name}")
def put_pool(name: Name, body: PoolBody, context: Ctx, _actor: Admin, response: Response) -> PoolView:
    """As it is given; what is not given is as for a new one."""
    view, is_new = pools.replace(context, name, body)
    response.status_code = 201 if is_new else 200
    return view


@router.patch("/pools/{name}")
def change_pool(name: Name, body: PoolBody, context: Ctx, _actor: Admin) -> PoolView:
    """The price holds for attempts that start from now on; a smaller pool lets what runs run on."""
    return pools.change(context, name, body)


@router.delete("/pools/{name}", status_code=204)
def remove_pool(name: Name, context: Ctx, _actor: Admin) -> Response:
    pools.remove(context, name)
    return Response(status_code=204)


@router.get("/hosts")
def list_hosts(context: Ctx, _actor: Viewer) -> list[HostView]:
    with context.database.read() as connection:
        return hosts.views(context, connection)


@router.post("/hosts/{pool}/{name}/exclude")
def exclude_host(pool: Name, name: HostName, body: ExcludeBody, context: Ctx, actor: Admin) -> HostDone:
    """Nothing is placed there until it is over."""
    return hosts.exclude(context, pool, name, body, actor)


@router.post("/hosts/{pool}/{name}/readmit")
def readmit_host(pool: Name, name: HostName, body: ReadmitBody, context: Ctx, _actor: Admin) -> HostDone:
    """Its record begins anew."""
    return hosts.readmit(context, pool, name, body)
