"""Parts into a directory: parts/NAME.pickle for states, files/NAME/ for what frameworks write themselves."""

from collections.abc import Mapping
from pathlib import Path

from whistlestop.sdk.parts import Part, pack

_DIGESTS = "digests.json"


def stage(directory: Path, parts: Mapping[str, Part], *, digests: bool, note: bool = False) -> dict[str, str]:
    """Returns a hash for each leaf of each part, if asked for; `note` leaves them in a file for another rank."""
    found: dict[str, str] = {}
    for name, part in parts.items():
        if part.files:
            target = directory / "files" / name
            target.mkdir(parents=True)
            part.save(target)
        else:
            target = directory / "parts" / f"{name}.pickle"
            target.parent.mkdir(exist_ok=True)
            state = part.save()
            target.write_bytes(pack(state))
        if digests:
            from whistlestop.sdk.digests import digest, digest_files

            leaves = digest_files(target) if part.files else digest(state)
            found |= {f"{name}/{leaf}": each for leaf, each in leaves.items()}
    if note and digests:
        import json

        (directory / _DIGESTS).write_text(json.dumps(found))
    return found


def read_digests(directory: Path) -> dict[str, str]:
    """Those of another rank. The file is only for this: it does not go into the checkpoint."""
    import json

    path = directory / _DIGESTS
    if not path.exists():
        return {}
    found: dict[str, str] = json.loads(path.read_text())
    path.unlink()
    return found
