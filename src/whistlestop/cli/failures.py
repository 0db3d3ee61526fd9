"""What went wrong, in words for people or as JSON for scripts, and the exit code. Never a traceback."""

import json
import sys
from pathlib import Path
from typing import Any

from whistlestop.cli.words import with_times
from whistlestop.domain.errors import (
    BadRequest,
    Problem,
    ServerUnreachable,
    SpecInvalid,
    WhistleError,
)

REFUSED, USAGE, UNREACHABLE = 1, 2, 3


class Usage(Exception):
    """The command was not used as it is meant; exit code 2."""

    def __init__(self, text: str, *, hint: str | None = None) -> None:
        super().__init__(text)
        self.text, self.hint = text, hint


class InFile(Exception):
    """A spec's mistakes, with the name of the file they are in."""

    def __init__(self, file: str, error: SpecInvalid) -> None:
        super().__init__(str(error))
        self.file, self.error = file, error


def report(error: Exception, *, as_json: bool) -> int:
    """Say it on stderr. Return the exit code."""
    file = None
    if isinstance(error, InFile):
        file, error = error.file, error.error
    code, text, hint, problems, exit_code = _parts(error)
    if as_json:
        items = [{"path": p.path, "text": p.text, "line": p.line, "hint": p.hint} for p in problems]
        print(json.dumps({"error": {"code": code, "text": text, "hint": hint, "problems": items}}), file=sys.stderr)
        return exit_code
    for problem in problems:
        print(problem_line(problem, file), file=sys.stderr)
    if text and (len(problems) != 1 or not file):
        print(f"whistle: {printable(with_times(text))}", file=sys.stderr)
    if hint:
        print(f"  {printable(with_times(hint))}", file=sys.stderr)
    return exit_code


def problem_line(problem: Problem, file: str | None) -> str:
    """whistle.yaml:12: phases.0.slot: unknown key (did you mean "slots"?)"""
    line = f":{problem.line}" if problem.line is not None else ""
    place = f"{file or 'spec'}{line}: " if file or line else ""
    where = place + (f"{problem.path}: " if problem.path else "")
    return printable(where + problem.text + (f" ({problem.hint})" if problem.hint else ""))


def printable(text: str) -> str:
    """Names and notes come from other people: nothing in them may steer the terminal."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in text)


def _parts(error: Exception) -> tuple[str, str, str | None, tuple[Problem, ...], int]:
    if isinstance(error, WhistleError):
        exit_code = UNREACHABLE if isinstance(error, ServerUnreachable) else REFUSED
        return error.code, error.text, error.hint, error.problems, exit_code
    if isinstance(error, Usage):
        return "usage", error.text, error.hint, (), USAGE
    if hasattr(error, "format_message"):  # typer's own: a wrong option, a missing argument
        return _typer_parts(error)
    if type(error).__name__ == "ValidationError":  # an argument that no server would take
        return BadRequest.code, _validation_text(error), None, (), REFUSED
    if type(error).__name__ == "Abort":
        return "aborted", "Nothing was done.", None, (), REFUSED
    if isinstance(error, OSError):
        where = f"{Path(error.filename).name}: " if isinstance(error.filename, str) else ""
        return "os_error", f"{where}{error.strerror or error}", None, (), REFUSED
    return (
        "bug",
        f"This is a mistake in Whistlestop: {type(error).__name__}: {error}",
        "please report it, with the command that you gave",
        (),
        REFUSED,
    )


def _typer_parts(error: Any) -> tuple[str, str, str | None, tuple[Problem, ...], int]:
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message())
        return "usage", "", None, (), USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "whistle"
    return "usage", str(error.format_message()), f"see: {path} --help", (), USAGE


def _validation_text(error: Any) -> str:
    items = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:5]]
    return "; ".join(items)
