"""A state that flat.py took apart, put together again: its files are mapped, and read when somebody looks at them.
What is written to a tensor stays in this process: the files are the checkpoint's. Whoever looks at a map of a file that
another host has removed is killed: what lives on in a training must not be one."""

import functools
import io
import mmap
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whistlestop.sdk.flat import INDEX, VERSION, Span, TensorEntry

_MODULE = TensorEntry.__module__


@dataclass(frozen=True)
class Described:
    """A tensor that was not read."""

    number: int
    dtype: str
    shape: tuple[int, ...]


class Flat:
    """A directory with an index and its segments."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        index = pickle.loads((directory / INDEX).read_bytes())
        if index["version"] != VERSION:
            raise ValueError(f"{directory / INDEX} is of version {index['version']!r}; this one reads {VERSION}")
        self.tensors = [TensorEntry(*row) for row in index["tensors"]]
        self._skeleton: bytes = index["skeleton"]
        self._buffers: list[int] = index["buffers"]
        self._storages: list[tuple[int, list[Span]]] = index["storages"]
        self._segments: list[int] = index["segments"]
        self._segments_read: dict[tuple[int, bool], mmap.mmap] = {}  # number, mapped
        self._held: dict[tuple[int, str, bool], Any] = {}  # torch storages: tensors that shared one do so again

    def load(self, *, own: bool = False) -> Any:
        """The whole state, mapped and on the CPU. `own`: nothing of it is a map, and each tensor goes to the current
        device of the kind that it was on; another rank's would be the wrong one."""
        return self._unpickle(lambda number: self.tensor(number, own=own), own=own)

    def describe(self) -> Any:
        """The state with a Described in each tensor's place; arrays are mapped. Not every state can be had like this:
        what makes something of its tensors while it is unpickled fails on them."""
        return self._unpickle(lambda number: Described(number, self.tensors[number].dtype, self.tensors[number].shape))

    def tensor(self, number: int, *, own: bool = False) -> Any:
        """One of them, and nothing else is read."""
        import torch  # what is stored here is torch's

        entry = self.tensors[number]
        device = device_for(torch, entry.device) if own else "cpu"
        tensor = torch.empty(0, dtype=getattr(torch, entry.dtype), device=device)
        tensor.set_(self._torch_storage(entry.storage, device, own), entry.offset, entry.shape, entry.stride)
        if entry.parameter:
            return torch.nn.Parameter(tensor, requires_grad=entry.requires_grad)
        return tensor.requires_grad_() if entry.requires_grad else tensor

    def _unpickle(self, make: Callable[[int], Any], *, own: bool = False) -> Any:
        buffers = (self._buffer(number, mapped=not own) for number in self._buffers)
        return _Unpickler(self._skeleton, make, buffers).load()

    def _torch_storage(self, number: int, device: str, own: bool) -> Any:
        held = self._held.get((number, device, own))
        if held is None:
            import torch

            if self._storages[number][0]:
                buffer = self._buffer(number, mapped=not own or device != "cpu")
                held = torch.frombuffer(buffer, dtype=torch.uint8).to(device).untyped_storage()
            else:
                held = torch.empty(0, dtype=torch.uint8, device=device).untyped_storage()
            self._held[number, device, own] = held
        return held

    def _buffer(self, number: int, *, mapped: bool) -> memoryview:
        size, spans = self._storages[number]
        if len(spans) == 1:
            segment, offset, length = spans[0]
            return memoryview(self._segment(segment, mapped=mapped))[offset : offset + length]
        whole = memoryview(mmap.mmap(-1, size)) if size else memoryview(bytearray())
        done = 0
        for segment, offset, length in spans:
            with (self._directory / f"{segment:06d}").open("rb", buffering=0) as file:
                file.seek(offset)
                _read_into(file, whole[done : done + length])
            done += length
        return whole

    def _segment(self, number: int, *, mapped: bool) -> mmap.mmap:
        found = self._segments_read.get((number, mapped))
        if found is None:
            path, size = self._directory / f"{number:06d}", self._segments[number]
            with path.open("rb", buffering=0) as file:
                if (length := os.fstat(file.fileno()).st_size) != size:
                    raise ValueError(f"{path} has {length} bytes, not {size}")
                if mapped:
                    found = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
                else:
                    found = mmap.mmap(-1, size)
                    _read_into(file, memoryview(found))
            self._segments_read[number, mapped] = found
        return found


class _Unpickler(pickle.Unpickler):
    def __init__(self, skeleton: bytes, make: Callable[[int], Any], buffers: Any) -> None:
        super().__init__(io.BytesIO(skeleton), buffers=buffers)
        self._make = make

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (_MODULE, "reference"):
            return functools.partial(_tensor, self._make)  # no method: it would hold what holds it, and all the maps
        return super().find_class(module, name)


def _tensor(make: Callable[[int], Any], number: int, attributes: Mapping[str, Any] | None = None) -> Any:
    made = make(number)
    if attributes and not isinstance(made, Described):
        made.__dict__.update(attributes)
    return made


def _read_into(file: Any, target: memoryview) -> None:
    while target:
        count = file.readinto(target)
        if not count:
            raise ValueError(f"{file.name} is shorter than it was")
        target = target[count:]


def device_for(torch: Any, device: str) -> str:
    """Where a tensor of that device goes in this process: `cuda` is the current one, whatever the number was."""
    kind = device.partition(":")[0]
    is_available = getattr(getattr(torch, kind, None), "is_available", None)
    return kind if is_available is not None and is_available() else "cpu"
