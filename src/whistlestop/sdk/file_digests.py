"""Hashes of the files that frameworks write, by what they hold: many of them also hold times, paths and random names.

A format is opened with its framework only if the program has loaded that framework: who wrote the files has.
"""

import json
import os
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from whistlestop.sdk.digests import digest, hashed

_CHUNK = 1 << 20
_TF_INDEX = ".index"
_TF_NOT_STATE = ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter/.ATTRIBUTES/VARIABLE_VALUE")


def digest_directory(directory: Path) -> dict[str, str]:
    """`file/path/to/leaf` -> hash."""
    found: dict[str, str] = {}
    for path in _entries(directory, directory, found):
        name = path.relative_to(directory).as_posix()
        _put(found, name, digest_file(path))
    return dict(sorted(found.items()))


def digest_file(path: Path) -> dict[str, str]:
    opened = _READERS.get(path.suffix.lower())
    if opened is not None:
        try:
            return opened(path)
        except Exception:  # not what its name says, or not for us to read: the bytes are always there
            pass
    with path.open("rb") as file:
        return {"": _bytes(file)}


def _entries(directory: Path, root: Path, found: dict[str, str]) -> list[Path]:
    """Every file that has to be looked at by itself; what is one thing in several files goes into `found`."""
    files: list[Path] = []
    where = "" if directory == root else directory.relative_to(root).as_posix()
    arrays = _orbax(directory)
    if arrays is not None:
        _put(found, where, arrays)
        return files
    variables = _tensorflow(directory)
    _put(found, where, variables or {})
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.is_dir():
                files += _entries(Path(entry.path), root, found)
            elif not _read_already(entry.name, variables is not None):
                files.append(Path(entry.path))
    return files


def _read_already(name: str, variables: bool) -> bool:
    if name == "_CHECKPOINT_METADATA":  # of Orbax: when it was saved
        return True
    return variables and (name == "checkpoint" or name.endswith(_TF_INDEX) or ".data-" in name)


def _put(found: dict[str, str], name: str, leaves: dict[str, str]) -> None:
    for leaf, text in leaves.items():
        found["/".join(filter(None, (name, leaf)))] = text


def _bytes(file: IO[bytes]) -> str:
    import hashlib

    total, size = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK):
        total.update(chunk)
        size += len(chunk)
    return f"file[{size}] {total.hexdigest()}"


def _json(path: Path) -> dict[str, str]:
    return digest(json.loads(path.read_bytes()))


def _torch(path: Path) -> dict[str, str]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return _zip(path)
    # The program that calls has written it just now: nothing foreign is unpickled.
    return digest(torch.load(path, map_location="cpu", weights_only=False))


def _safetensors(path: Path) -> dict[str, str]:
    """Eight bytes of length, a JSON header, then the data."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        start = 8 + length
        found = {}
        for name, about in header.items():
            if name == "__metadata__":
                continue
            begin, end = about["data_offsets"]
            file.seek(start + begin)
            found[name] = hashed(f"{about['dtype']}{about['shape']}", file.read(end - begin))
    return found


def _zip(path: Path) -> dict[str, str]:
    """npz and keras files: each member by itself, without the times that a zip stores."""
    found: dict[str, str] = {}
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            with archive.open(name) as file:
                if name == "metadata.json":  # of Keras: versions, and when it was saved
                    continue
                leaves = _hdf5(file) if name.endswith(".h5") else None
                _put(found, name, leaves if leaves is not None else {"": _bytes(file)})
    return found


def _hdf5_file(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        leaves = _hdf5(file)
        return leaves if leaves is not None else {"": _bytes(file)}


def _hdf5(file: IO[bytes]) -> dict[str, str] | None:
    h5py: Any = sys.modules.get("h5py")
    if h5py is None:
        return None
    import io

    found: dict[str, str] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            _put(found, name, digest(item[()]))

    with h5py.File(io.BytesIO(file.read()), "r") as opened:
        opened.visititems(visit)
    return found


def _tensorflow(directory: Path) -> dict[str, str] | None:
    """Checkpoints of tf.train: the newest one, whatever its number. None if this directory holds none."""
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow is None or not any(directory.glob(f"*{_TF_INDEX}")):
        return None
    try:
        newest = tensorflow.train.latest_checkpoint(str(directory))
        if newest is None:
            written = max(directory.glob(f"*{_TF_INDEX}"), key=lambda each: (each.stat().st_mtime, each.name))
            newest = str(written)[: -len(_TF_INDEX)]
        reader = tensorflow.train.load_checkpoint(newest)
        names = sorted(set(reader.get_variable_to_shape_map()) - set(_TF_NOT_STATE))
        found: dict[str, str] = {}
        for name in names:
            try:
                leaves = digest(reader.get_tensor(name))
            except Exception:  # a variant, as the state of an iterator is: nobody can look into it
                leaves = {"": "unreadable"}
            _put(found, name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"), leaves)
        return found
    except Exception:  # not a checkpoint of this kind
        return None


def _orbax(directory: Path) -> dict[str, str] | None:
    """Arrays in files with random names. None if this directory is not one tree of them."""
    if "orbax.checkpoint" not in sys.modules or not (directory / "_METADATA").is_file():
        return None
    orbax: Any = sys.modules["orbax.checkpoint"]
    try:
        with orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as reader:
            return digest(reader.restore(directory.absolute()))
    except Exception:  # of another version, or sharded over processes
        return None


_READERS: dict[str, Callable[[Path], dict[str, str]]] = {
    ".json": _json,
    ".pt": _torch,
    ".pth": _torch,
    ".bin": _torch,
    ".ckpt": _torch,
    ".safetensors": _safetensors,
    ".npz": _zip,
    ".keras": _zip,
    ".h5": _hdf5_file,
}
