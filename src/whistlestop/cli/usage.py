"""`whistle usage`: where the credits went, and what projects may spend."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, connect

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Show where the credits went, or give a project a budget.",
    invoke_without_command=True,
)
BY = ("project", "workflow", "run", "pool", "day", "market", "kind")


@app.callback()
def usage(
    context: typer.Context,
    by: Annotated[str, typer.Option(help=f"{', '.join(BY[:-1])} or {BY[-1]}.")] = "project",
    project: Annotated[str | None, typer.Option(help="Only of this project.")] = None,
    since: Annotated[str, typer.Option(help="7d (ago), 2026-01-31, or all.")] = "30d",
    until: Annotated[str | None, typer.Option(help="As since. [default: now]")] = None,
    limit: Annotated[int, typer.Option(help="The dearest so many.", min=1, max=1000)] = 20,
    as_json: Json = False,
) -> None:
    if context.invoked_subcommand is not None:
        return
    from whistlestop.cli.failures import Usage
    from whistlestop.cli.output import print_json
    from whistlestop.cli.usage_view import show_usage
    from whistlestop.wire.mistakes import nearest

    if by not in BY:
        raise Usage(f"{by!r} is nothing to sum up by.", hint=nearest(by, BY) or f"one of: {', '.join(BY)}")
    with connect() as client:
        found = client.usage(by, project=project, since=since, until=until, limit=limit)  # type: ignore[arg-type]
    if as_json:
        print_json(found)
    else:
        show_usage(found)


@app.command("budget")
def budget(
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="The project.")],
    credits: Annotated[str, typer.Argument(metavar="CREDITS", help="What it may spend in all, or none: no limit.")],
    restart: Annotated[
        bool, typer.Option("--restart", help="Count from now on. [default: from when it was first given]")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what a project may spend. Runs that it can't pay for are refused; what runs leaves in time."""
    from whistlestop.cli.failures import Usage
    from whistlestop.cli.output import print_json, say
    from whistlestop.cli.usage_view import budget_line

    if credits == "none":
        with connect() as client:
            client.remove_budget(project)
        if as_json:
            print_json({"project": project, "removed": True})
        else:
            say(f"Project {project} may spend what it likes.")
        return
    try:
        amount = float(credits)
    except ValueError:
        raise Usage(f"{credits!r} is not a number of credits.", hint="whistle usage budget PROJECT 100") from None
    if not 0 <= amount <= 1e12:
        raise Usage(f"A budget of {credits} makes no sense.", hint="give 0 or more, or none")
    with connect() as client:
        made = client.set_budget(project, amount, restart=restart)
    if as_json:
        print_json(made)
    else:
        say(budget_line(made))
