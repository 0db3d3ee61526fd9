"""The dialogs: a question before every verb, the keys, and the choice of charts. Escape leaves each of them."""

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, SelectionList, Static

from whistlestop.cli.run_view import one_line
from whistlestop.cli.watching import stakes
from whistlestop.cli.watching.style import Palette
from whistlestop.wire.api import MAX_NOTE

Answer = TypeVar("Answer")

HELP = (
    ("s", "stop the chosen phase at its next step: its result is kept, the pipeline goes on"),
    ("p", "pause the run, or resume it: it saves, frees its slots and waits"),
    ("k", "kill the run, now and for good; with a note"),
    ("", ""),
    ("tab", "the next pane; shift+tab the one before"),
    ("↑ ↓", "in the phases: choose one; its charts are shown, and s is about it"),
    ("← →", "in the charts: the ones before, the next ones"),
    ("z", "one large chart, or all again"),
    ("l", "log scale on and off"),
    ("c", "choose which charts are shown"),
    ("/", "search in the log, or in the events if they have the focus; n next, N before"),
    ("G", "to the newest line, and stay there; g to the oldest"),
    ("t", "dark or light"),
    ("q", "leave; the run goes on"),
)


class Dialog(ModalScreen[Answer | None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    def action_leave(self) -> None:
        self.dismiss(None)


class Confirm(Dialog[str]):
    """Answers with the note, or None for no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "app.focus_previous", show=False),
        Binding("right", "app.focus_next", show=False),
    ]

    def __init__(self, verb: str, question: str, facts: Sequence[stakes.Fact], palette: Palette) -> None:
        super().__init__(classes="danger" if verb == "kill" else "")
        self.verb, self.question, self.facts, self.palette = verb, question, list(facts), palette

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Static(Text(self.question, style="bold"))
            yield Static()
            yield Static(stakes.table(self.facts, self.palette))
            if self.verb == "kill":
                yield Input(placeholder="why: a note that stays with the run (optional)", max_length=MAX_NOTE)
            with Horizontal(classes="buttons"):
                yield Button("No", id="no")
                danger = self.verb == "kill"
                yield Button(self.verb.capitalize(), id="yes", variant="error" if danger else "primary")

    def on_mount(self) -> None:
        # A key that is pressed once too often must not kill: there the note comes first.
        self.query_one(Input if self.verb == "kill" else "#yes").focus()

    def on_input_submitted(self) -> None:
        self.query_one("#yes").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        notes = self.query(Input)
        self.dismiss((notes.first().value if notes else "") if event.button.id == "yes" else None)


class Help(Dialog[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,q,enter", "leave", show=False)]

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.palette = palette

    def compose(self) -> ComposeResult:
        made = Table.grid(padding=(0, 3, 0, 0))
        made.add_column(style=f"bold {self.palette.accent}", no_wrap=True)
        made.add_column(overflow="fold")
        for key, says in HELP:
            made.add_row(key, Text(says))
        with VerticalScroll():
            yield Static(Text("Keys", style="bold"))
            yield Static()
            yield Static(made)
            yield Static("esc leaves this page", classes="keys")


class Picker(Dialog[list[str]]):
    """Which charts; none of them means all."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "done", show=False, priority=True)]

    def __init__(self, names: Sequence[str], chosen: Sequence[str] | None) -> None:
        super().__init__()
        self.names, self.chosen = list(names), list(names if chosen is None else chosen)

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Static(Text("Charts", style="bold"))
            options = [(_prompt(name), at, name in self.chosen) for at, name in enumerate(self.names)]
            yield SelectionList[int](*options)
            yield Static("space chooses · a all · n none · enter shows them · esc leaves", classes="keys")

    def key_a(self) -> None:
        self.query_one(SelectionList).select_all()

    def key_n(self) -> None:
        self.query_one(SelectionList).deselect_all()

    def action_done(self) -> None:
        selected = sorted(self.query_one(SelectionList).selected)
        self.dismiss([self.names[at] for at in selected])


def _prompt(name: str) -> Content:
    return Content(one_line(name)[:60])  # not a plain string: that would be read as markup
