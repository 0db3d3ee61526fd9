"""The parts of a checkpoint's directory, by their names; read when somebody looks at them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from whistlestop.domain.errors import BadRequest, NotFound
from whistlestop.sdk.fetched import wait_until_fetched

if TYPE_CHECKING:
    from whistlestop.sdk.mapped import Flat

PARTS: Final = "parts"
FILES: Final = "files"
PICKLE: Final = ".pickle"
_INDEX = "/index"


def part_names(files: Sequence[str] | Mapping[str, Any], prefix: str = "") -> set[str]:
    """Of states, by the names of a checkpoint's files."""
    head = f"{prefix}{PARTS}/"
    inside = [name[len(head) :] for name in files if name.startswith(head)]
    return {
        name.removesuffix(PICKLE) if name.endswith(PICKLE) else name.removesuffix(_INDEX)
        for name in inside
        if name.endswith((PICKLE, _INDEX))
    }


def tree_names(files: Sequence[str] | Mapping[str, Any], prefix: str = "") -> set[str]:
    """Of what was saved as files."""
    head = f"{prefix}{FILES}/"
    return {name[len(head) :].partition("/")[0] for name in files if name.startswith(head)}


def read_part(directory: Path, name: str, *, own: bool = False) -> Any:
    """The state of a part; its tensors and arrays are mapped, and read when they are looked at. `own`: for a program
    that keeps it, as in `Flat.load`."""
    plain = directory / PARTS / f"{name}{PICKLE}"
    if plain.exists() or not (directory / PARTS / name).is_dir():
        import pickle

        return pickle.loads(plain.read_bytes())
    from whistlestop.sdk.mapped import Flat

    return Flat(directory / PARTS / name).load(own=own)


@dataclass(frozen=True)
class TensorInfo:
    dtype: str
    shape: tuple[int, ...]


class Stored(Mapping[str, Any]):
    """What `whistlestop.load(directory)` gives: the states of its parts by name. Each is read when it is first asked
    for, and of its tensors and arrays only what is touched."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        self._names = sorted(part_names(_files(directory)))
        self._read: dict[str, Any] = {}
        self._found: dict[str, tuple[Flat | None, dict[str, Any]]] = {}

    def names(self) -> list[str]:
        """Of the parts that are states; what frameworks saved by themselves lies below `path`, in files/NAME."""
        return list(self._names)

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise NotFound(f"{self.path} has no part {name!r}; it has: {', '.join(self._names) or 'none'}")
        if name not in self._read:
            self._read[name] = read_part(self.path, name)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def rank(self, number: int) -> "Stored":
        """What rank `number` has saved by itself."""
        own = self.path / "ranks" / str(number)
        if not own.is_dir():
            raise NotFound(f"{self.path} holds nothing of a rank {number}")
        return Stored(own)

    def tensors(self, part: str) -> dict[str, TensorInfo]:
        """Name, dtype and shape of every tensor and array of a part. Names are joined by dots: `layer.weight`,
        `state.0.exp_avg`. Nothing of them is read."""
        return {
            name: TensorInfo(str(each.dtype).removeprefix("torch."), tuple(each.shape))
            for name, each in self._leaves(part)[1].items()
        }

    def tensor(self, part: str, name: str) -> Any:
        """One of them, and nothing of the others."""
        from whistlestop.sdk.mapped import Described

        flat, leaves = self._leaves(part)
        if name not in leaves:
            raise NotFound(f"{part} in {self.path} has no tensor {name!r}")
        found = leaves[name]
        return flat.tensor(found.number) if flat is not None and isinstance(found, Described) else found

    def _leaves(self, part: str) -> "tuple[Flat | None, dict[str, Any]]":
        if part not in self._found:
            directory = self.path / PARTS / part
            flat = None
            if part in self._names and (directory / "index").exists():
                from whistlestop.sdk.mapped import Flat

                try:
                    flat = Flat(directory)
                    state = flat.describe()
                except Exception:  # something is made of its tensors while it is read: they have to be there
                    flat = None
            leaves: dict[str, Any] = {}
            _walk(state if flat is not None else self[part], "", leaves)
            self._found[part] = flat, leaves
        return self._found[part]


def load(path: str | os.PathLike[str]) -> Stored:
    """The parts of a checkpoint, by name: `whistlestop.load(whistlestop.input("train"))["model"]`. Nothing is read
    before it is needed. It unpickles: load only what you trust."""
    directory = Path(path)
    wait_until_fetched(directory)
    if not directory.is_dir():
        raise BadRequest(f"{directory} is not the directory of a checkpoint")
    return Stored(directory)


def _files(directory: Path) -> list[str]:
    root = directory / PARTS
    return [f"{PARTS}/{path.relative_to(root).as_posix()}" for path in root.rglob("*") if path.is_file()]


def _walk(state: Any, name: str, leaves: dict[str, Any]) -> None:
    if hasattr(state, "dtype") and hasattr(state, "shape"):
        leaves[name] = state
    elif isinstance(state, Mapping):
        for key, each in state.items():
            _walk(each, f"{name}.{key}" if name else str(key), leaves)
    elif isinstance(state, list | tuple):
        for key, each in enumerate(state):
            _walk(each, f"{name}.{key}" if name else str(key), leaves)
