"""Code on its way to the server: the bundle, the commit, the environment."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whistlestop.cli.failures import InFile
from whistlestop.domain.errors import NotFound, SpecInvalid

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.api import RunView


def submit_file(client: "Client", file: Path, *, sets: Sequence[str] = (), note: str = "") -> "RunView":
    """Judge a whistle.yaml, then send it with the directory that it is in."""
    from whistlestop.cli.spec_reading import judge, read_spec

    text = read_spec(str(file))
    judge(text, sets, str(file))
    return submit_directory(client, file.parent, spec=text, sets=sets, note=note, file=str(file))


def submit_directory(
    client: "Client",
    directory: Path,
    *,
    spec: str | None = None,
    workflow: str | None = None,
    sets: Sequence[str] = (),
    in_place: bool = False,
    note: str = "",
    force: bool = False,
    file: str = "spec",
) -> "RunView":
    """Submit what is in `directory`. Mistakes of the spec are told with the name of `file`."""
    from whistlestop.client.environment import travelling_environment
    from whistlestop.client.git import commit_of

    directory = directory.resolve()
    commit = commit_of(directory)

    def submit() -> "RunView":
        return client.submit(
            spec,
            workflow=workflow,
            sets=sets,
            bundle=None if in_place else _upload(client, directory),
            in_place=str(directory) if in_place else None,
            env=travelling_environment(),
            commit=commit.id,
            dirty=commit.dirty,
            note=note,
            force=force,
        )

    try:
        try:
            return submit()
        except NotFound as error:
            if in_place or "bundle" not in error.text:
                raise
            return submit()  # the last run with this code was deleted meanwhile, and the server has just let it go
    except SpecInvalid as error:
        raise InFile(file, error) from error


def _upload(client: "Client", directory: Path) -> str:
    from whistlestop.cli.output import aside
    from whistlestop.client.bundle import make_bundle

    with make_bundle(directory) as bundle:
        if bundle.skipped:
            aside(f"whistle: left out, not files: {', '.join(bundle.skipped[:10])}")
        if not client.has_bundle(bundle.hash):
            client.upload_bundle(bundle.hash, bundle.path)
        return bundle.hash
