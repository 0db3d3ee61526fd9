"""Standard output: one JSON value for scripts, or calm text and tables for people."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from whistlestop.cli.failures import printable

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console, RenderableType
    from rich.table import Table

WORDY = ("note", "why", "waits for", "standing", "where", "told of", "what")
PIPE_WIDTH = 160  # without a terminal nothing is cut to fit


def print_json(value: "BaseModel | Sequence[BaseModel] | dict[str, Any]") -> None:
    plain: Any
    if isinstance(value, dict):
        plain = value
    elif isinstance(value, Sequence):
        plain = [item.model_dump(mode="json") for item in value]
    else:
        plain = value.model_dump(mode="json")
    print(json.dumps(plain, indent=2 if sys.stdout.isatty() else None))


def say(text: str) -> None:
    print(printable(text))


def aside(text: str) -> None:
    """To the person at the terminal, beside the output."""
    print(printable(text), file=sys.stderr)


def console() -> "Console":
    from rich.console import Console

    width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS") or PIPE_WIDTH)
    # No markup, no highlighting: names and notes are other people's text.
    return Console(markup=False, highlight=False, emoji=False, width=width)


def show(*parts: "RenderableType") -> None:
    for part in parts:
        console().print(part)


def table(*columns: str, right: Iterable[str] = ()) -> "Table":
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=column not in WORDY,  # those give way first when the terminal is narrow
            overflow="fold" if column in WORDY else "ellipsis",
        )
    return made
