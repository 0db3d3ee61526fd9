"""A part of the page that can have the focus: tab goes from one to the next."""

from textual.widget import Widget


class Pane(Widget, can_focus=True):
    """With a hairline around it, in the accent's colour while it has the focus."""

    def __init__(self, title: str, *, id: str) -> None:
        super().__init__(id=id, classes="pane")
        self.border_title = title
