"""The nodes of the cluster and our agents on them, as the driver sees them: who is there, who goes, what lives."""

import contextlib
import hashlib
import inspect
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ray
from ray._private.state import state as ray_state
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from whistlestop.engines.ray import agent as agent_module
from whistlestop.engines.ray.agent import Agent
from whistlestop.engines.ray.answers import Answers
from whistlestop.engines.ray.groups import Node

NAMESPACE = "whistlestop"
WATCH = 10.0  # seconds for one question to an agent that has nothing new
ANSWER = 5.0  # seconds for an agent to say what is there
_AT_ONCE = 64  # calls of one agent


class Nodes:
    """`changed` is called whenever a node or a seat is something else than it was."""

    def __init__(self, directory: str, warm: float, changed: Callable[[], None]) -> None:
        self._directory, self._warm, self._changed = directory, warm, changed
        source = inspect.getsource(agent_module)
        # Servers of one version share an agent; one of another version has its own.
        self._version = hashlib.sha256(f"{source} {directory}".encode()).hexdigest()[:12]
        ray.cloudpickle.register_pickle_by_value(agent_module)
        self._lock = threading.RLock()
        self._nodes: dict[str, Node] = {}
        self._agents: dict[str, Any] = {}
        self._answers = Answers()
        self._late: dict[str, Any] = {}  # nodes whose agent has not answered in time, and what it was asked
        self._used: dict[str, float] = {}  # when a node last had something of ours
        self._watches: dict[Any, str] = {}
        self.changed_at = 0.0  # by time.monotonic(): when a node last came or went

    # --- who is there ---------------------------------------------------------------------------------------------

    def look(self) -> None:
        leaving = {node: at / 1000 for node, at in ray_state.get_draining_nodes().items()}
        found = {
            each["NodeID"]: Node(
                each["NodeID"],
                each["NodeManagerAddress"],
                each["Resources"],
                each["Labels"],
                leaving.get(each["NodeID"]),
            )
            for each in ray.nodes()
            if each["Alive"]
        }
        with self._lock:
            news = found != self._nodes
            self._nodes = found
            self._used = {node: at for node, at in self._used.items() if node in found}
            if news:
                self.changed_at = time.monotonic()
            for gone in self._agents.keys() - found.keys():
                self._drop(gone)
        self._tend()
        if news:
            self._changed()

    def all(self) -> list[Node]:
        return list(self._nodes.values())

    def with_id(self, node_id: str) -> Node | None:
        return self._nodes.get(node_id)

    def at(self, address: str) -> Node | None:
        """The newest raylet there: an earlier one may not be known to be dead yet."""
        return next((node for node in reversed(self.all()) if node.address == address), None)

    def matching(self, labels: Mapping[str, str]) -> list[Node]:
        return [node for node in self.all() if node.fits(labels)]

    # --- our agents -----------------------------------------------------------------------------------------------

    def agent(self, node: Node) -> Any:
        """Made when it is first asked for; kept while it is used, and for a while after that."""
        with self._lock:
            self._used[node.id] = time.monotonic()
            self._keep(node)
            return self._agents[node.id]

    def root(self, node: Node) -> str:
        return f"{self._directory}/{re.sub('[^A-Za-z0-9.-]', '_', node.address)}"

    def said(self, node: Node) -> dict[str, str] | None:
        """By its agent when it was last heard; None: never."""
        return self._answers.of(node.id)

    def ask(self, nodes: Iterable[Node]) -> None:
        """Afresh; who does not answer in time leaves it at what it said before, and is not waited for any more until
        it has answered: one node that hangs slows nobody who asks of others as well."""
        asked = {}
        for node in nodes:
            handle = self.agent(node)
            if not self._is_late(node.id):
                asked[handle.look.remote()] = (node.id, handle)
        if not asked:
            return
        ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER)
        for ref in ready:
            self._take(*asked[ref], ref)
        with self._lock:
            self._late |= {asked[ref][0]: ref for ref in late}

    def heard(self, node: Node, look: tuple[int, dict[str, str]]) -> None:
        """Its agent has said so by the way."""
        with self._lock:
            news = node.id in self._agents and self._answers.take(node.id, *look)
        if news:
            self._changed()

    def _is_late(self, node_id: str) -> bool:
        with self._lock:
            ref = self._late.get(node_id)
            if ref is None or not ray.wait([ref], timeout=0)[0]:
                return ref is not None
            del self._late[node_id]
            return False

    def let_go(self, node: Node) -> None:
        """An agent holds its node, and a node that is to go waits for it."""
        with self._lock:
            handle = self._agents.get(node.id)
            self._drop(node.id)
        if handle is not None:
            with contextlib.suppress(RayError):
                ray.kill(handle)

    def run(self) -> None:
        """In a thread of its own: hears what the agents see."""
        while True:
            try:
                self._hear()
            except Exception:  # a full disk, say: the next news is heard all the same
                traceback.print_exc()
                time.sleep(0.2)

    def _hear(self) -> None:
        with self._lock:
            refs = list(self._watches)
        if not refs:
            time.sleep(0.05)
            return
        ready, _ = ray.wait(refs, num_returns=1, timeout=0.2)
        for ref in ready:
            with self._lock:
                node_id = self._watches.pop(ref, None)
                handle = self._agents.get(node_id) if node_id is not None else None
            if node_id is not None and handle is not None and self._take(node_id, handle, ref):
                with self._lock:
                    self._watch(node_id)

    def _tend(self) -> None:
        """New nodes are made warm; those that nobody has used for long are left to themselves."""
        now = time.monotonic()
        for node in self.all():
            if self._answers.of(node.id):
                self._used[node.id] = now
            used = self._used.setdefault(node.id, now)
            if now - used > self._warm:
                with self._lock:
                    self._drop(node.id)
            elif node.leaves_at is None and node.has_slots:
                self._keep(node)

    def _keep(self, node: Node) -> None:
        with self._lock:
            if node.id not in self._agents:
                self._agents[node.id] = self._make(node)
                self._answers.begin_anew(node.id)
                self._watch(node.id)

    def _make(self, node: Node) -> Any:
        return (
            ray.remote(Agent)
            .options(
                name=f"agent-{self._version}-{node.id}",
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_concurrency=_AT_ONCE,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            .remote(self.root(node))
        )

    def _watch(self, node_id: str) -> None:
        if (handle := self._agents.get(node_id)) is not None:
            self._watches[handle.watch.remote(self._answers.of(node_id) or {}, WATCH)] = node_id

    def _take(self, node_id: str, handle: Any, ref: Any) -> bool:
        """What that agent has answered. False: it is gone; if its node is not, the next look makes another one."""
        try:
            number, seats = ray.get(ref)
        except RayError:
            with self._lock:
                if self._agents.get(node_id) is handle:
                    self._drop(node_id, keep=True)
            self._changed()
            return False
        with self._lock:
            news = self._agents.get(node_id) is handle and self._answers.take(node_id, number, seats)
        if news:
            self._changed()
        return True

    def _drop(self, node_id: str, *, keep: bool = False) -> None:
        self._agents.pop(node_id, None)
        self._late.pop(node_id, None)
        self._watches = {ref: node for ref, node in self._watches.items() if node != node_id}
        if not keep:
            self._answers.forget(node_id)
