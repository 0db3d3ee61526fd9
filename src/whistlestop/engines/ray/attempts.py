"""The life of an attempt on Ray, in the driver: a group is asked for, a runner is started on each of its nodes, and the
group is given back when all of them have ended.

On which nodes an attempt was started is written down before it is, here on the server's machine: Ray forgets it with
its head, and may move a group to another node when one dies. What a node of ours is doing is said by our agent there.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from whistlestop.engines.attempt_files import seat_of
from whistlestop.engines.ray import groups, holder
from whistlestop.engines.ray.agent import ALL, LIVES
from whistlestop.engines.ray.groups import Node
from whistlestop.engines.ray.nodes import Nodes
from whistlestop.engines.ray.witness import witness

STARTING = 60.0  # seconds for the agents to start the runners
ACTING = 70.0
GIVEN = 10.0  # and for Ray to say which GPUs it takes to be an attempt's
LOOK = 1  # seconds between two looks at why a group waits; Ray takes whole ones


@dataclass
class Attempt:
    id: str
    nodes: int
    python: str
    bundle: Mapping[str, float]
    hosts: list[str] = field(default_factory=list)  # addresses, in the order of the nodes; empty: not placed yet
    released: bool = False  # its group was given back
    order: Mapping[str, Any] | None = None  # the launch; an earlier driver's is not known
    waits: str = ""
    starting: bool = False
    cancelled: bool = False
    pinned: list[str] | None = None  # where it was reserved a second time
    guard: threading.Lock = field(default_factory=threading.Lock)

    def seat(self, node: int) -> str:
        return seat_of(self.id, node, self.nodes)

    def record(self) -> dict[str, Any]:
        kept = ("id", "nodes", "python", "bundle", "hosts", "released")
        return {name: getattr(self, name) for name in kept}


class Attempts:
    """`news` is called with the ids of attempts that are to be looked at."""

    def __init__(self, records: Path, nodes: Nodes, gcs: str, news: Callable[[list[str]], None]) -> None:
        self._records, self._nodes, self._gcs, self._news = records, nodes, gcs, news
        self._lock = threading.RLock()
        self._known: dict[str, Attempt] = {}
        ray.cloudpickle.register_pickle_by_value(holder)
        self._said: dict[str, Any] = {}  # of each what was said last
        for path in records.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, TypeError):
                attempt = Attempt(**json.loads(path.read_bytes()))
                self._known[attempt.id] = attempt

    # --- what is asked of us --------------------------------------------------------------------------------------

    def launch(self, order: Mapping[str, Any]) -> None:
        with self._lock:
            attempt = self._known.get(order["attempt"])
            if attempt is None:
                bundle = {order["resource"] or self._slot(order["labels"]): float(order["share"])}
                attempt = Attempt(order["attempt"], order["nodes"], order["python"], bundle)
                self._known[attempt.id] = attempt
            elif attempt.released:
                return
            under_way, attempt.order, attempt.starting = attempt.starting, order, True  # the newest ticket counts
            if under_way:
                return
        threading.Thread(target=self._begin, args=(attempt,), daemon=True).start()

    def poll(self, jobs: Sequence[str]) -> dict[str, Any]:
        meant = [attempt for job in jobs if (attempt := self._known.get(job)) is not None]
        self._nodes.ask({node.id: node for attempt in meant for _, node in self._there(attempt)}.values())
        found = {attempt.id: self._status(attempt) for attempt in meant}
        self._said |= found
        return {job: found.get(job, {"state": "unknown"}) for job in jobs}

    def cancel(self, job: str) -> None:
        if (attempt := self._known.get(job)) is None:
            return
        attempt.cancelled = True
        with attempt.guard:
            self._act("cancel", attempt)
            self._release(attempt)
            if not attempt.hosts:
                self._known.pop(job, None)

    def salvage(self, job: str) -> None:
        if (attempt := self._known.get(job)) is not None:
            self._act("salvage", attempt)

    def forget(self, job: str) -> None:
        attempt = self._known.get(job)
        if attempt is None:
            groups.remove(job)  # of an earlier driver, which did not live to place it
            return
        attempt.cancelled = True
        with attempt.guard:
            self._release(attempt)
            self._act("forget", attempt)
            (self._records / f"{job}.json").unlink(missing_ok=True)
            self._known.pop(job, None)
            self._said.pop(job, None)

    # --- by ourselves ---------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """A node or a seat is something else than it was."""
        news = []
        for attempt in list(self._known.values()):
            status = self._status(attempt)
            if attempt.hosts and not attempt.released and set(status["nodes"]) <= {"ended"}:
                try:
                    self._release(attempt)
                except Exception as error:  # the next change tries it again
                    print(f"{attempt.id} can't be released: {_first_line(error)}", file=sys.stderr, flush=True)
            if status != self._said.get(attempt.id):
                self._said[attempt.id] = status
                news.append(attempt.id)
        if news:
            self._news(news)
        self._let_drained_nodes_go()

    def reserve_again(self) -> None:
        """A new head knows of no reservation, and after a node's death Ray moves what was on it: neither is so."""
        held = [attempt for attempt in list(self._known.values()) if attempt.hosts and not attempt.released]
        if not held:
            return
        reserved = groups.reserved()
        for attempt in held:
            if attempt.guard.acquire(blocking=False):  # else it is being ended: the next time
                try:
                    self._reserve_again(attempt, reserved.get(attempt.id))
                except Exception as error:  # its own trouble: a head that is away has been noticed just before
                    print(f"{attempt.id} can't be reserved again: {_first_line(error)}", file=sys.stderr, flush=True)
                finally:
                    attempt.guard.release()

    def _reserve_again(self, attempt: Attempt, reserved: Sequence[str] | None) -> None:
        there = dict(self._there(attempt))
        if attempt.starting or attempt.released or any(self._nodes.said(node) is None for node in there.values()):
            return  # nobody knows yet
        if len(there) == attempt.nodes and reserved == [node.id for node in there.values()]:
            return
        lives = [node for number, node in there.items() if self._state(attempt, number) in (*LIVES, "dead")]
        stay = [node.address for node in lives if node.leaves_at is None]
        if reserved is not None and attempt.pinned == stay:
            return
        groups.remove(attempt.id)
        if stay:
            groups.pin(attempt.id, stay, attempt.bundle)
        attempt.pinned = stay

    # --- a launch -------------------------------------------------------------------------------------------------

    def _begin(self, attempt: Attempt) -> None:
        try:
            while not attempt.cancelled:
                try:
                    if not (attempt.hosts or self._place(attempt)):
                        continue
                except Exception as error:  # of its own kinds, and of none: what was removed meanwhile is one
                    self._wait_for(attempt, f"Ray does not take it: {_first_line(error)}")
                    time.sleep(LOOK)
                    continue
                with attempt.guard:
                    if attempt.cancelled or not self._is_held(attempt):
                        break
                time.sleep(LOOK)
        except Exception as error:  # nothing was started: whoever asks hears that nothing is known of it
            print(f"{attempt.id}: {error!r}", file=sys.stderr, flush=True)
        finally:
            attempt.starting = False
            self.changed()

    def _place(self, attempt: Attempt) -> bool:
        order = attempt.order
        assert order is not None
        avoid = {node.id for node in self._nodes.all() if node.address in order["avoid"]}
        group = groups.find(attempt.id) or groups.make(
            attempt.id, attempt.nodes, attempt.bundle, labels=order["labels"], avoid=avoid
        )
        if attempt.cancelled:
            groups.remove(attempt.id)
            return False
        if not group.wait(LOOK):
            there = self._nodes.matching(order["labels"])
            self._wait_for(attempt, groups.why_it_waits(group, attempt.nodes, attempt.bundle, there))
            return False
        found = [self._nodes.with_id(node) for node in groups.places(group)]
        if not all(found):
            self._nodes.look()  # one that has come this moment
            return False
        with attempt.guard:
            attempt.hosts = [node.address for node in found if node is not None]
            self._write(attempt)
        return True

    def _is_held(self, attempt: Attempt) -> bool:
        """Start it. True: GPUs that Ray gives it are in use by others, who were there before Ray's node was."""
        held, started = self._start(attempt)
        if not held:
            return False
        if not started:  # its slots are theirs: they are reserved again as soon as it has given them back
            groups.remove(attempt.id)
            attempt.hosts = []
            (self._records / f"{attempt.id}.json").unlink(missing_ok=True)
        self._wait_for(attempt, f"GPUs that Ray would give it are still in use by {' and '.join(held)}")
        return True

    def _start(self, attempt: Attempt) -> tuple[list[str], bool]:
        """Who holds what it needs, and whether it was started on a node."""
        asked = {number: self._start_on(attempt, number) for number, _ in self._there(attempt)}
        held: set[str] = set()
        for number, ref in asked.items():
            try:
                holders = self._started(attempt, number, ref)
                if holders and (spare := self._given_to(holders, attempt, number)):
                    holders = self._started(attempt, number, self._start_on(attempt, number, spare))
                held |= set(holders)
            except RayError as error:
                print(f"{attempt.id}: {_first_line(error)}", file=sys.stderr, flush=True)
        begun = any(self._state(attempt, number) not in ("unknown", "pending") for number in asked)
        return sorted(held), begun

    def _start_on(self, attempt: Attempt, number: int, spare: Sequence[str] = ()) -> Any:
        order, address = attempt.order, attempt.hosts[number]
        node = self._nodes.at(address)
        if order is None or node is None:
            raise RuntimeError(f"{address} has gone")
        ticket = {
            **order["ticket"],
            "host": address,
            "address": address,
            "witness": witness(attempt.python, self._gcs, address),
        }
        devices = holder.devices_of(attempt.id, number, attempt.bundle, node)
        return self._nodes.agent(node).start.remote(
            attempt.seat(number), number, attempt.python, order["boot"], ticket, devices, spare
        )

    def _started(self, attempt: Attempt, number: int, ref: Any) -> list[str]:
        """What the agent saw after it is taken at once: an older look would say that nothing is known of it."""
        holders, look = ray.get(ref, timeout=STARTING)
        if (node := self._nodes.at(attempt.hosts[number])) is not None:
            self._nodes.heard(node, look)
        return list(holders)

    def _given_to(self, holders: Sequence[str], attempt: Attempt, number: int) -> list[str]:
        """The GPUs of that node that Ray takes to be theirs: after its raylet was started again, these are not the ones
        that they use."""
        address, found = attempt.hosts[number], list[str]()
        node = self._nodes.at(address)
        for other in list(self._known.values()):
            for each, host in enumerate(other.hosts):
                if node is None or host != address or other.seat(each) not in holders:
                    continue
                index = other.pinned.index(host) if other.pinned and host in other.pinned else each
                with contextlib.suppress(RayError):
                    given = holder.devices_of(other.id, each, other.bundle, node, index=index, wait=GIVEN)
                    found += given.split(",") if given not in (None, ALL) else []
        return found

    def _wait_for(self, attempt: Attempt, words: str) -> None:
        if words != attempt.waits:
            attempt.waits = words
            self.changed()

    def _slot(self, labels: Mapping[str, str]) -> str:
        return "GPU" if any(node.resources.get("GPU") for node in self._nodes.matching(labels)) else "CPU"

    # --- how it is ------------------------------------------------------------------------------------------------

    def _there(self, attempt: Attempt) -> list[tuple[int, Node]]:
        """Those of its nodes that are in the cluster, by their number."""
        found = ((number, self._nodes.at(address)) for number, address in enumerate(attempt.hosts))
        return [(number, node) for number, node in found if node is not None]

    def _state(self, attempt: Attempt, number: int) -> str:
        node = self._nodes.at(attempt.hosts[number])
        if node is None:
            return "lost"
        said = self._nodes.said(node)
        if said is None:
            return "running"  # nobody has looked yet: what is not known to have ended may live
        state = said.get(attempt.seat(number), "unknown")
        return "pending" if state == "unknown" and attempt.starting else state

    def _status(self, attempt: Attempt) -> dict[str, Any]:
        if not attempt.hosts:
            if attempt.starting:
                return {"state": "pending", "text": attempt.waits, "nodes": []}
            return {"state": "unknown", "nodes": []}
        nodes = [self._state(attempt, number) for number in range(attempt.nodes)]
        order = ("running", "pending", "dead", "lost", "unknown", "ended")
        status: dict[str, Any] = {"state": min(nodes, key=order.index), "nodes": nodes, "text": ""}
        if lost := [attempt.hosts[number] for number, state in enumerate(nodes) if state == "lost"]:
            status["text"] = f"node {' and '.join(lost)} is not in the Ray cluster any more"
        ends = [
            (node.leaves_at, node.address)
            for number, node in self._there(attempt)
            if node.leaves_at is not None and nodes[number] in ("running", "pending")
        ]
        if ends:
            at, address = min(ends)
            status |= {"leaves_at": at, "why": f"Ray drains node {address}"}
        return status

    # --- small things ---------------------------------------------------------------------------------------------

    def _act(self, what: str, attempt: Attempt) -> None:
        """On all of its nodes that are there; raises when one could not do it."""
        refs = [
            self._nodes.agent(node).act.remote(what, attempt.seat(number), attempt.python)
            for number, node in self._there(attempt)
        ]
        ray.get(refs, timeout=ACTING)
        if refs:
            self._nodes.ask(node for _, node in self._there(attempt))

    def _release(self, attempt: Attempt) -> None:
        groups.remove(attempt.id)
        attempt.released = True
        if attempt.hosts:
            self._write(attempt)

    def _let_drained_nodes_go(self) -> None:
        for node in self._nodes.all():
            if node.leaves_at is not None and not self._is_used(node):
                self._nodes.let_go(node)

    def _is_used(self, node: Node) -> bool:
        """By us, or by another server."""
        if set(LIVES) & set((self._nodes.said(node) or {}).values()):
            return True
        return any(
            address == node.address and self._state(attempt, number) in ("pending", "dead")
            for attempt in list(self._known.values())
            for number, address in enumerate(attempt.hosts)
        )

    def _write(self, attempt: Attempt) -> None:
        path = self._records / f"{attempt.id}.json"
        making = path.with_suffix(f".{threading.get_ident()}")
        with open(making, "w") as file:
            json.dump(attempt.record(), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(making, path)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]
