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
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from whistlestop.channel.layout import Word
from whistlestop.sdk.attachment import Attachment
from whistlestop.sdk.group import DIED, FRONT_ENDED, PATIENCE_SECONDS, Group, RanksApart
from whistlestop.sdk.pages import DONE, OUT, gone
from whistlestop.sdk.settings import Settings

if TYPE_CHECKING:
    from whistlestop.sdk.stragglers import Seen

ENV_KEY = "WHISTLE_AGREE_KEY"
_STORE_KEY = "whistlestop/agree"
_RETRY_SECONDS = 0.2
_SAY_SECONDS = 10.0
_HELLO_SECONDS = 10.0  # for a stranger to say who it is, and for rank 0 to answer
_ANSWER_SECONDS = 30.0  # then a node that does not answer is lost
_LEAVE_SECONDS = 30.0  # for the other ranks of a node to come to their end; longer while they save
_CLOSE_SECONDS = 5.0
_LONGEST_LINE = 1 << 16


Lost = Callable[[int, str], None]  # a rank that is gone for us, and how to name it


def meet(group: Group, settings: Settings, attachment: Attachment, lost: Lost) -> Callable[[], None] | None:
    """Bring the nodes together; gives what ends it: with a goodbye if this rank's loop has ended in good order, else
    the others lose us. RanksApart in words if they can't meet."""
    try:
        if group.world.rank == 0:
            return _listen(group, settings, attachment, lost)
        address, key = _meeting(group, settings)
        attachment.ask_front = lambda word: _ask(group, address, key, word)
        if group.world.local_rank == 0:
            return _Outpost(group, lost, address, key).close
    except RanksApart:
        group.leave()  # the others of this node see that, and need not wait for us
        raise
    except Exception as error:
        group.leave()
        raise RanksApart(f"the ranks of other nodes can't be reached: {error!r}") from error
    return None


def _listen(group: Group, settings: Settings, attachment: Attachment, lost: Lost) -> Callable[[], None]:
    if settings.agree is not None:
        address, key = _given(settings.agree)
        board = _Switchboard(group, attachment, lost, address, key)
    else:
        host, key = os.environ.get("MASTER_ADDR") or socket.gethostname(), secrets.token_hex(16)
        store = _store()
        board = _Switchboard(group, attachment, lost, (host, 0), key)
        store.set(f"{_STORE_KEY}/{group.tag}", json.dumps([host, board.port, key]))
    try:
        group.nodes = list(board.wait(group.world.nodes - 1))
    except BaseException:
        board.close()
        raise
    return board.close


def _meeting(group: Group, settings: Settings) -> tuple[tuple[str, int], str]:
    """Where rank 0 listens, and the key. From the environment, or through the store of torch.distributed."""
    if settings.agree is not None:
        return _given(settings.agree)
    host, port, key = json.loads(_store().get(f"{_STORE_KEY}/{group.tag}"))
    return (host, port), key


def _given(agree: str) -> tuple[tuple[str, int], str]:
    host, _, port = agree.rpartition(":")
    if not host or not port.isdecimal():
        raise RanksApart(f"WHISTLE_AGREE={agree}: expected host:port, an address of rank 0's host")
    key = os.environ.get(ENV_KEY, "")
    if not key:
        raise RanksApart(f"WHISTLE_AGREE is set and {ENV_KEY} is not: anybody who reaches {agree} could stop this "
                         "training. Set it to the same secret for every rank")  # fmt: skip
    return (host.strip("[]"), int(port)), key


def _store() -> Any:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        raise RanksApart(
            "the ranks of this training are on several nodes, and don't know where to meet: set "
            f"WHISTLE_AGREE=host:port and {ENV_KEY}, or call init_process_group() before whistlestop.run()"
        )
    return distributed.distributed_c10d._get_default_store()


class _Line:
    """One connection that carries lines of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _keep_alive(connection)
        self._connection = connection
        self._file = connection.makefile("rb")

    def send(self, message: Mapping[str, Any]) -> None:
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, within: float | None = None) -> dict[str, Any] | None:
        """None: the other side is gone, or talks about something else."""
        try:
            self._connection.settimeout(within)
            line = self._file.readline(_LONGEST_LINE)
            self._connection.settimeout(None)
            message = json.loads(line) if line else None
        except (OSError, ValueError, RecursionError):
            return None
        return message if isinstance(message, dict) else None

    def cut(self, how: int = socket.SHUT_RDWR) -> None:
        """Nothing comes or goes any more: whoever waits for it wakes up."""
        try:
            self._connection.shutdown(how)
        except OSError:
            pass

    def close(self) -> None:
        self.cut()
        self._file.close()
        self._connection.close()


def _keep_alive(connection: socket.socket) -> None:
    """A host without power says nothing: after a minute its connection ends."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60000)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if sys.platform == "linux":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_ANSWER_SECONDS), 0))


