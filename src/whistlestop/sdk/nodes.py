"""Ranks on several nodes: rank 0 tells the others' nodes over one connection each. No cost to a step: a thread waits.

Lines of JSON. Rank 0 listens; the first rank of every other node connects, says who it is and keeps the connection;
any rank that was interrupted connects for one line. The key keeps strangers out.
"""

import hmac
import json
import os
import queue
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from whistlestop.channel.layout import Word
from whistlestop.sdk.attachment import Attachment
from whistlestop.sdk.group import DIED, PATIENCE_SECONDS, Group, RanksApart
from whistlestop.sdk.settings import Settings

ENV_KEY = "WHISTLE_AGREE_KEY"
_STORE_KEY = "whistlestop/agree"
_RETRY_SECONDS = 0.2


Lost = Callable[[int, str], None]  # a rank that is gone for us, and how to name it


def meet(group: Group, settings: Settings, attachment: Attachment, lost: Lost) -> Callable[[], None] | None:
    """Bring the nodes together; gives what ends it in good order. Failing is said aloud: the ranks of a node still
    agree."""
    try:
        address, key = _meeting(group, settings)
        if group.world.rank > 0:
            attachment.ask_front = lambda word: _ask(address, key, word)
        if group.world.rank == 0:
            board = _Switchboard(group, attachment, lost, address, key)
            group.nodes = list(board.wait(group.world.nodes - 1))
            return board.close
        if group.world.local_rank == 0:
            return _Outpost(group, lost, address, key).close
    except Exception as error:
        attachment.warn(f"the ranks of other nodes can't be reached ({error}); ranks stop together only on this node")
    return None


def _meeting(group: Group, settings: Settings) -> tuple[tuple[str, int], str]:
    """Where rank 0 listens, and the key. From the environment, or through the store of torch.distributed."""
    if settings.agree is not None:
        host, _, port = settings.agree.rpartition(":")
        return (host, int(port)), os.environ.get(ENV_KEY, "")
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_initialized():
        raise RanksApart("set WHISTLE_AGREE=host:port, or call init_process_group() before whistlestop.run()")
    store = distributed.distributed_c10d._get_default_store()
    if group.world.rank == 0:
        host = os.environ.get("MASTER_ADDR", "127.0.0.1")
        with socket.create_server((host, 0)) as probe:  # a free port; taken again at once
            port = probe.getsockname()[1]
        key = secrets.token_hex(16)
        store.set(_STORE_KEY, json.dumps([host, port, key]))
        return (host, port), key
    host, port, key = json.loads(store.get(_STORE_KEY))
    return (host, port), key


class _Line:
    """One connection that carries lines of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._file = connection.makefile("rb")

    def send(self, message: Mapping[str, Any]) -> None:
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """None: the other side is gone."""
        try:
            line = self._file.readline(1 << 16)
            message = json.loads(line) if line else None
        except (OSError, ValueError):
            return None
        return message if isinstance(message, dict) else None

    def close(self) -> None:
        self._file.close()
        self._connection.close()


class _Remote:
    """Another node, as rank 0 sees it."""

    def __init__(self, line: _Line, node: int, first_rank: int, lost: Lost) -> None:
        self.node = node
        self._first_rank = first_rank
        self._line = line
        self._lost = lost
        self._turn = threading.Lock()
        self._answers: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._gone = False

    def listen(self) -> None:
        """In a thread: answers, until the node says goodbye or is gone."""
        while (message := self._line.receive()) is not None:
            if "bye" in message:
                self._gone = True
                break
            self._answers.put(int(message.get("value", 0)))
        self._answers.put(None)
        if not self._gone:
            self._gone = True
            self._lost(self._first_rank, f"node {self.node}, with rank {self._first_rank} and those after it,")

    def decide(self, words: Mapping[int, int]) -> int:
        return self._request({"words": [[int(word), value] for word, value in words.items()]}, 0)

    def least(self, word: int) -> int:
        return self._request({"least": int(word)}, 1 << 62)

    def most(self, word: int) -> int:
        return self._request({"most": int(word)}, 0)

    def close(self) -> None:
        self._gone = True
        try:
            self._line.send({"bye": True})
        except OSError:
            pass
        self._line.close()

    def _request(self, message: Mapping[str, Any], without: int) -> int:
        """`without`: what counts for a node whose ranks have all come to their end."""
        with self._turn:
            if self._gone:
                return without
            try:
                self._line.send(message)
            except OSError:
                return without
            answer = self._answers.get()
        return without if answer is None else answer


class _Switchboard:
    """At rank 0: takes the other nodes in, and what interrupted ranks have to say."""

    def __init__(self, group: Group, attachment: Attachment, lost: Lost, address: tuple[str, int], key: str) -> None:
        self._group = group
        self._attachment = attachment
        self._lost = lost
        self._key = key
        self._nodes: dict[int, _Remote] = {}
        self._listening = socket.create_server(address)
        threading.Thread(target=self._run, name="whistlestop-nodes", daemon=True).start()

    def wait(self, count: int) -> list[_Remote]:
        self._group.wait(lambda: len(self._nodes) >= count, f"{count} other nodes")
        return list(self._nodes.values())

    def close(self) -> None:
        try:
            self._listening.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listening.close()
        for node in self._nodes.values():
            node.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._take, args=(_Line(connection),), daemon=True).start()

    def _take(self, line: _Line) -> None:
        first = line.receive() or {}
        if not hmac.compare_digest(str(first.get("key", "")), self._key):
            line.close()
        elif "ask" in first:
            if first["ask"] in (Word.RANKS_INTERRUPTED, Word.RANKS_FINISH):
                self._attachment.front[first["ask"]] = 1
            line.close()
        elif "node" in first:
            remote = _Remote(line, int(first["node"]), int(first.get("rank", 0)), self._lost)
            self._nodes[remote.node] = remote
            remote.listen()


class _Outpost:
    """At the first rank of another node: writes what rank 0 decides into this node's page, and answers."""

    def __init__(self, group: Group, lost: Lost, address: tuple[str, int], key: str) -> None:
        self._group = group
        self._lost = lost
        self._closing = False
        self._line = _connect(address)
        self._line.send({"key": key, "node": group.world.node, "rank": group.world.rank})
        threading.Thread(target=self._run, name="whistlestop-node", daemon=True).start()

    def close(self) -> None:
        self._closing = True
        try:
            self._line.send({"bye": True})
        except OSError:
            pass
        self._line.close()

    def _run(self) -> None:
        while (message := self._line.receive()) is not None:
            if "bye" in message:
                return
            if "words" in message:
                value = self._group.write({int(word): int(value) for word, value in message["words"]})
            elif "least" in message:
                value = self._group.least(int(message["least"]))
            else:
                value = self._group.most(int(message.get("most", Word.STEP)))
            try:
                self._line.send({"value": value})
            except OSError:
                break
        if not self._closing and not Group.ended(self._group.mine):
            self._group.decided[DIED] = 1  # the others of this node wait for rank 0 too
            self._lost(0, "rank 0, or the way to its node,")


def _ask(address: tuple[str, int], key: str, word: int) -> None:
    line = _connect(address)
    line.send({"key": key, "ask": int(word)})
    line.close()


def _connect(address: tuple[str, int]) -> _Line:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            connection = socket.create_connection(address, timeout=PATIENCE_SECONDS)
            connection.settimeout(None)
            return _Line(connection)
        except OSError as error:
            if time.monotonic() > deadline:
                raise RanksApart(f"rank 0 does not answer at {address[0]}:{address[1]}: {error}") from error
            time.sleep(_RETRY_SECONDS)
