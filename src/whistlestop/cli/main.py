"""`whistle`: finds the command, loads its module alone, and turns every error into words and an exit code."""

import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

from whistlestop.cli import failures

COMMANDS = {
    "up": "up",
    "open": "open_page",
    "submit": "submit",
    "run": "run",
    "check": "check",
    "simulate": "simulate",
    "ls": "ls",
    "show": "show",
    "advise": "advise",
    "watch": "watch",
    "logs": "logs",
    "events": "events",
    "metrics": "metrics",
    "stacks": "stacks",
    "save": "save",
    "extend": "extend",
    "set": "set_params",
    "stop": "stop",
    "pause": "pause",
    "resume": "resume",
    "kill": "kill",
    "cancel": "cancel",
    "preempt": "preempt",
    "drill": "drill",
    "delete": "delete",
    "continue": "continue_run",
    "rerun": "rerun",
    "note": "note",
    "checkpoints": "checkpoints",
    "workflow": "workflow",
    "queue": "queue",
    "pools": "pools",
    "hosts": "hosts",
    "usage": "usage",
    "alerts": "alerts",
    "token": "token",
    "secret": "secret",
    "doctor": "doctor",
    "version": "version",
}


class LazyGroup(TyperGroup):
    """Imports a command's module when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, module in COMMANDS.items() if find_spec(f"whistlestop.cli.{module}")]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        module = COMMANDS.get(cmd_name)
        if module is None or not find_spec(f"whistlestop.cli.{module}"):
            return None
        command = typer.main.get_command(import_module(f"whistlestop.cli.{module}").app)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: it starts sooner, and [default: …] is not taken for markup
    help="Whistlestop: start, watch, stop, pause, resume, kill and finish ML training runs.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def whistle() -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    gc.set_threshold(50_000)  # a tenth of the time of a short command goes into collecting nothing
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    sys.exit(_run(words, as_json))


def _run(words: list[str], as_json: bool) -> int:
    try:
        code = app(args=words, prog_name="whistle", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has seen enough. What is left must not raise again when Python ends.
        sys.stdout = None
        return 0
    except KeyboardInterrupt:
        return 130
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1
    except Exception as error:
        return failures.report(error, as_json=as_json)
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
