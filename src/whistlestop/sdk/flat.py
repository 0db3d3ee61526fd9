"""A part's state taken apart: its shape and small things into an index, the bytes of its tensors and arrays into
segments. Nothing is copied while it is planned; copying.py does that, and mapped.py puts it together again.

    parts/NAME.pickle       a state without tensors and arrays, or a small one: a plain pickle
    parts/NAME/index        else: the skeleton, a pickle with references in the place of tensors, and where these are
    parts/NAME/000000 …     the bytes: storages of 1 MiB and more alone, smaller ones together
"""

import io
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from whistlestop.sdk.copying import Copy, from_buffer

VERSION: Final = 1
INDEX: Final = "index"
SMALL: Final = 64 << 10  # states that need less than this stay plain pickles
ALONE: Final = 1 << 20  # a storage of this size has segments of its own: unchanged, it keeps its hash
LONGEST: Final = 32 << 20  # of a segment
_SHARED: Final = 8 << 20  # where a segment of small ones ends
PAGE: Final = 4096  # each file begins at one: it can be written as it lies
_ALIGN: Final = 64  # of storages in a segment: mapped, they are tensors at once
_ZEROS: Final = bytes(_ALIGN)
_DEVICES: Final = ("cpu", "cuda", "xpu", "mps")

Span = tuple[int, int, int]  # segment, offset, size


