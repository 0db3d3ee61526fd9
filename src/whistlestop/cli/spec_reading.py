"""The file that a person names, read and judged before anything is sent."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whistlestop.cli.failures import InFile, Usage
from whistlestop.domain.errors import SpecInvalid

if TYPE_CHECKING:
    from whistlestop.wire.spec import Spec

DEFAULT = "whistle.yaml"


def read_spec(file: str) -> str:
    """`-` is standard input."""
    from whistlestop.wire.yaml_text import MAX_BYTES

    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        hint = "name the file, or run one command with: whistle run -- COMMAND" if file == DEFAULT else None
        raise Usage(f"There is no file {file} here.", hint=hint) from error
    except OSError as error:
        raise Usage(f"{file} can't be read: {error.strerror}.") from error
    return data.decode("utf-8", "replace")


def judge(text: str, sets: Sequence[str], file: str) -> "Spec":
    from whistlestop.wire.spec_file import parse_spec

    try:
        return parse_spec(text, sets)
    except SpecInvalid as error:
        raise InFile(shown(file), error) from error


def shown(file: str) -> str:
    return "<stdin>" if file == "-" else file
