"""Parts into a slot: states into its buffer, what frameworks write themselves into files/, what the program adds into
added/. Only rank 0's slot is published; the other ranks lay a table beside their buffers."""

import gc
import json
import mmap
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from whistlestop.blobs import staged
from whistlestop.blobs.manifest import SaveFailed, check_name
from whistlestop.blobs.staged import Piece
from whistlestop.sdk.copying import copy_all, from_buffer
from whistlestop.sdk.flat import Plan, plan_state
from whistlestop.sdk.parts import Part
from whistlestop.sdk.settled import MOST_HELD, Settled, settled
from whistlestop.sdk.slots import Slot, Slots
from whistlestop.sdk.stored import FILES, PARTS

_TABLE: Final = "table.json"
_ADDED: Final = "added"


@dataclass
class Laid:
    pieces: list[Piece] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    size: int = 0  # of the buffer
    buffer: memoryview | None = None
    unchanged: list[Any] = field(default_factory=list)  # tensors that are not copied yet: they must stay as they are
    rest: Callable[[], None] | None = None

    def finish(self) -> None:
        """All of it is there and `pieces` is complete afterwards. In any thread."""
        if self.rest is not None:
            self.rest()
            self.rest = None


def lay(
    slots: Slots,
    slot: Slot,
    parts: Mapping[str, tuple[str, Part]],
    *,
    added: Mapping[str, Path] | None = None,
    digests: bool = False,
    stays: Mapping[int, Any] | None = None,
) -> Laid:
    """`parts`: each with what its name in the checkpoint begins with. `stays`: torch's storages, each with a tensor,
    that `finish` may look at and copy in its own time."""
    laid, plan, later, stays = Laid(), Plan(), dict[str, Settled](), stays or {}
    given = {check_name(name): source for name, source in (added or {}).items()}
    writes = bool(given) or any(part.files for _, part in parts.values())
    if writes:
        slots.open(slot, sum(map(_size, given.values())))
    for name, (prefix, part) in parts.items():
        state: Any = None
        if part.files:
            state = slot.inner / FILES / f"{prefix}{name}"
            state.mkdir(parents=True)
            part.save(state)
            laid.pieces += _tree(slot, f"{prefix}{FILES}/{name}", f"{FILES}/{prefix}{name}")
        else:
            state = part.save()
            if (found := settled(part, state, stays)) is not None:
                later[f"{prefix}{PARTS}/{name}"] = found
                continue
            with _without_collector():
                plan_state(plan, f"{prefix}{PARTS}/{name}", state)
        if digests:
            laid.digests |= _digests(f"{_rank_of(prefix)}{name}", state, part)
    for name, source in given.items():
        laid.pieces += _add(slot, name, source)
    if later and not writes and plan.size <= MOST_HELD:
        _hold(plan)
        laid.unchanged = [tensor for each in later.values() for tensor in each.tensors]
        laid.rest = partial(_lay_rest, laid, plan, slots, slot, later)
        return laid
    with _without_collector():
        for name, found in later.items():
            plan_state(plan, name, found.state)
    if not writes:
        slots.open(slot, plan.size)
    _fill(laid, plan, slots, slot, stays)
    return laid


def _hold(plan: Plan) -> None:
    """What the program may change at any time is taken out of its reach."""
    held = bytearray(plan.size)
    copy_all(memoryview(held), plan.copies)
    plan.write_pads(memoryview(held))
    plan.copies, plan.pads = [from_buffer(0, memoryview(held))], []


def _lay_rest(laid: Laid, plan: Plan, slots: Slots, slot: Slot, later: Mapping[str, Settled]) -> None:
    for name, found in later.items():
        plan_state(plan, name, found.state)
    slots.open(slot, plan.size)
    _fill(laid, plan, slots, slot, threads=1)