class TensorEntry(NamedTuple):
    """A row of the index. Offsets and strides in elements, as torch counts them."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: int
    requires_grad: bool
    parameter: bool
    device: str


def reference(number: int, attributes: dict[str, Any] | None = None) -> Any:
    """Stands for tensor `number` in the skeleton. Whoever reads it puts something in its place."""
    raise pickle.UnpicklingError("this is the skeleton of a state: read it with whistlestop.load")


@dataclass
class Plan:
    """`files`: name and size of each, in the order in which they lie in the buffer, each at a page's beginning."""

    files: list[tuple[str, int, int]] = field(default_factory=list)  # name, offset, size
    copies: list[Copy] = field(default_factory=list)
    pads: list[tuple[int, int]] = field(default_factory=list)  # between storages: zeros, or the hash would change
    size: int = 0

    def add_bytes(self, name: str, data: bytes) -> None:
        self.copies.append(from_buffer(self.size, memoryview(data)))
        self._add_file(name, len(data))

    def _add_file(self, name: str, size: int) -> None:
        self.files.append((name, self.size, size))
        self.size += -(-size // PAGE) * PAGE

    def write_pads(self, target: memoryview) -> None:
        for offset, size in self.pads:
            target[offset : offset + size] = _ZEROS[:size]


def plan_state(plan: Plan, name: str, state: Any) -> None:
    """Add what `state` needs to the plan, as part `name`. It must not change until it is copied."""
    taken = _Taken(name, state)
    if not taken.storages:
        plan.add_bytes(f"{name}.pickle", taken.skeleton)
        return
    if taken.is_small:
        plan.add_bytes(f"{name}.pickle", pickle.dumps(state, protocol=5))
        return
    spans, segments = _pack([each.size for each in taken.storages])
    index = {
        "version": VERSION,
        "skeleton": taken.skeleton,
        "tensors": [tuple(each) for each in taken.tensors],
        "buffers": taken.buffers,
        "storages": list(zip((each.size for each in taken.storages), spans, strict=True)),
        "segments": segments,
    }
    plan.add_bytes(f"{name}/{INDEX}", pickle.dumps(index, protocol=5))
    starts = []
    for number, size in enumerate(segments):
        starts.append(plan.size)
        plan._add_file(f"{name}/{number:06d}", size)
    for storage, own in zip(taken.storages, spans, strict=True):
        done = 0
        for segment, offset, size in own:
            plan.copies.append(storage.copy(starts[segment] + offset, done, size, whole=len(own) == 1))
            done += size
            if pad := -(offset + size) % _ALIGN:
                end = offset + size + pad
                if end <= segments[segment]:
                    plan.pads.append((starts[segment] + offset + size, pad))


def _pack(sizes: Sequence[int]) -> tuple[list[list[Span]], list[int]]:
    """Where each storage goes, and how long the segments are. The order is that of the state: the same every time."""
    spans: list[list[Span]] = [[] for _ in sizes]
    segments: list[int] = []
    shared = -1
    for number, size in enumerate(sizes):
        if size >= ALONE:
            for done in range(0, size, LONGEST):
                length = min(LONGEST, size - done)
                spans[number].append((len(segments), 0, length))
                segments.append(length)
        elif size:
            if shared < 0 or segments[shared] + size > _SHARED:
                shared = len(segments)
                segments.append(0)
            offset = -(-segments[shared] // _ALIGN) * _ALIGN
            spans[number].append((shared, offset, size))
            segments[shared] = offset + size
    return spans, segments


# Taking a state apart.


@dataclass(slots=True)
class _Storage:
    """Bytes that go into segments: a stretch of a torch storage, one tensor made contiguous, or a buffer."""

    size: int
    address: int = 0
    keep: Any = None
    tensor: Any = None  # to be copied by torch: contiguous afterwards
    device: Any = None  # a torch storage of another device, from `address` bytes on

    def copy(self, offset: int, start: int, size: int, *, whole: bool) -> Copy:
        if self.tensor is not None or self.device is not None:
            flat = self._on_device(start, size)
            return Copy(offset, size, put=lambda target: _fetch(flat, target))
        if isinstance(self.keep, memoryview):
            return from_buffer(offset, self.keep if whole else self.keep[start : start + size])
        return Copy(offset, size, self.address + start, self.keep)

    def _on_device(self, start: int, size: int) -> Any:
        torch = sys.modules["torch"]
        if self.device is not None:
            flat = torch.empty(0, dtype=torch.uint8, device=self.device.device)
            return flat.set_(self.device, self.address + start, (size,), (1,))
        if self.keep is None:  # made contiguous once, whatever the number of segments
            whole = torch.empty(self.tensor.shape, dtype=self.tensor.dtype, device=self.tensor.device)
            self.keep = whole.copy_(self.tensor.detach()).view(-1).view(torch.uint8)
        return self.keep[start : start + size]


def _fetch(flat: Any, target: memoryview) -> None:
    torch = sys.modules["torch"]
    torch.frombuffer(target, dtype=torch.uint8).copy_(flat)


class _Taken(pickle.Pickler):
    """Pickles the state into `skeleton`, and keeps what it found of tensors and buffers."""

    def __init__(self, name: str, state: Any) -> None:
        self._name = name
        stream = io.BytesIO()
        super().__init__(stream, protocol=5, buffer_callback=self._take_buffer)
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        self._strided = getattr(torch, "strided", None)
        # By exact type: what others have derived from them knows best how it is stored.
        self._kinds: tuple[Any, ...] = ()
        if torch is not None and hasattr(torch, "nn"):
            self._kinds = torch.Tensor, torch.nn.Parameter
        self._array = getattr(numpy, "ndarray", None)
        self._names: dict[Any, str] = {}  # of dtypes and devices
        self._found: list[Any] = []  # tensors
        self._attached: dict[int, int] = {}  # torch's own storages -> number
        self._raw: list[Any] = []  # torch storages, or memoryviews of buffers, in order of appearance
        self._users: list[list[int]] = []  # of each: numbers of its tensors
        self._taken_buffers: list[int] = []
        self.dump(state)
        self.skeleton = stream.getvalue()
        self.tensors: list[TensorEntry] = []
        self.storages: list[_Storage] = []
        self.buffers: list[int] = []
        self._lay_out()

    @property
    def is_small(self) -> bool:
        """As a plain pickle, with whole storages. One with tensors of a device could be loaded only where there is one
        of these."""
        if len(self.skeleton) + sum(each.size for each in self.storages) >= SMALL:
            return False
        raw = sum(each.nbytes if isinstance(each, memoryview) else each.nbytes() for each in self._raw)
        return len(self.skeleton) + raw < SMALL and all(each.device.type == "cpu" for each in self._found)

    def reducer_override(self, thing: Any) -> Any:
        kind = type(thing)
        if kind in self._kinds:
            number = self._take_tensor(thing)
            if number is not None:
                attributes = thing.__dict__
                return reference, (number, dict(attributes)) if attributes else (number,)
        elif kind is self._array and thing.nbytes >= PAGE and not thing.flags.forc and not thing.dtype.hasobject:
            return thing.copy(order="C").__reduce_ex__(5)
        return NotImplemented

    def _take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        self._taken_buffers.append(len(self._raw))
        self._raw.append(buffer.raw())
        self._users.append([])
        return False

    def _take_tensor(self, thing: Any) -> int | None:
        """None: torch's own way to pickle it is the better one."""
        if thing.layout is not self._strided or thing.device.type not in _DEVICES or thing.is_quantized:
            return None
        if thing._backward_hooks or thing.is_conj() or thing.is_neg() or thing.is_nested:
            return None
        storage = thing.untyped_storage()
        key = storage._cdata
        number = self._attached.get(key)
        if number is None:
            number = self._attached[key] = len(self._raw)
            self._raw.append(storage)  # held, so that no other one comes to lie there
            self._users.append([])
        self._users[number].append(len(self._found))
        self._found.append(thing)
        return len(self._found) - 1

    def _lay_out(self) -> None:
        rows: dict[int, TensorEntry] = {}
        buffers = set(self._taken_buffers)
        places: dict[int, int] = {}
        for number, (raw, users) in enumerate(zip(self._raw, self._users, strict=True)):
            if number in buffers:
                places[number] = len(self.storages)
                self.storages.append(_Storage(raw.nbytes, keep=raw))
            else:
                self._lay_out_storage(raw, users, rows)
        self.buffers = [places[number] for number in self._taken_buffers]
        self.tensors = [rows[number] for number in range(len(self._found))]

    def _lay_out_storage(self, storage: Any, users: Sequence[int], rows: dict[int, TensorEntry]) -> None:
        if len(users) == 1:  # nearly all are like this: one tensor, and nothing else, in one piece
            only = self._found[users[0]]
            if only.is_contiguous() and (size := storage.nbytes()) == only.nbytes and not only.storage_offset():
                rows[users[0]] = self._entry(only, 0, only.stride())
                self._add(storage, 0, size, only.device.type)
                return
        found = [self._found[number] for number in users]
        low, high, used = _extent(found)
        if high > storage.nbytes():  # resized under its tensors: torch would pickle what nobody can load
            shapes = ", ".join(str(tuple(each.shape)) for each in found if each.numel())
            raise ValueError(
                f"{self._name}: tensors of the shapes {shapes} need {high} bytes, and their memory has been given back "
                f"but for {storage.nbytes()}"
            )
        size = max(0, high - low)
        if used * 2 < size and size > PAGE:  # a few views into something large: each by itself
            same: dict[Any, TensorEntry] = {}
            for number, tensor in zip(users, found, strict=True):
                key = tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()
                if key not in same:
                    same[key] = self._entry(tensor, 0, _contiguous(tensor.shape))
                    self.storages.append(_Storage(tensor.nbytes, tensor=tensor))
                rows[number] = self._entry(tensor, 0, same[key].stride)._replace(storage=same[key].storage)
            return
        for number, tensor in zip(users, found, strict=True):
            offset = tensor.storage_offset() - low // tensor.element_size() if tensor.numel() else 0
            rows[number] = self._entry(tensor, offset, tensor.stride())
        self._add(storage, low, size, found[0].device.type)

    def _add(self, storage: Any, low: int, size: int, device: str) -> None:
        if device == "cpu":
            self.storages.append(_Storage(size, storage.data_ptr() + low, storage))
        else:
            self.storages.append(_Storage(size, low, device=storage))

    def _entry(self, tensor: Any, offset: int, stride: tuple[int, ...]) -> TensorEntry:
        """Of a tensor of the storage that is added next."""
        dtype, device = tensor.dtype, tensor.device
        names = self._names
        return TensorEntry(
            names.get(dtype) or names.setdefault(dtype, str(dtype).removeprefix("torch.")),
            tuple(tensor.shape),
            stride,
            offset,
            len(self.storages),
            tensor.requires_grad,
            type(tensor) is self._kinds[1],
            names.get(device) or names.setdefault(device, str(device)),
        )


def _extent(tensors: Sequence[Any]) -> tuple[int, int, int]:
    """The first and the last byte that any of them uses, and how many they use together at most."""
    low, high, used = sys.maxsize, 0, 0
    for tensor in tensors:
        count, width = tensor.numel(), tensor.element_size()
        if not count:
            continue
        first = tensor.storage_offset()
        reach = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
        low = min(low, first * width)
        high = max(high, (first + reach) * width)
        used += count * width
    if not high:
        return 0, 0, 0
    return low - low % 16, high, used  # 16: the widest element, so that every offset stays a whole number


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    stride: list[int] = []
    step = 1
    for length in reversed(shape):
        stride.append(step)
        step *= max(1, length)
    return tuple(reversed(stride))
