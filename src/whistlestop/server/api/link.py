"""The runner's connection: what comes up is stored and acknowledged, orders go down the moment they are durable."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import sqlalchemy as sa
from fastapi import APIRouter, WebSocket
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocketDisconnect

from whistlestop.channel.records import JournalDamaged
from whistlestop.domain.errors import BadRequest, DiskFull, StaleAttempt
from whistlestop.server.services import accounts, ingest
from whistlestop.server.services.context import Context
from whistlestop.server.services.hub import Waiter, node_topic
from whistlestop.server.services.sessions import bearer
from whistlestop.server.store import nodes, phases
from whistlestop.wire import frames

log = logging.getLogger(__name__)
router = APIRouter()
UNKNOWN = 4401
GONE = 4410  # this attempt is not wanted any more: the runner ends its tree and leaves


@router.websocket("/runner")
async def runner(socket: WebSocket) -> None:
    context: Context = socket.app.state.context
    token = bearer(socket.headers.get("authorization"))
    attempt = await run_in_threadpool(_admit, context, token)
    await socket.accept()
    if attempt is None:
        # A token that we do not know may be another server's: its runner has to go on looking for that one.
        gone = await run_in_threadpool(_deleted, context, token)
        log.info("a runner came by that is %s", "of a deleted run" if gone else "not ours: another server's, perhaps")
        await socket.close(GONE if gone else UNKNOWN, "its run was deleted" if gone else "not known here")
        return
    hung_up: Callable[[str], None] = socket.app.state.hung_up
    try:
        await _serve(context, socket, attempt)
    except WebSocketDisconnect:
        pass
    except StaleAttempt as error:
        await _close(socket, GONE, error.text)
    except sa.exc.DBAPIError as error:
        log.warning("attempt %s: what its runner sends can't be stored now: %s", attempt.id, error)
        await _close(socket, 1013, "try again later")
    except (BadRequest, JournalDamaged, msgspec.DecodeError) as error:
        log.warning("attempt %s sent something unreadable: %s", attempt.id, error)
        await _close(socket, 4400, f"unreadable: {error}"[:100])
    except Exception:
        log.exception("attempt %s: its link failed; its runner comes back", attempt.id)
        await _close(socket, 1011, "the server met an error of its own")
    finally:
        hung_up(attempt.id)


async def _serve(context: Context, socket: WebSocket, attempt: sa.Row[Any]) -> None:
    hello = frames.decode_up(await socket.receive_bytes())
    if not isinstance(hello, frames.Hello) or hello.attempt_id != attempt.id or hello.protocol != frames.PROTOCOL:
        raise BadRequest("a runner starts with its hello, for its own attempt, in this protocol")
    node = hello.node
    if not 0 <= node < attempt.nodes:
        raise BadRequest(f"attempt {attempt.id} has {attempt.nodes} nodes, and this is none of them: {node}")
    with context.hub.listen(attempt.id, node_topic(attempt.id, node)) as waiter:
        with contextlib.suppress(DiskFull):
            await run_in_threadpool(_greet, context, attempt, hello)
        standing = await run_in_threadpool(ingest.order, context, attempt.id)
        offsets = await run_in_threadpool(ingest.offsets, context, attempt.id)
        await socket.send_bytes(frames.encode(frames.Welcome(offsets, standing)))
        if hello.here is not None and attempt.nodes > 1:
            context.hub.come(attempt.id, node, hello.here, nodes=attempt.nodes)
        inbox = Inbox()
        tasks = [
            asyncio.create_task(_receive(context, socket, attempt, node, inbox)),
            asyncio.create_task(_store(context, socket, attempt, inbox)),
            asyncio.create_task(_send_orders(context, socket, attempt, hello, waiter, standing)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()


class Inbox:
    """Data on its way to the store. While one transaction runs, the next one gathers; progress waits for neither."""

    MOST = 32 * 2**20  # bytes; a runner sends far less before it waits for an answer

    def __init__(self) -> None:
        self._frames: list[frames.Data] = []
        self._bytes = 0
        self._filled, self._emptied = asyncio.Event(), asyncio.Event()

    async def put(self, frame: frames.Data) -> None:
        while self._bytes > self.MOST:
            self._emptied.clear()
            await self._emptied.wait()
        self._frames.append(frame)
        self._bytes += len(frame.data)
        self._filled.set()

    async def take(self) -> list[frames.Data]:
        await self._filled.wait()
        self._filled.clear()
        taken, self._frames, self._bytes = self._frames, [], 0
        self._emptied.set()
        return taken


async def _receive(context: Context, socket: WebSocket, attempt: sa.Row[Any], node: int, inbox: Inbox) -> None:
    keeper = ingest.ProgressKeeper(context, attempt, node)
    while True:
        frame = frames.decode_up(await socket.receive_bytes())
        context.hub.heard(attempt.id, node, context.clock())
        match frame:
            case frames.Data() as data:
                await inbox.put(data)
            case frames.Progress() as progress:
                if keeper.take(progress):
                    with contextlib.suppress(DiskFull):
                        await run_in_threadpool(keeper.write)
            case frames.Hello():
                raise BadRequest("a second hello")


async def _store(context: Context, socket: WebSocket, attempt: sa.Row[Any], inbox: Inbox) -> None:
    while True:
        batch = await inbox.take()
        while True:
            try:
                safe = await run_in_threadpool(ingest.store, context, attempt, batch)
                break
            except DiskFull as full:
                # The runner keeps what it is not told to be safe; here nothing is lost but time.
                log.warning("attempt %s: %s", attempt.id, full.text)
                await asyncio.sleep(1.0)
        for stream, offset in safe.items():
            await socket.send_bytes(frames.encode(frames.Ack(stream, offset)))


async def _send_orders(
    context: Context,
    socket: WebSocket,
    attempt: sa.Row[Any],
    hello: frames.Hello,
    waiter: Waiter,
    sent: frames.Order,
) -> None:
    attempt_id, waits = attempt.id, hello.here is not None
    while True:
        if waits and (gang := context.hub.gang(attempt_id, attempt.nodes)) is not None:
            await socket.send_bytes(frames.encode(gang))
            waits = False
        await waiter.wait()
        if context.hub.closed:
            await socket.close(1012, "the server restarts; the run goes on")
            return
        for asked in context.hub.rehearsals(attempt_id) if hello.node == 0 else ():
            await socket.send_bytes(frames.encode(asked))
        for wanted in context.hub.stacks_asked(attempt_id, hello.node):
            await socket.send_bytes(frames.encode(wanted))
        order = context.hub.order(attempt_id)
        if order is not None and order != sent:
            await socket.send_bytes(frames.encode(order))
            sent = order


def _admit(context: Context, token: str | None) -> sa.Row[Any] | None:
    if not token:
        return None
    with context.database.read() as connection:
        return phases.attempt_by_token(connection, accounts.fingerprint(token))


def _deleted(context: Context, token: str | None) -> bool:
    if not token:
        return False
    with context.database.read() as connection:
        return phases.was_deleted(connection, accounts.fingerprint(token))


def _greet(context: Context, attempt: sa.Row[Any], hello: frames.Hello) -> None:
    host, now = hello.host[:200], context.clock()
    with context.database.write() as connection:
        if attempt.nodes > 1:
            nodes.seen(connection, attempt.id, hello.node, host=host, at=now)
        if hello.node == 0:
            begins = {"started_at": now} if attempt.pending and attempt.seen_at is None else {}  # queue time is free
            phases.update_attempt(connection, attempt.id, host=attempt.host or host, seen_at=now, **begins)


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await socket.close(code, reason[:100])
