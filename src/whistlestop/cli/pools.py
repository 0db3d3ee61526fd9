"""`whistle pools`: capacity, what it costs and who has it."""

from typing import Annotated, Any

import typer

from whistlestop.cli.options import Json, Yes, connect

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="List the pools, or change them.", invoke_without_command=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The pool.")]
Slots = Annotated[int | None, typer.Option(help="How many slots it has; 0: it is away.", min=0)]
Price = Annotated[float | None, typer.Option(help="Credits per slot-hour.", min=0)]
Market = Annotated[str | None, typer.Option(help="spot or on_demand.")]
Kind = Annotated[str | None, typer.Option("--class", help="The class of its machines.")]
Region = Annotated[str | None, typer.Option(help="Where it is.")]
Provider = Annotated[str | None, typer.Option(help="Whose it is.")]
Rank = Annotated[int | None, typer.Option(help="Of two that are as good, the lower one is taken.")]
Hosts = Annotated[
    list[str] | None, typer.Option("--host", metavar="NAME:SLOTS", help="A host of it; repeat it, in their order.")
]
Notices = Annotated[
    list[str] | None,
    typer.Option(
        "--notice", metavar="SOURCE=WHERE", help="Where its runners hear of their end; aws, gcp, azure, file."
    ),
]
Devices = Annotated[
    str | None, typer.Option(metavar="0,1,…", help="The device of each slot; none: as they are counted.")
]

