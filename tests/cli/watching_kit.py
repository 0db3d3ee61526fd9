"""The page with a real server behind it and a person in front of it."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual.events import Key, Resize
from textual.geometry import Size
from textual.message_pump import MessagePump

from whistlestop.cli.watching.app import WatchApp
from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess
from whistlestop.wire.api import RunView

TRAINING = r"""
import time, whistlestop
print("plain first line", flush=True)
print("\x1b[2J\x1b]0;owned\x07[red]not red[/red] [@click=app.quit]x[/] end", flush=True)
print("long " + "x" * 9000, flush=True)
class Model:
    weight = 0.0
    def state_dict(self): return {"weight": self.weight}
    def load_state_dict(self, state): self.weight = state["weight"]
model = Model()
with whistlestop.run() as run:
    run.track(model=model)
    for step in run.steps(total=100_000, per_epoch=5_000):
        model.weight += 1.0
        values = {"loss": 1 / model.weight, "lr": 0.1, "grad_norm": 2.0, "[red]x[/red]": 1.0}
        run.log(**values)
        if int(step) % 200 == 0:
            with run.evaluating():
                run.log(val_loss=2 / model.weight)
        if int(step) % 2000 == 0:
            print(f"step {int(step)}", flush=True)
        time.sleep(0.002)
    run.summary["best [bold]"] = model.weight
"""


class Person:
    """At the keys. Textual's own pilot waits for an idle process before and after each; one that reads a stream has
    few such moments."""

    def __init__(self, app: WatchApp) -> None:
        self._app = app

    async def press(self, *keys: str) -> None:
        for key in keys:
            self._app.post_message(Key(key, key if len(key) == 1 else {"space": " "}.get(key)))
            for part in (self._app, self._app.focused or self._app.screen, self._app.screen):
                await self._handled(part)  # it goes from one to the next

    async def _handled(self, part: MessagePump) -> None:
        done = asyncio.Event()
        if self._app.is_running and part.call_later(done.set):
            await asyncio.wait_for(done.wait(), 30)

    def resize(self, width: int, height: int) -> None:
        size = Size(width, height)
        self._app.post_message(Resize(size, size))

    async def pause(self, seconds: float = 0.05) -> None:
        await asyncio.sleep(seconds)


Story = Callable[[WatchApp, Person], Awaitable[None]]


def training(server: ServerProcess, directory: Path, name: str, *more: dict[str, Any]) -> RunView:
    (directory / "train.py").write_text(TRAINING)
    phase = {"name": "train", "command": f"{sys.executable} train.py"}
    return server.submit(phase, *more, name=name, directory=directory)


def on_page(
    client: Client, run: RunView, story: Story, *, size: tuple[int, int] = (130, 44), stay: bool = False
) -> WatchApp:
    """The page, for as long as the story takes. It ends the page itself, or leaves it open."""

    async def play() -> WatchApp:
        app = WatchApp(client, client.run(run.id), stay=stay)
        async with app.run_test(size=size, notifications=True):
            await story(app, Person(app))
        return app

    return asyncio.run(play())


def shown(app: WatchApp) -> str:
    """What stands on the screen."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def sees(app: WatchApp, person: Person, *texts: str, within: float = 60) -> str:
    return await becomes(app, person, lambda: all(text in shown(app) for text in texts), texts, within=within)


async def becomes(
    app: WatchApp, person: Person, condition: Callable[[], bool], what: object, *, within: float = 60
) -> str:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}\n{shown(app)}"
        assert app.failure is None, app.failure
        await person.pause()
    return shown(app)
