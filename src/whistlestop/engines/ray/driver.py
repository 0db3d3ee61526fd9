"""Ray's driver, in a process of its own: it may die with its cluster, and is started again; the server may not.

    python -m whistlestop.engines.ray.driver ADDRESS DIRECTORY RECORDS WARM

Reads questions from its input, a JSON object per line, and answers on its output; it also says there what has changed,
and that it can't reach the cluster. It ends with its input: all that matters is detached, and found again by name. It
needs the standard library and Ray, in the cluster's own version.
"""

import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

LOOK = 1.0  # seconds between two looks at the nodes
RESERVE, RARELY = 2.0, 30.0  # seconds between two looks at what is reserved, after nodes have come or gone and later
UNREST = 30.0
KNOCK = 0.5  # seconds between two tries to reach the head
DEAF = 3  # looks that may fail one after the other before everything is begun anew
CONNECTING = 15.0  # seconds for which a question waits for the cluster
AT_ONCE = 32
ON_NODES = ("cancel", "salvage", "forget")


class Driver:
    def __init__(self, address: str, directory: str, records: Path, warm: float, answers: TextIO) -> None:
        self._address, self._directory, self._records, self._warm = address, directory, records, warm
        self._answers, self._saying = answers, threading.Lock()
        self._up = threading.Event()
        self._down = ""  # why it is not, in words
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._acting: dict[tuple[str, str], list[int]] = {}  # what is done on nodes -> the questions that wait for it

    def run(self) -> None:
        threading.Thread(target=self._connect_and_look, daemon=True).start()
        for line in sys.stdin:
            asked = json.loads(line)
            if asked["do"] in ON_NODES:
                self._act(asked)
            else:
                self._pool.submit(self._answer, asked)

    # --- questions ------------------------------------------------------------------------------------------------

    def _act(self, asked: Mapping[str, Any]) -> None:
        """A node that does not answer takes its time: in a thread of its own, so that nobody else waits for it, and
        once, however often it is asked for."""
        key = (asked["do"], asked["job"])
        with self._saying:
            under_way = key in self._acting
            self._acting.setdefault(key, []).append(asked["id"])
        if not under_way:
            threading.Thread(target=self._answer_all, args=(key, asked), daemon=True).start()

    def _answer_all(self, key: tuple[str, str], asked: Mapping[str, Any]) -> None:
        said = self._answer_to(asked)
        with self._saying:
            waiting = self._acting.pop(key)
        for number in waiting:
            self._say({"id": number, **said})

    def _answer(self, asked: Mapping[str, Any]) -> None:
        self._say({"id": asked["id"], **self._answer_to(asked)})

    def _answer_to(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        try:
            end = time.monotonic() + CONNECTING
            while not self._up.wait(0.05):
                if self._down or time.monotonic() > end:
                    return {"error": self._down or f"Ray at {self._address} does not answer"}
            return {"answer": self._do(asked["do"], asked)}
        except Exception as error:
            traceback.print_exc()
            return {"error": f"Ray: {' '.join(str(error).split())[:500] or type(error).__name__}"}

    def _do(self, what: str, asked: Mapping[str, Any]) -> Any:
        match what:
            case "launch":
                return self._attempts.launch(asked["order"])
            case "poll":
                return self._attempts.poll(asked["jobs"])
            case "cancel":
                return self._attempts.cancel(asked["job"])
            case "salvage":
                return self._attempts.salvage(asked["job"])
            case "forget":
                return self._attempts.forget(asked["job"])
            case "cluster":
                return self._cluster(asked["labels"])
            case "offers":
                return self._offers(asked["resource"], asked["labels"])
        raise ValueError(f"{what} is not known here")

    def _cluster(self, labels: Mapping[str, str]) -> dict[str, Any]:
        there = [node for node in self._nodes.matching(labels) if node.has_slots]
        stay = sum(node.leaves_at is None for node in there)
        return {"version": self._version, "nodes": stay, "leaving": len(there) - stay}

    def _offers(self, resource: str, labels: Mapping[str, str]) -> int:
        """Slots that there are, on nodes that stay."""
        stay = [node for node in self._nodes.matching(labels) if node.leaves_at is None]
        if not resource:
            resource = "GPU" if any(node.resources.get("GPU") for node in stay) else "CPU"
        return int(sum(node.resources.get(resource, 0) for node in stay))

    def _say(self, said: Mapping[str, Any]) -> None:
        with self._saying:
            print(json.dumps(said), file=self._answers, flush=True)

    # --- the cluster ----------------------------------------------------------------------------------------------

    def _connect_and_look(self) -> None:
        try:
            self._connect()
        except BaseException as error:
            traceback.print_exc()
            self._is_down(words_of(error, self._address))
            os._exit(1)
        failed, reserved_at = 0, 0.0
        while True:
            try:
                self._nodes.look()
                now = time.monotonic()
                often = now - self._nodes.changed_at < UNREST
                if now - reserved_at > (RESERVE if often else RARELY):
                    self._attempts.reserve_again()
                    reserved_at = now
                failed = 0
            except Exception:
                traceback.print_exc()
                failed += 1
            if failed >= DEAF:
                self._begin_anew()
            time.sleep(LOOK)

    def _knock(self) -> None:
        """Beside the looks: Ray itself waits for a minute for a head that is gone."""
        missed = 0
        while missed < DEAF:
            time.sleep(KNOCK)
            missed = 0 if self._reachable() else missed + 1
        self._begin_anew()

    def _begin_anew(self) -> None:
        """A head that was started again knows neither us nor what we had there."""
        self._is_down(f"Ray's head at {self._address} has gone away; what runs on its nodes runs on")
        os._exit(1)

    def _connect(self) -> None:
        try:
            import ray
        except ImportError:
            raise RuntimeError(
                f"ray is not installed in {sys.executable}: pip install 'whistlestop[ray]' there, in the cluster's "
                "version, or name another interpreter of this machine with `driver` in the pool's settings"
            ) from None
        while not self._reachable():
            self._is_down(f"nobody answers at {self._address}: is Ray's head running there? (ray start --head)")
            time.sleep(KNOCK)
        ray.init(address=self._address, namespace="whistlestop", log_to_driver=False, configure_logging=False)
        from whistlestop.engines.ray.attempts import Attempts
        from whistlestop.engines.ray.nodes import Nodes

        self._nodes = Nodes(self._directory, self._warm, lambda: self._attempts.changed())
        self._version = str(ray.__version__)
        gcs = ray.get_runtime_context().gcs_address
        self._attempts = Attempts(self._records, self._nodes, gcs, lambda jobs: self._say({"news": jobs}))
        self._nodes.look()
        threading.Thread(target=self._nodes.run, daemon=True).start()
        threading.Thread(target=self._knock, daemon=True).start()
        self._down = ""
        self._up.set()
        self._say({"up": self._version})

    def _reachable(self) -> bool:
        host, _, port = self._address.rpartition("//")[2].rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except OSError:
            return False
        return True

    def _is_down(self, words: str) -> None:
        if words != self._down:
            self._down = words
            self._say({"down": words})


def words_of(error: BaseException, address: str) -> str:
    """What kept us from the cluster, and what can be done about it."""
    text = " ".join(str(error).split())
    if "is not installed" in text:
        return text
    if "ersion mismatch" in text:
        return f"the Ray cluster at {address} is of another version: {text[:400]}. Name an interpreter with the same \
version of Python and Ray with `driver` in the pool's settings"
    if "node_ip_address" in text or "raylet" in text.lower():
        return f"this machine is no node of the Ray cluster at {address}: run `ray start --address={address} \
--num-cpus=0` here ({text[:200]})"
    return f"Ray at {address}: {text[:500] or type(error).__name__}"


def main() -> None:
    # What Ray and others print goes to the log: the output is for answers alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    address, directory, records, warm = sys.argv[1:]
    Driver(address, directory, Path(records), float(warm), answers).run()
    os._exit(0)


if __name__ == "__main__":
    main()
