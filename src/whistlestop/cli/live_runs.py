"""`whistle ls -w`: the list of runs, kept true by the server's stream until somebody leaves."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.text import Text

from whistlestop.cli import words
from whistlestop.cli.runs_table import runs_table
from whistlestop.client.client import Client
from whistlestop.domain.errors import ServerUnreachable
from whistlestop.wire.api import ProgressView, RunPage, RunView

PACE = 0.5  # seconds between two questions for the list, whatever happens
TICK = 0.25
HEADER, BELOW = 2, 2  # lines of the screen beside the rows


@dataclass(frozen=True)
class Wanted:
    """Which runs; the same words as `GET /runs`."""

    status: tuple[str, ...] = ()
    project: str | None = None
    search: str | None = None
    sort: str | None = None
    limit: int = 50

    def page(self, client: Client) -> RunPage:
        return client.runs(
            status=self.status, project=self.project, search=self.search, sort=self.sort, limit=min(500, self.limit)
        )

    def fits(self, run: RunView) -> bool:
        text = f"{run.name}\n{run.note}".casefold()
        return (
            (not self.status or run.status in self.status)
            and self.project in (None, run.project)
            and (self.search is None or self.search.casefold() in text)
        )


def watch_table(client: Client, wanted: Wanted) -> None:
    """Until Ctrl-C. The table stays where it is on the screen; the last one stays behind."""
    from rich.live import Live

    from whistlestop.cli.output import console

    page = wanted.page(client)
    rows = Rows(page.runs, page.total)
    listener = Listener(client, page.cursor)
    listener.start()
    screen = console()

    def view() -> RenderableType:
        return rows.view(screen.size.height)

    with suppress(KeyboardInterrupt), Live(console=screen, get_renderable=view, refresh_per_second=4, screen=False):
        while True:
            listener.heard.wait(TICK)
            rows.lost_at = listener.lost_at
            if listener.failure is not None:
                break
            rows.take_progress(listener.progress())
            if listener.changed():
                with suppress(ServerUnreachable):  # the stream says so
                    page = wanted.page(client)
                    rows.take(page.runs, page.total)
                time.sleep(PACE)
    listener.stop()
    if listener.failure is not None:
        raise listener.failure


def print_changes(client: Client, wanted: Wanted) -> None:
    """One object per line: first the runs that match, then each as often as it changes. Until Ctrl-C."""
    page = wanted.page(client)
    shown: set[str] = set()
    with suppress(KeyboardInterrupt):
        for run in page.runs:
            _print(run.model_dump(mode="json"))
            shown.add(run.id)
        for message in client.stream_rows(last_id=page.cursor, give_up_after=math.inf):
            if message.kind == "gone" and message.data["run"] in shown:
                shown.discard(message.data["run"])
                _print({"id": message.data["run"], "deleted": True})
            elif message.kind == "run":
                run = RunView.model_validate(message.data, extra="ignore")
                # A run that fits no longer is told once more: that is a change, too.
                if wanted.fits(run) or run.id in shown:
                    _print(run.model_dump(mode="json"))
                    (shown.add if wanted.fits(run) else shown.discard)(run.id)


def _print(value: dict[str, object]) -> None:
    print(json.dumps(value), flush=True)


@dataclass
class Rows:
    runs: list[RunView]
    total: int
    clock: Callable[[], float] = time.monotonic
    lost_at: float | None = None
    _told_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._told_at = self.clock()

    def take(self, runs: list[RunView], total: int) -> None:
        self.runs, self.total, self._told_at = runs, total, self.clock()

    def take_progress(self, told: dict[str, tuple[ProgressView, float | None]]) -> None:
        if told:
            self.runs = [
                run.model_copy(update={"progress": told[run.id][0], "eta_s": told[run.id][1]})
                if run.id in told
                else run
                for run in self.runs
            ]

    def view(self, height: int) -> RenderableType:
        room = max(1, height - HEADER - BELOW)
        now = self.clock() if self.lost_at is None else self.lost_at
        shown = [_ticked(run, now - self._told_at) for run in self.runs[:room]]
        parts: list[RenderableType] = [runs_table(shown) if shown else Text("No run matches.")]
        more = max(self.total, len(self.runs)) - len(shown)
        line = Text("Ctrl-C leaves.", style="dim")
        if more > 0:
            line = Text(f"… and {more:,} more. ", style="dim") + line
        if self.lost_at is not None:
            lost = words.length(self.clock() - self.lost_at)
            line = Text(f"The server has been lost for {lost}; trying again. ", style="yellow") + line
        return Group(*parts, Text(), line)


def _ticked(run: RunView, seconds: float) -> RunView:
    if run.status not in ("starting", "running"):
        return run
    return run.model_copy(update={"elapsed_s": run.elapsed_s + max(0.0, seconds)})


class Listener(threading.Thread):
    """Hears that something has changed; what it is, the list itself says."""

    def __init__(self, client: Client, cursor: str) -> None:
        super().__init__(name="rows", daemon=True)  # it may stand in a read: leaving must not wait for it
        self._client, self._cursor = client, cursor
        self.heard = threading.Event()
        self.lost_at: float | None = None
        self.failure: Exception | None = None
        self._changed = False
        self._progress: dict[str, tuple[ProgressView, float | None]] = {}
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def changed(self) -> bool:
        self.heard.clear()
        changed, self._changed = self._changed, False
        return changed

    def progress(self) -> dict[str, tuple[ProgressView, float | None]]:
        told, self._progress = self._progress, {}
        return told

    def run(self) -> None:
        try:
            for _ in self._messages():
                self.heard.set()
        except Exception as error:
            self.failure = error
            self.heard.set()

    def _messages(self) -> Iterator[None]:
        for message in self._client.stream_rows(
            last_id=self._cursor or None,
            give_up_after=math.inf,
            stopped=self._stopped.is_set,
            on_state=self._state,
        ):
            if message.kind == "progress":
                for item in message.data["runs"]:
                    progress = ProgressView.model_validate(item["progress"], extra="ignore")
                    self._progress = {**self._progress, item["run"]: (progress, item["eta_s"])}
            else:
                self._changed = True
                yield

    def _state(self, stands: bool) -> None:
        self.lost_at = None if stands else time.monotonic()
        self._changed = self._changed or stands
        self.heard.set()