Slurm = Annotated[
    str | None,
    typer.Option(metavar="PARTITION", help="On Slurm, in this partition, with all its slots if none are given."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--setting", metavar="KEY=VALUE", help="Of a pool on Slurm: python, url, resource, …"),
]


@app.callback()
def pools(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        _list(as_json)


@app.command("ls")
def ls(as_json: Json = False) -> None:
    """List the pools."""
    _list(as_json)


@app.command("show")
def show_one(name: Name, as_json: Json = False) -> None:
    """Show a pool: its hosts, who has its slots, how often it takes them back."""
    from whistlestop.cli.output import print_json
    from whistlestop.cli.pools_view import show_pool

    with connect() as client:
        pool = client.pool(name)
    if as_json:
        print_json(pool)
    else:
        show_pool(pool)


@app.command("add")
def add(
    name: Name,
    slots: Slots = None,
    price: Price = None,
    market: Market = None,
    kind: Kind = None,
    region: Region = None,
    provider: Provider = None,
    rank: Rank = None,
    host: Hosts = None,
    notice: Notices = None,
    devices: Devices = None,
    slurm: Slurm = None,
    setting: Settings = None,
    as_json: Json = False,
) -> None:
    """Make a pool, of slots on this machine or on a Slurm cluster."""
    from whistlestop.cli.failures import Usage

    settings = dict(_pair(each) for each in setting or ())
    if settings and slurm is None:
        raise Usage("--setting is for a pool on a cluster.", hint="give --slurm PARTITION, too")
    if slurm is not None:
        settings["partition"] = slurm
        slots = slots if slots is not None else _counted(settings)
    values = _values(name, slots, price, market, kind, region, provider, rank, host, notice, devices, settings)
    if values.get("engine") == "slurm":
        values["slurm"] = values.pop("settings")
    with connect() as client:
        _said(client.add_pool(name, **values), as_json)


@app.command("set")
def change(
    name: Name,
    slots: Slots = None,
    price: Price = None,
    market: Market = None,
    kind: Kind = None,
    region: Region = None,
    provider: Provider = None,
    rank: Rank = None,
    host: Hosts = None,
    notice: Notices = None,
    devices: Devices = None,
    as_json: Json = False,
) -> None:
    """Change a pool. What is not given stays; what runs there runs on."""
    from whistlestop.cli.failures import Usage

    values = _values("x", slots, price, market, kind, region, provider, rank, host, notice, devices)
    if not values:
        raise Usage("Nothing to change.", hint="give --slots, --price or another option")
    with connect() as client:
        _said(client.set_pool(name, **values), as_json)


@app.command("rm")
def remove(name: Name, yes: Yes = False, as_json: Json = False) -> None:
    """Remove a pool that nothing runs on."""
    from whistlestop.cli.options import at_terminal
    from whistlestop.cli.output import print_json, say

    if not yes and at_terminal():
        typer.confirm(f"Remove pool {name}? Runs that may use no other one will wait.", abort=True)
    with connect() as client:
        client.remove_pool(name)
    if as_json:
        print_json({"pool": name, "removed": True})
    else:
        say(f"Pool {name} is removed.")


@app.command("apply")
def apply(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A YAML file of pools; - is standard input.")],
    prune: Annotated[bool, typer.Option("--prune", help="Remove pools that it does not name.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    as_json: Json = False,
) -> None:
    """Make the pools of a file as it says: all of it or nothing. What it does not name is left alone."""
    from whistlestop.cli.failures import InFile
    from whistlestop.cli.output import print_json
    from whistlestop.cli.pools_view import show_applied
    from whistlestop.cli.spec_reading import read_spec, shown
    from whistlestop.domain.errors import SpecInvalid
    from whistlestop.wire.pool_file import parse_pools

    text = read_spec(file)
    try:
        parse_pools(text)
    except SpecInvalid as error:
        raise InFile(shown(file), error) from error
    with connect() as client:
        done = client.apply_pools(text, prune=prune, dry_run=dry_run)
    if as_json:
        print_json(done)
    else:
        show_applied(done)


def _list(as_json: bool) -> None:
    from whistlestop.cli.output import print_json
    from whistlestop.cli.pools_view import show_pools

    with connect() as client:
        found = client.pools()
    if as_json:
        print_json(found)
    else:
        show_pools(found)


def _said(pool: Any, as_json: bool) -> None:
    from whistlestop.cli.output import print_json, say
    from whistlestop.cli.pools_view import line

    if as_json:
        print_json(pool)
    else:
        say(line(pool))


def _values(
    name: str,
    slots: int | None,
    price: float | None,
    market: str | None,
    kind: str | None,
    region: str | None,
    provider: str | None,
    rank: int | None,
    hosts: list[str] | None,
    notices: list[str] | None,
    devices: str | None,
    slurm: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Those that were given, judged as in a file of pools."""
    from whistlestop.cli.failures import Usage
    from whistlestop.domain.errors import SpecInvalid
    from whistlestop.wire.pool_file import parse_pools
    from whistlestop.wire.yaml_text import write

    given: dict[str, Any] = {
        "slots": slots,
        "price": price,
        "market": market,
        "class": kind,
        "region": region,
        "provider": provider,
        "rank": rank,
        "hosts": [_host(each) for each in hosts] if hosts else None,
        "notices": dict(_pair(each) for each in notices) if notices else None,
        "devices": _numbers(devices) if devices is not None else None,
        "slurm": slurm or None,
    }
    named = {key: value for key, value in given.items() if value is not None}
    try:
        (pool,) = parse_pools(write({"pools": [{"name": name, **named}]}))
    except SpecInvalid as error:
        first = error.problems[0]
        raise Usage(f"{first.path.removeprefix('pools.0.')}: {first.text}", hint=first.hint) from error
    return {key: value for key, value in pool.given().items() if key != "name"}


def _counted(settings: dict[str, str]) -> int:
    from whistlestop.engines.slurm_partitions import slots_of

    return slots_of(settings["partition"], settings.get("resource", "cpu"), settings.get("conf", ""))


def _host(text: str) -> dict[str, Any]:
    from whistlestop.cli.failures import Usage

    name, colon, slots = text.rpartition(":")
    if not colon or not slots.isdigit():
        raise Usage(f"{text!r} is not a host and its slots.", hint="--host node-1:4")
    return {"name": name, "slots": int(slots)}


def _pair(text: str) -> tuple[str, str]:
    from whistlestop.cli.failures import Usage

    source, equals, where = text.partition("=")
    if not equals or not where:
        raise Usage(f"{text!r} is not a source and where it is asked.", hint="--notice aws=http://169.254.169.254")
    return source, where


def _numbers(text: str) -> list[int]:
    from whistlestop.cli.failures import Usage

    words = [word.strip() for word in text.split(",") if word.strip()]
    if text.strip() == "none":
        return []
    if not words or not all(word.isascii() and word.isdigit() for word in words):
        raise Usage(f"{text!r} is not a list of devices.", hint="--devices 0,1")
    return [int(word) for word in words]
