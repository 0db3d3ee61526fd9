"""`whistle up`: the server, in the foreground, until Ctrl-C or SIGTERM. Runs go on without it."""

import dataclasses
import json as json_text
import logging
import os
import shlex
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whistlestop.cli.options import command

if TYPE_CHECKING:
    from whistlestop.server.app import Server
    from whistlestop.server.services.settings import Settings

app = command()


@app.command()
def up(
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="port; 0 takes any free one (default 7333)")] = None,
    data: Annotated[Path | None, typer.Option(help="directory that holds everything (default WHISTLE_DATA)")] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, help="slots of this machine (default: its GPUs, else its cores)")
    ] = None,
    price: Annotated[float, typer.Option(min=0, help="credits per slot-hour, at first start")] = 1.0,
    db: Annotated[str | None, typer.Option(help="database URL (default: SQLite in the data directory)")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="a further name under which people reach this server")
    ] = None,
    log_limit: Annotated[int, typer.Option(min=1, help="MiB of log kept per attempt; the rest is counted")] = 256,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="where new runs keep checkpoints: a directory, s3://, gs:// or az:// (default: in the data directory)",
        ),
    ] = None,
    checkpoints_endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="of a server that speaks S3, if it is not Amazon's")
    ] = None,
    checkpoints_region: Annotated[str | None, typer.Option(metavar="REGION", help="of the bucket")] = None,
    pools: Annotated[
        str | None, typer.Option(metavar="FILE", help="make the pools of this file as it says, as `pools apply` does")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="submit this spec once the server is up, and follow it")] = None,
    json: Annotated[bool, typer.Option("--json", help="print one JSON value when the server is up")] = False,
) -> None:
    """Start the server."""
    from whistlestop.client.discovery import data_dir
    from whistlestop.domain.errors import Refused
    from whistlestop.server.app import Server
    from whistlestop.server.services import storages
    from whistlestop.server.services.settings import Settings

    storage = storages.address(checkpoints) if checkpoints is not None else None
    options = storages.options(storage, checkpoints_endpoint, checkpoints_region)
    wanted = _read_pools(pools) if pools is not None else None
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for noisy in ("alembic", "uvicorn", "httpx2", "httpcore2"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    settings = Settings(
        data=(data or data_dir()).resolve(),
        host=host,
        port=7333 if port is None else port,
        slots=slots,
        price=price,
        db=db,
        allowed_hosts=tuple(allow_host or ()),
        log_limit=log_limit * 2**20,
        storage=storage,
        storage_options=options,
    )
    server = Server(settings)
    try:
        server.__enter__()
    except Refused as error:
        if port is not None or "can't listen" not in error.text:
            raise
        # Nobody asked for 7333 by name; the CLI finds the server by its file, not by its port.
        server = Server(dataclasses.replace(settings, port=0))
        server.__enter__()
    try:
        if wanted is not None:
            _apply_pools(server, wanted)
        _say_hello(server, as_json=json)
        follower = _Follower(run, server.url, server.token) if run is not None else None
        if follower:
            follower.start()
        server.serve()
        if follower:
            follower.stop()
    finally:
        server.__exit__(None, None, None)
    if not json:
        _say_goodbye(settings, follower.number if follower else None)


def _read_pools(file: str) -> str:
    """Judged before anything is started."""
    from whistlestop.cli.failures import InFile
    from whistlestop.cli.spec_reading import read_spec, shown
    from whistlestop.domain.errors import SpecInvalid
    from whistlestop.wire.pool_file import parse_pools

    text = read_spec(file)
    try:
        parse_pools(text)
    except SpecInvalid as error:
        raise InFile(shown(file), error) from error
    return text


def _apply_pools(server: "Server", text: str) -> None:
    from whistlestop.server.services import pools
    from whistlestop.wire.pools import ApplyBody

    for change in pools.apply(server.context, ApplyBody(spec=text)).changes:
        if change.change != "same":
            logging.getLogger(__name__).info("pool %s: %s", change.pool, change.text)


class _Follower(threading.Thread):
    """Submits the spec and shows it while the server runs in the main thread."""

    def __init__(self, spec: Path, url: str, token: str) -> None:
        super().__init__(name="follower", daemon=True)
        self.spec, self.url, self.token = spec, url, token
        self.number: int | None = None
        self._stopped = threading.Event()

    def run(self) -> None:
        from whistlestop.cli import failures
        from whistlestop.cli.submitting import submit_file
        from whistlestop.cli.watch import watch_run
        from whistlestop.client import Client

        try:
            with Client(self.url, self.token) as client:
                view = submit_file(client, self.spec)
                self.number = view.number
                leaving = "Ctrl-C ends the server; the run goes on."
                watch_run(client, view.id, stopped=self._stopped.is_set, leaving=leaving)
                if not self._stopped.is_set():
                    print(f"\nRun #{view.number} is over. The server stays up; Ctrl-C ends it.", flush=True)
        except Exception as error:
            if not self._stopped.is_set():
                failures.report(error, as_json=False)

    def stop(self) -> None:
        self._stopped.set()
        self.join(timeout=5)


def _say_hello(server: "Server", *, as_json: bool) -> None:
    url, data, slots, dashboard = server.url, server.settings.data, server.slots, server.dashboard_link()
    if as_json:
        told = {"url": url, "data": str(data), "slots": slots, "pid": os.getpid(), "dashboard": dashboard}
        print(json_text.dumps(told), flush=True)
        return
    print(f"Whistlestop is up at {url} with {slots} slot{'s' if slots != 1 else ''}; data in {data}")
    print(f"Dashboard: {dashboard}")
    print(f"  (signs you in once, within 10 minutes; {_whistle()} open prints another)")
    where = _elsewhere(data)
    finds = f"For the CLI: export {where}, then" if where else "The CLI on this machine finds it by itself:"
    print(f"{finds} {_whistle()} ls. Ctrl-C ends the server; runs go on.\n", flush=True)


def _say_goodbye(settings: "Settings", number: int | None) -> None:
    elsewhere = _elsewhere(settings.data)
    where = f" --data {shlex.quote(str(settings.data))}" if elsewhere else ""
    where += " --db … (the same as before)" if settings.db else ""
    then = f"watch {number}" if number else "ls"
    print("\nThe server is down. Runs that were under way go on without it.")
    there = f"{elsewhere} {_whistle()}" if elsewhere else _whistle()
    print(f"To come back: {_whistle()} up{where}, and in another terminal: {there} {then}", flush=True)


def _elsewhere(data: Path) -> str:
    """What the CLI needs to find a server that is not where it looks by itself."""
    from whistlestop.client.discovery import data_dir

    return "" if data == data_dir().resolve() else f"WHISTLE_DATA={shlex.quote(str(data))}"


def _whistle() -> str:
    """The command as it can be typed here: a virtual environment of this directory is not on everyone's PATH."""
    program = Path(sys.argv[0])
    if program.name == "whistle" and program.is_absolute() and program.is_relative_to(Path.cwd()):
        return str(program.relative_to(Path.cwd()))
    return "whistle" if program.name != "whistle" or program.is_absolute() else str(program)