def _fill(
    laid: Laid, plan: Plan, slots: Slots, slot: Slot, stays: Mapping[int, Any] | None = None, **threads: int
) -> None:
    laid.size = plan.size
    if not plan.size:
        return
    laid.buffer = buffer = slots.buffer(slot, plan.size)
    copies = plan.copies
    if stays:
        put_off = [each for each in copies if getattr(each.keep, "_cdata", None) in stays]
        copies = [each for each in copies if getattr(each.keep, "_cdata", None) not in stays]
        if put_off:
            laid.unchanged = [stays[key] for key in {each.keep._cdata for each in put_off}]
            laid.rest = partial(copy_all, buffer, put_off, threads=1)  # the other processors are the program's
    copy_all(buffer, copies, **threads)
    plan.write_pads(buffer)
    source = f"{slot.prefix}{staged.BUFFER}"
    laid.pieces += [Piece(name, size, source, offset) for name, offset, size in plan.files]


# Other ranks.


def write_table(slot: Slot, laid: Laid, step: int, *, shared: bool = False) -> None:
    """`shared`: it will be read by another machine, which sees nothing of what is only in the memory of this one."""
    if shared:
        _sync(slot, laid)
    content = {"step": step, "pieces": [vars(each) for each in laid.pieces], "digests": laid.digests}
    making = slot.inner / f"{_TABLE}.{os.getpid()}"
    making.write_text(json.dumps(content))
    os.rename(making, slot.inner / _TABLE)


def read_table(slot: Slot, rank: int, step: int) -> Laid:
    """What another rank has laid for this very save. SaveFailed if it is not to be seen here."""
    path = slot.path / f"rank-{rank}" / _TABLE
    try:
        content = json.loads(path.read_text())
        if content["step"] != step:
            raise ValueError(f"it is of step {content['step']}")
        return Laid([Piece(**each) for each in content["pieces"]], dict(content["digests"]))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SaveFailed(f"rank {rank} laid its part of step {step} where rank 0 can't see it: {error}") from error


# How it is done.


def _sync(slot: Slot, laid: Laid) -> None:
    if laid.buffer is not None and isinstance(laid.buffer.obj, mmap.mmap):
        laid.buffer.obj.flush()
    for source in {piece.source for piece in laid.pieces}:
        handle = os.open(slot.path / source, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Planning makes thousands of small things that all stay: looking for garbage among them, and among all that a
    framework holds, would take longer than the planning itself."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _digests(name: str, state: Any, part: Part) -> dict[str, str]:
    from whistlestop.sdk.digests import digest, digest_files

    leaves = digest_files(state) if part.files else digest(state)
    return {f"{name}/{leaf}": each for leaf, each in leaves.items()}


def _rank_of(prefix: str) -> str:
    return f"rank-{prefix.split('/')[1]}/" if prefix else ""


def _add(slot: Slot, name: str, source: Path) -> Sequence[Piece]:
    """Links are followed: a checkpoint stands by itself."""
    target = slot.inner / _ADDED / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if not source.is_dir():
        shutil.copyfile(source, target)
        return [Piece(name, target.stat().st_size, f"{slot.prefix}{_ADDED}/{name}")]
    try:
        shutil.copytree(source, target)
    finally:
        _open_up(target)
    return _tree(slot, name, f"{_ADDED}/{name}")


def _tree(slot: Slot, name: str, source: str) -> Sequence[Piece]:
    return staged.tree(slot.path, name, f"{slot.prefix}{source}")


def _open_up(path: Path) -> None:
    """A copy has the modes of its source; a directory without write permission could never be removed again."""
    for directory, _, names in os.walk(path):
        for name in ("", *names):
            each = os.path.join(directory, name)
            if not os.path.islink(each):
                os.chmod(each, os.stat(each).st_mode | (0o600 if name else 0o700))


def _size(source: Path) -> int:
    if not source.is_dir():
        return source.stat().st_size
    return sum(Path(root, name).stat().st_size for root, _, names in os.walk(source) for name in names)
