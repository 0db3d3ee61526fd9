"""The server's end of Ray's driver: starts it, asks it, hears what it says by itself, starts it again when it dies."""

import contextlib
import itertools
import json
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLong
from pathlib import Path
from typing import Any

from whistlestop.domain.errors import EngineUnreachable

PATIENCE = 30.0  # seconds for an answer
AGAIN = 1.0  # seconds until a driver that died is started again
log = logging.getLogger(__name__)
_LOG_LIMIT = 1 << 20


class DriverProcess:
    """`command` is given the driver's words. It begins with the first question, and lives as long as we do."""

    def __init__(self, command: Sequence[str], *, package: Path, log: Path) -> None:
        self._command, self._package, self._log = command, package, log
        self._heard: list[Callable[[Sequence[str]], None]] = []
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._asked: dict[int, Future[Any]] = {}
        self._process: subprocess.Popen[str] | None = None
        self._begun = self._closed = False
        self._unable = False  # there is no such interpreter
        self._down = ""  # why it can't reach the cluster, in its words
        self._started = threading.Condition(self._lock)

    def hear(self, news: Callable[[Sequence[str]], None]) -> None:
        """Called with the jobs that are to be looked at; none: with all of them."""
        self._heard.append(news)

    def begin(self) -> None:
        with self._lock:
            if not self._begun:
                self._begun = True
                threading.Thread(target=self._keep, name="ray", daemon=True).start()

    def ask(self, do: str, *, patience: float = PATIENCE, **fields: Any) -> Any:
        self.begin()
        answer: Future[Any] = Future()
        with self._lock:
            self._started.wait_for(lambda: self._process is not None or self._closed or self._unable, patience)
            number, process = next(self._numbers), self._process
            if self._closed or process is None or process.stdin is None:
                raise EngineUnreachable(self._words())
            self._asked[number] = answer
            try:
                process.stdin.write(json.dumps({"id": number, "do": do, **fields}) + "\n")
                process.stdin.flush()
            except OSError as error:
                self._asked.pop(number, None)
                raise EngineUnreachable(self._words()) from error
        try:
            return answer.result(patience)
        except TooLong:
            raise EngineUnreachable(f"Ray's driver has not answered for {patience:.0f} s ({do}).") from None
        finally:
            with self._lock:
                self._asked.pop(number, None)

    def close(self) -> None:
        """Its cluster goes on."""
        with self._lock:
            self._closed = True
            process = self._process
            self._started.notify_all()
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()

    def _keep(self) -> None:
        waiting = threading.Event()
        while not self._closed:
            try:
                self._run()
            except OSError as error:
                with self._lock:
                    self._unable, self._down = True, f"{self._command[0]} can't be started: {error}"
                    self._started.notify_all()
            except Exception:  # a loop's top: without it nobody would hear of this cluster any more
                log.exception("what Ray's driver says can't be taken; it is started again")
            self._fail_all()
            waiting.wait(AGAIN)

    def _run(self) -> None:
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            if log.tell() > _LOG_LIMIT:
                log.truncate(0)
            env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WHISTLE_"))}
            process = subprocess.Popen(
                self._command,
                env={**env, "PYTHONPATH": str(self._package)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the server
            )
        with self._lock:
            if self._closed:  # while it was being started
                process.kill()
            self._process, self._unable = process, False
            self._started.notify_all()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                with contextlib.suppress(ValueError):  # one that was cut off by its end
                    self._take(json.loads(line))
        finally:
            with self._lock:
                self._process = None
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()

    def _take(self, said: dict[str, Any]) -> None:
        if "id" in said:
            with self._lock:
                answer = self._asked.pop(said["id"], None)
            if answer is None:
                return
            if "error" in said:
                answer.set_exception(EngineUnreachable(f"{said['error']}."))
            else:
                answer.set_result(said["answer"])
        elif "down" in said:
            self._down = said["down"]
        else:
            self._down = ""
            for news in self._heard:
                news(said.get("news", ()))

    def _fail_all(self) -> None:
        with self._lock:
            left, self._asked = list(self._asked.values()), {}
        for answer in left:
            answer.set_exception(EngineUnreachable(self._words()))

    def _words(self) -> str:
        return f"{self._down}." if self._down else f"Ray's driver has ended; its last words are in {self._log}."
