"""`whistle check`: is this spec right? Needs no server."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, Sets, command

app = command()


@app.command()
def check(
    file: Annotated[str, typer.Argument(help="The spec; - is standard input.")] = "whistle.yaml",
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Judge a spec as a whole: every mistake at once, with its line and the nearest valid word."""
    from whistlestop.cli.output import say
    from whistlestop.cli.spec_reading import judge, read_spec, shown

    text = read_spec(file)
    if as_json:
        _check_json(text, sets or [])
        return
    spec = judge(text, sets or [], file)
    phases = ", ".join(f"{phase.name} ({phase.kind.value})" for phase in spec.phases)
    say(f"{shown(file)} is right: {spec.name}, {len(spec.phases)} phase{'s' if len(spec.phases) > 1 else ''}: {phases}")


def _check_json(text: str, sets: list[str]) -> None:
    from whistlestop.cli.output import print_json
    from whistlestop.domain.errors import SpecInvalid
    from whistlestop.wire.api import Checked, ProblemItem
    from whistlestop.wire.spec_file import parse_spec

    try:
        spec = parse_spec(text, sets)
    except SpecInvalid as error:
        problems = [ProblemItem(path=p.path, text=p.text, line=p.line, hint=p.hint) for p in error.problems]
        print_json(Checked(ok=False, problems=problems))
        raise typer.Exit(1) from error
    print_json(Checked(ok=True, name=spec.name, phases=[phase.name for phase in spec.phases]))
