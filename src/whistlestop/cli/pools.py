"""`whistle pools`: capacity and what it costs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from whistlestop.cli.options import Json, connect

if TYPE_CHECKING:
    from whistlestop.wire.api import PoolView

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="List the pools, or change one.", invoke_without_command=True
)


@app.callback()
def pools(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        _list(as_json)


@app.command("ls")
def ls(as_json: Json = False) -> None:
    """List the pools."""
    _list(as_json)


@app.command("set")
def change(
    name: Annotated[str, typer.Argument(help="The pool.")],
    price: Annotated[float | None, typer.Option(help="Credits per slot-hour.", min=0)] = None,
    slots: Annotated[int | None, typer.Option(help="How many slots it has.", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Change the price or the size of a pool."""
    from whistlestop.cli.failures import Usage
    from whistlestop.cli.output import print_json, say

    if price is None and slots is None:
        raise Usage("Nothing to change.", hint="give --price or --slots")
    with connect() as client:
        pool = client.set_pool(name, price=price, slots=slots)
    if as_json:
        print_json(pool)
    else:
        say(f"Pool {pool.name}: {pool.slots} slots at {pool.price:g} credits per slot-hour.")


def _list(as_json: bool) -> None:
    from whistlestop.cli.output import print_json

    with connect() as client:
        found = client.pools()
    if as_json:
        print_json(found)
    else:
        _show(found)


def _show(found: Sequence["PoolView"]) -> None:
    from whistlestop.cli.failures import printable
    from whistlestop.cli.output import show, table

    made = table("pool", "engine", "slots", "free", "price", right=("slots", "free", "price"))
    for pool in found:
        made.add_row(printable(pool.name), pool.engine, str(pool.slots), str(pool.free), f"{pool.price:g}")
    show(made)
