"""A save that is complete, but lies where the program put it: in a slot that is used again and again.

    SLOT/buffer         what the program has copied, one piece behind the other; kept, mapped and warm
    SLOT/files/…        what frameworks have written themselves
    SLOT/stage.json     put last, in one move: from then on the slot is the runner's, until it takes the file away

No hash is made here and nothing is synced: the loop waits for a copy and no more. A slot does not outlive the machine's
own memory: one from before a reboot is not complete, whatever it says.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from whistlestop.blobs.manifest import BadName, SaveFailed, check_name, check_phase
from whistlestop.channel.plain import plain_value

STAGE: Final = "stage.json"
BUFFER: Final = "buffer"
_MOST_STEPS: Final = 10**15
_SAVE: Final = re.compile(r"[0-9a-f]{1,16}-\d{1,9}")


@dataclass(frozen=True)
class Piece:
    """One file of the checkpoint, and where its bytes are."""

    name: str
    size: int
    source: str  # a file in the slot
    offset: int = 0


@dataclass(frozen=True)
class Share:
    """Which part of a save that several nodes make: each node's runner takes what its own ranks have staged."""

    save: str  # the same on all nodes, and never used again: SERIES-NUMBER
    node: int
    nodes: int


@dataclass(frozen=True)
class Staged:
    directory: Path
    phase: str
    step: int
    attempt_number: int
    attempt_id: str
    meta: Mapping[str, Any]
    pieces: Sequence[Piece]
    at: float  # when it was complete
    block_seconds: float = 0.0  # how long the loop waited for it
    share: Share | None = None  # None: it is the whole of it

    @property
    def bytes(self) -> int:
        return sum(piece.size for piece in self.pieces)


def publish(staged: Staged) -> None:
    """From now on it exists. SaveFailed where that can't be written down."""
    content = {
        "phase": staged.phase,
        "step": staged.step,
        "attempt_number": staged.attempt_number,
        "attempt_id": staged.attempt_id,
        "meta": plain_value(staged.meta),
        "pieces": [[piece.name, piece.size, piece.source, piece.offset] for piece in staged.pieces],
        "at": staged.at,
        "block_seconds": staged.block_seconds,
        "boot": _boot(),
    }
    if (share := staged.share) is not None:
        content["share"] = [share.save, share.node, share.nodes]
    making = staged.directory / f"{STAGE}.{os.getpid()}"
    try:
        making.write_text(json.dumps(content))
        os.rename(making, staged.directory / STAGE)
    except (OSError, TypeError, ValueError) as error:
        raise SaveFailed(f"step {staged.step} of {staged.phase} could not be staged: {error}") from error


def read(directory: Path) -> Staged | None:
    """What is complete in this slot; None where nothing is. SaveFailed where nobody can make sense of it."""
    try:
        data = (directory / STAGE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SaveFailed(f"{directory / STAGE} can't be read: {error}") from error
    try:
        content = json.loads(data)
        if content["boot"] != _boot():
            return None
        pieces = tuple(
            Piece(check_name(name), int(size), check_name(source), int(offset))
            for name, size, source, offset in content["pieces"]
        )
        if len({piece.name for piece in pieces}) != len(pieces) or any(min(p.size, p.offset) < 0 for p in pieces):
            raise ValueError("two pieces have one name, or less than no bytes")
        if not 0 <= int(content["step"]) < _MOST_STEPS:
            raise ValueError(f"there is no step {content['step']}")
        return Staged(
            directory=directory,
            phase=check_phase(content["phase"]),
            step=int(content["step"]),
            attempt_number=int(content["attempt_number"]),
            attempt_id=str(content["attempt_id"]),
            meta=dict(content["meta"]),
            pieces=pieces,
            at=float(content["at"]),
            block_seconds=float(content["block_seconds"]),
            share=_share(content.get("share")),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, BadName) as error:
        raise SaveFailed(f"{directory / STAGE} can't be read: {error!r}") from error


def _share(said: Any) -> Share | None:
    if said is None:
        return None
    save, node, nodes = said
    if not _SAVE.fullmatch(save) or not 0 <= int(node) < int(nodes):
        raise ValueError(f"there is no share {said}")
    return Share(save, int(node), int(nodes))


def is_free(directory: Path) -> bool:
    """The program may use it."""
    return not (directory / STAGE).exists()


def release(directory: Path) -> None:
    """The runner has done with it: the program may use it again. Twice is not an error."""
    (directory / STAGE).unlink(missing_ok=True)


def tree(directory: Path, name: str, source: str) -> list[Piece]:
    """The pieces of a directory of plain files, `source` in the slot, as `name` in the checkpoint. Links become what
    they lead to: a checkpoint stands by itself. SaveFailed where that can't be."""
    root = directory / source
    found = []
    for parent, directories, names in os.walk(root, onerror=_not_readable):
        for each in (*directories, *names):
            if (link := Path(parent, each)).is_symlink():
                made = link.with_name(f"{each}.followed")
                _copy(link, made, (os.path.realpath(parent),))
                link.unlink()
                made.rename(link)  # a directory is walked now
        for each in names:
            path = Path(parent, each)
            inner = path.relative_to(root).as_posix()
            found.append(Piece(check_name(f"{name}/{inner}"), path.stat().st_size, f"{source}/{inner}"))
    return sorted(found, key=lambda piece: piece.name)


def _copy(source: Path, target: Path, above: tuple[str, ...]) -> None:
    """With all that its links lead to. `above`: the directories that it is in, whatever they are called."""
    real = os.path.realpath(source)
    if os.path.isfile(real):
        shutil.copyfile(real, target)
        return
    if not os.path.isdir(real):
        raise SaveFailed(f"{source} leads to no file and no directory ({real}): it can't be part of a checkpoint")
    if real in above:
        raise SaveFailed(f"{source} leads back to {real}, which it is in: it can't be part of a checkpoint")
    target.mkdir()
    for each in os.listdir(real):
        _copy(source / each, target / each, (*above, real))


def _not_readable(error: OSError) -> None:
    raise error


def slots(directory: Path) -> Iterable[Path]:
    """The slots below a stage directory; they may be links to a place in memory."""
    try:
        return sorted(path for path in directory.iterdir() if path.name.startswith("slot-") and path.is_dir())
    except OSError:
        return []


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
