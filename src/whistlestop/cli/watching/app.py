"""The page in a terminal of its own, from its first frame to the screen that it leaves behind."""

from textual.app import App

from whistlestop.cli.watching.feed import Feed
from whistlestop.cli.watching.known import Known
from whistlestop.cli.watching.page import Page
from whistlestop.cli.watching.style import CSS, DARK, LIGHT, looks_dark, name_of
from whistlestop.client.client import Client
from whistlestop.wire.api import RunView


class WatchApp(App[RunView]):
    """Returns the run when it has ended, and None when it was left."""

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    TITLE = "whistle watch"

    def __init__(self, client: Client, run: RunView, *, stay: bool = False) -> None:
        super().__init__()
        self.client, self.known, self.stay = client, Known(run), stay
        self.failure: Exception | None = None
        self.feed = Feed(client, run.id)
        for palette in (DARK, LIGHT):
            self.register_theme(palette.theme())
        self.palette = DARK if looks_dark() else LIGHT
        self.theme = name_of(dark=self.palette.dark)

    def on_mount(self) -> None:
        self.push_screen(Page(self.client, self.known, self.feed, self.palette, stay=self.stay))
        self.feed.start()

    def on_unmount(self) -> None:
        self.feed.stop()

    def fail(self, error: Exception) -> None:
        self.failure = error
        self.exit(None)


def watch_page(client: Client, run: RunView, *, stay: bool = False) -> RunView | None:
    """Until the run has ended, or somebody leaves (None). The thread that calls must be the main one."""
    app = WatchApp(client, run, stay=stay)
    left = app.run()
    if app.failure is not None:
        raise app.failure
    return left
