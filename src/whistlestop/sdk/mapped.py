"""A state that flat.py took apart, put together again: its files are mapped, and read when somebody looks at them.
What is written to a tensor stays in this process: the files are the checkpoint's."""

import io
import mmap
import os
import pickle
from collections.abc import Mapping
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
        self._mapped: dict[int, mmap.mmap] = {}
        self._held: dict[int, Any] = {}  # torch storages: tensors that shared one do so again

    def load(self, *, own_devices: bool = False) -> Any:
        """The whole state. Its tensors are on the CPU, unless each is asked to go where it was."""
        return self._unpickle(lambda number: self.tensor(number, own_device=own_devices))

    def describe(self) -> Any:
        """The state with a Described in each tensor's place; arrays are mapped. Not every state can be had like this:
        what makes something of its tensors while it is unpickled fails on them."""
        return self._unpickle(lambda number: Described(number, self.tensors[number].dtype, self.tensors[number].shape))

    def tensor(self, number: int, *, own_device: bool = False) -> Any:
        """One of them, and nothing else is read."""
        import torch  # what is stored here is torch's

        entry = self.tensors[number]
        storage = self._torch_storage(entry.storage)
        tensor = torch.empty(0, dtype=getattr(torch, entry.dtype))
        tensor.set_(storage, entry.offset, entry.shape, entry.stride)
        if own_device and entry.device != "cpu" and _is_there(torch, entry.device):
            tensor = tensor.to(entry.device)
        if entry.parameter:
            return torch.nn.Parameter(tensor, requires_grad=entry.requires_grad)
        return tensor.requires_grad_() if entry.requires_grad else tensor

    def _unpickle(self, make: Any) -> Any:
        return _Unpickler(self._skeleton, make, (self._buffer(number) for number in self._buffers)).load()

    def _torch_storage(self, number: int) -> Any:
        held = self._held.get(number)
        if held is None:
            import torch

            size = self._storages[number][0]
            if size:
                held = torch.frombuffer(self._buffer(number), dtype=torch.uint8).untyped_storage()
            else:
                held = torch.empty(0, dtype=torch.uint8).untyped_storage()
            self._held[number] = held
        return held

    def _buffer(self, number: int) -> memoryview:
        size, spans = self._storages[number]
        if len(spans) == 1:
            segment, offset, length = spans[0]
            return memoryview(self._map(segment))[offset : offset + length]
        whole = memoryview(mmap.mmap(-1, size)) if size else memoryview(bytearray())
        done = 0
        for segment, offset, length in spans:
            with (self._directory / f"{segment:06d}").open("rb", buffering=0) as file:
                file.seek(offset)
                _read_into(file, whole[done : done + length])
            done += length
        return whole

    def _map(self, segment: int) -> mmap.mmap:
        found = self._mapped.get(segment)
        if found is None:
            path = self._directory / f"{segment:06d}"
            handle = os.open(path, os.O_RDONLY)
            try:
                if os.fstat(handle).st_size != self._segments[segment]:
                    raise ValueError(f"{path} has {os.fstat(handle).st_size} bytes, not {self._segments[segment]}")
                found = mmap.mmap(handle, self._segments[segment], access=mmap.ACCESS_COPY)
            finally:
                os.close(handle)
            self._mapped[segment] = found
        return found


class _Unpickler(pickle.Unpickler):
    def __init__(self, skeleton: bytes, make: Any, buffers: Any) -> None:
        super().__init__(io.BytesIO(skeleton), buffers=buffers)
        self._make = make

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (_MODULE, "reference"):
            return self._tensor
        return super().find_class(module, name)

    def _tensor(self, number: int, attributes: Mapping[str, Any] | None = None) -> Any:
        made = self._make(number)
        if attributes and not isinstance(made, Described):
            made.__dict__.update(attributes)
        return made


def _read_into(file: Any, target: memoryview) -> None:
    while target:
        count = file.readinto(target)
        if not count:
            raise ValueError(f"{file.name} is shorter than it was")
        target = target[count:]


def _is_there(torch: Any, device: str) -> bool:
    kind, _, number = device.partition(":")
    module = getattr(torch, kind, None)
    if module is None or not module.is_available():
        return False
    return int(number or 0) < (module.device_count() if hasattr(module, "device_count") else 1)