class _Remote:
    """Another node, as rank 0 sees it."""

    def __init__(self, line: _Line, node: int, first_rank: int, group: Group, lost: Lost) -> None:
        self.node = node
        self._first_rank = first_rank
        self._line = line
        self._group = group
        self._lost = lost
        self._turn = threading.Lock()
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._gone = False

    def listen(self) -> None:
        """In a thread: answers, until the node says goodbye or is gone."""
        while (message := self._line.receive()) is not None:
            if "bye" in message:
                self._gone = True
                break
            self._answers.put(message)
        expected, self._gone = self._gone, True
        if not expected:
            self._mark()
        self._answers.put(None)
        self._line.close()
        if not expected:
            self._lost(self._first_rank, f"node {self.node}, with rank {self._first_rank} and those after it,")

    def decide(self, words: Mapping[int, int]) -> int:
        return self._request({"words": [[int(word), value] for word, value in words.items()]}, 0)

    def least(self, word: int) -> int:
        return self._request({"least": int(word)}, DONE)

    def most(self, word: int) -> int:
        return self._request({"most": int(word)}, 0)

    def seen(self) -> "Seen | None":
        """Its clock may be any: what it tells is how long ago it was, and that is counted from the middle of the time
        that the answer took."""
        from whistlestop.sdk.stragglers import Seen

        asked = time.time()
        answer = self._ask({"seen": True})
        came = time.time()
        try:
            if answer is None or not answer["ready"]:
                return None
            middle = (asked + came) / 2
            ready = {int(rank): [middle - ago / 1e6 for ago in times] for rank, times in answer["ready"].items()}
            return Seen(int(answer["step"]), str(answer["host"])[:200], ready, unsure=(came - asked) / 2)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def leave(self, *, bye: bool) -> None:
        """The other side closes then, and `listen` ends."""
        if self._gone:
            return
        self._gone = True
        if not bye:
            self._line.cut()
            return
        try:
            self._line.send({"bye": True})
        except (OSError, ValueError):
            pass
        self._line.cut(socket.SHUT_WR)

    def cut(self) -> None:
        self._line.cut()

    def _request(self, message: Mapping[str, Any], without: int) -> int:
        """`without`: what counts for a node whose ranks have all come to their end."""
        answer = self._ask(message)
        if answer is None:
            return without
        value = answer.get("value")
        return value if isinstance(value, int) else 0

    def _ask(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        with self._turn:
            if self._gone:
                return None
            try:
                self._line.send(message)
                return self._answers.get(timeout=_ANSWER_SECONDS)
            except (OSError, ValueError, queue.Empty):
                if not self._gone:
                    self._mark()
                    self._line.cut()  # `listen` sees that, and says that the node is lost
                return None

    def _mark(self) -> None:
        """Whoever waits for that node need not any more."""
        if not self._group.decided[DIED]:
            self._group.decided[DIED] = self._first_rank + 1


class _Switchboard:
    """At rank 0: takes the other nodes in, and what interrupted ranks have to say."""

    def __init__(self, group: Group, attachment: Attachment, lost: Lost, address: tuple[str, int], key: str) -> None:
        self._group = group
        self._attachment = attachment
        self._lost = lost
        self._key = key.encode()
        self._nodes: dict[int, _Remote] = {}
        self._lines: set[_Line] = set()  # of those that have not said who they are
        self._taking = threading.Lock()
        self._closed = False
        self._threads: set[threading.Thread] = set()
        try:
            self._listening = socket.create_server(address)
        except OSError as error:
            raise RanksApart(f"rank 0 can't listen at {address[0]}:{address[1]}: {error}") from error
        self.port: int = self._listening.getsockname()[1]
        self._start(self._run)

    def wait(self, count: int) -> list[_Remote]:
        what = f"{count} other nodes to connect to port {self.port}"
        self._group.wait(lambda: len(self._nodes) >= count, what, whom=list)
        return list(self._nodes.values())

    def close(self) -> None:
        with self._taking:
            self._closed = True
            nodes, strangers = list(self._nodes.values()), list(self._lines)
        try:
            self._listening.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listening.close()
        for node in nodes:
            node.leave(bye=_in_good_order(self._group))
        for line in strangers:
            line.cut()
        until = time.monotonic() + _CLOSE_SECONDS
        for thread in list(self._threads):
            thread.join(max(0.0, until - time.monotonic()))
        for node in nodes:
            node.cut()

    def _start(self, target: Callable[..., None], *given: Any) -> None:
        def run() -> None:
            try:
                target(*given)
            finally:
                self._threads.discard(thread)

        thread = threading.Thread(target=run, name="whistlestop-nodes", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                if self._closed or self._listening.fileno() < 0:
                    return
                time.sleep(_RETRY_SECONDS)  # too many files open: it may pass
                continue
            try:
                self._start(self._take, _Line(connection))
            except Exception:  # gone again, or no thread to be had: it will try again
                connection.close()

    def _take(self, line: _Line) -> None:
        with self._taking:
            self._lines.add(line)
        first = line.receive(_HELLO_SECONDS) or {}
        remote = None
        try:
            shown = str(first.get("key", "")).encode(errors="replace")
            if hmac.compare_digest(shown, self._key) and first.get("run") == self._group.tag:
                remote = self._welcome(line, first)
        except (OSError, ValueError, TypeError):
            pass
        with self._taking:
            self._lines.discard(line)
        if remote is None:
            line.close()
        else:
            remote.listen()

    def _welcome(self, line: _Line, first: Mapping[str, Any]) -> _Remote | None:
        if "ask" in first:
            if first["ask"] in (Word.RANKS_INTERRUPTED, Word.RANKS_FINISH):
                self._attachment.front[first["ask"]] = 1
            line.send({"welcome": True})
            return None
        remote = _Remote(line, int(first["node"]), int(first["rank"]), self._group, self._lost)
        with self._taking:
            if self._closed:
                return None
            if remote.node in self._nodes or not 0 < remote.node < self._group.world.nodes:
                line.send({"refused": f"rank {first['rank']} says it is on node {remote.node}; there are "
                                      f"{self._group.world.nodes}, each with a number of its own from 0"})  # fmt: skip
                return None
            line.send({"welcome": True})
            self._nodes[remote.node] = remote
        return remote


class _Outpost:
    """At the first rank of another node: writes what rank 0 decides into this node's page, and answers."""

    def __init__(self, group: Group, lost: Lost, address: tuple[str, int], key: str) -> None:
        self._group = group
        self._lost = lost
        self._closing = False
        self._line = _connect(group, address, {"key": key, "node": group.world.node, "rank": group.world.rank})
        self._thread = threading.Thread(target=self._run, name="whistlestop-node", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Goodbye for the whole node: not while another of its ranks still has to be asked."""
        bye = _in_good_order(self._group)
        if bye:
            self._wait_for_others()
        self._closing = True
        try:
            if bye:
                self._line.send({"bye": True})
        except (OSError, ValueError):
            pass
        self._line.cut(socket.SHUT_WR)
        self._thread.join(_CLOSE_SECONDS)  # until rank 0 has closed its side: else our goodbye may be lost
        self._line.cut()

    def _wait_for_others(self) -> None:
        begun = time.monotonic()
        until = begun + _LEAVE_SECONDS
        while self._thread.is_alive() and time.monotonic() < min(until, begun + PATIENCE_SECONDS):
            others = [page for _, page in self._group.peers() if page[Word.PID] and page[Word.ACK_SEQ] < DONE]
            others = [page for page in others if not page[OUT] and not gone(page)]
            if not others:
                return
            if any(page[Word.SAVING] for page in others):
                until = time.monotonic() + _LEAVE_SECONDS
            time.sleep(0.01)

    def _run(self) -> None:
        group = self._group
        while (message := self._line.receive()) is not None:
            if "bye" in message:
                self._closing = True
                group.decided[FRONT_ENDED] = 1
                break
            try:
                self._line.send(_seen(group) if "seen" in message else {"value": self._answer(message)})
            except (OSError, ValueError, TypeError, IndexError):
                break
        self._line.close()
        if not self._closing:
            if not group.decided[DIED]:
                group.decided[DIED] = 1  # the others of this node wait for rank 0 too
            if not Group.ended(group.mine):
                self._lost(0, "rank 0, or the way to its node,")

    def _answer(self, message: Mapping[str, Any]) -> int:
        if "words" in message:
            return self._group.write({int(word): int(value) for word, value in message["words"]})
        if "least" in message:
            return self._group.least(int(message["least"]))
        return self._group.most(int(message["most"]))


def _seen(group: Group) -> Mapping[str, Any]:
    """How many microseconds ago the ranks of this node were ready for each of their last steps."""
    from whistlestop.sdk.stragglers import seen

    found, now = seen(group), time.time()
    if found is None:
        return {"ready": {}}
    ready = {rank: [round((now - at) * 1e6) for at in times] for rank, times in found.ready.items()}
    return {"step": found.step, "host": found.host, "ready": ready}


def _in_good_order(group: Group) -> bool:
    return group.mine[Word.ACK_SEQ] >= DONE


def _ask(group: Group, address: tuple[str, int], key: str, word: int) -> None:
    """In the loop, once: it must not wait for long."""
    _connect(group, address, {"key": key, "ask": int(word)}, patience=_HELLO_SECONDS).close()


def _connect(
    group: Group, address: tuple[str, int], hello: Mapping[str, Any], *, patience: float = PATIENCE_SECONDS
) -> _Line:
    begun = time.monotonic()
    where = f"rank 0 at {address[0]}:{address[1]}"
    why, said = "", False
    while True:
        try:
            line = _Line(socket.create_connection(address, timeout=min(patience, _ANSWER_SECONDS)))
            line.send({**hello, "run": group.tag})
            answer = line.receive(_HELLO_SECONDS) or {}
            if "welcome" in answer:
                return line
            line.close()
            if "refused" in answer:
                raise RanksApart(f"{where} does not take this node in: {answer['refused']}")
            why = f"it does not take us in: is {ENV_KEY} the same everywhere, and the run's name?"
        except OSError as error:
            why = str(error)
        waited = time.monotonic() - begun
        if waited > patience:
            raise RanksApart(f"{where} does not answer: {why}")
        if waited > _SAY_SECONDS and not said:
            said = True
            group.say(f"rank {group.world.rank} has waited {waited:.0f} s for {where}: {why}")
        time.sleep(_RETRY_SECONDS)
