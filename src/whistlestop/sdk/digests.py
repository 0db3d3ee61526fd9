"""A hash per leaf of any state, the same in every process that holds an equal state. Imports no framework.

Neither the order of a dict nor who shares an object with whom counts; numbers count by their exact bits. What can't be
looked into gives a constant, not an error: this runs inside a save.
"""

import dataclasses
import enum
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

MANY = 1000  # children of one container; more of them become one leaf
RANDOM = "random"  # how the hash of a random state begins

_Leaves = Iterator[tuple[str, str]]
_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray)


def digest(state: Any) -> dict[str, str]:
    """`optimizer/state/0/exp_avg` -> `float32[3,4] 9f2c…`. The path of a state that is one leaf is empty."""
    found: dict[str, str] = {}
    for path, text in _walk(state, "", ()):
        # Two keys may read alike, as 1 and "1" do. Both count.
        found[path] = hashed("both", f"{found[path]}\n{text}".encode()) if path in found else text
    return found


def digest_files(directory: Path) -> dict[str, str]:
    """The same for files that a framework wrote: by what they hold where we can read it, else by their bytes."""
    from whistlestop.sdk.file_digests import digest_directory

    return digest_directory(Path(directory))


def hashed(kind: str, *chunks: Any) -> str:
    """The text of one leaf. `chunks` are anything with bytes in it."""
    import hashlib

    total = hashlib.blake2b(kind.encode(), digest_size=16)
    for chunk in chunks:
        total.update(chunk)
    return f"{kind} {total.hexdigest()}"


def _walk(state: Any, path: str, above: tuple[int, ...]) -> _Leaves:
    if isinstance(state, _PLAIN):
        yield path, _plain(state)
        return
    if id(state) in above:
        yield path, f"cycle {above[::-1].index(id(state))}"
        return
    above = (*above, id(state))
    try:
        yield from list(_open(state, path, above))
    except Exception as error:  # of a framework, or of the user's own class
        yield path, f"unreadable {_name(type(state))} ({type(error).__name__})"


def _open(state: Any, path: str, above: tuple[int, ...]) -> _Leaves:
    kind = type(state)
    for looks, take in _KINDS:
        if looks(state):
            yield path, take(state)
            return
    if _is_random_state(state):
        yield path, _folded(RANDOM, _children(_items(state), "", above))
    elif isinstance(state, tuple) and hasattr(state, "_asdict"):
        yield from _container(_name(kind), state._asdict().items(), path, above)
    elif isinstance(state, Mapping):
        yield from _container("dict", _named(state), path, above)
    elif isinstance(state, list | tuple):
        if all(isinstance(each, _PLAIN) for each in state):
            yield path, hashed(f"list[{len(state)}]", *(f"{_plain(each)}\n".encode() for each in state))
        else:
            yield from _container("list", _items(state), path, above)
    elif isinstance(state, Set):
        yield path, hashed(f"set[{len(state)}]", *sorted(_whole(each, above).encode() for each in state))
    elif isinstance(state, enum.Enum):
        yield path, hashed(_name(kind), state.name.encode())
    elif isinstance(state, type) or (callable(state) and hasattr(state, "__qualname__")):
        yield path, f"name {state.__module__}.{state.__qualname__}"
    elif dataclasses.is_dataclass(state):
        fields = [(each.name, getattr(state, each.name)) for each in dataclasses.fields(state)]
        yield from _container(_name(kind), fields, path, above)
    elif (inside := _state_inside(state)) is not None:
        yield from _walk(inside[0], path, above)
    else:
        yield from _reduced(state, path, above)


def _container(kind: str, items: Iterable[tuple[str, Any]], path: str, above: tuple[int, ...]) -> _Leaves:
    children = list(items)
    if not children:
        yield path, f"empty {kind}"
    elif len(children) > MANY:
        yield path, _folded(f"{kind}[{len(children)}]", _children(children, "", above))
    else:
        yield from _children(children, path, above)


def _children(items: Iterable[tuple[str, Any]], path: str, above: tuple[int, ...]) -> _Leaves:
    for name, child in items:
        yield from _walk(child, f"{path}/{name}" if path else name, above)


def _folded(kind: str, leaves: _Leaves) -> str:
    return hashed(kind, *(f"{path} {text}\n".encode() for path, text in leaves))


def _whole(state: Any, above: tuple[int, ...] = ()) -> str:
    """One hash for all of it."""
    return _folded("", _walk(state, "", above))


def _items(state: Iterable[Any]) -> list[tuple[str, Any]]:
    if isinstance(state, Mapping):
        return _named(state)
    return [(str(index), child) for index, child in enumerate(state)]


def _named(state: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    """By name, in an order that does not depend on how the dict was filled."""
    found = [(_key(key), _name(type(key)), child) for key, child in state.items()]
    return [(name, child) for name, _, child in sorted(found, key=lambda each: each[:2])]


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str(key)
    if isinstance(key, _PLAIN) or (isinstance(key, tuple) and all(isinstance(each, _PLAIN) for each in key)):
        return repr(key)
    return _whole(key).strip()[:12]  # what repr() says of an object may hold its address


def _plain(value: Any) -> str:
    match value:
        case None | bool() | int():
            text = str(value) if not isinstance(value, enum.Enum) else str(value.value)
            return text if len(text) < 32 else hashed("int", text.encode())
        case float():
            return f"float {struct.pack('>d', value).hex()}"
        case complex():
            return f"complex {struct.pack('>dd', value.real, value.imag).hex()}"
        case str():
            return hashed(f"str[{len(value)}]", value.encode("utf-8", "surrogatepass"))
        case _:
            return hashed(f"bytes[{len(value)}]", value)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _from(state: Any, *packages: str) -> bool:
    """Whether a class of one of these packages made it, by itself or as a base."""
    return any(base.__module__.partition(".")[0] in packages for base in type(state).__mro__)


# Arrays and tensors.


def _is_tensor(state: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(state, getattr(torch, "Tensor", ()))


def _tensor(state: Any) -> str:
    torch: Any = sys.modules["torch"]
    kind = f"{str(state.dtype).removeprefix('torch.')}[{','.join(map(str, state.shape))}]"
    state = state.detach()
    if hasattr(state, "to_local"):  # a DTensor: every rank has its own piece
        state = state.to_local()
    if state.is_meta:
        return f"{kind} without data"
    if state.layout is not torch.strided:
        dense = state.coalesce() if state.layout is torch.sparse_coo else state.to_sparse_coo().coalesce()
        return hashed(f"sparse {kind}", _tensor(dense.indices()).encode(), _tensor(dense.values()).encode())
    if state.is_quantized:
        scale = repr((str(state.qscheme()), _quantized_by(state, torch)))
        return hashed(f"quantized {kind}", scale.encode(), _tensor(state.int_repr()).encode())
    if state.is_complex():
        state = torch.view_as_real(state.resolve_conj())
    flat = state.resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8)
    try:
        return hashed(kind, memoryview(flat.numpy()))
    except RuntimeError:  # a torch without NumPy
        return hashed(kind, bytes(flat.tolist()))


def _quantized_by(state: Any, torch: Any) -> Any:
    if state.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return state.q_scale(), state.q_zero_point()
    return state.q_per_channel_scales().tolist(), state.q_per_channel_zero_points().tolist(), state.q_per_channel_axis()


def _is_array(state: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(state, (getattr(numpy, "ndarray", ()), getattr(numpy, "generic", ())))


def _array(state: Any) -> str:
    numpy: Any = sys.modules["numpy"]
    state = numpy.asarray(state)
    kind = f"{state.dtype.name}[{','.join(map(str, state.shape))}]"
    if state.dtype.names:  # between the fields there may be bytes that nobody wrote
        return hashed(kind, *(f"{name} {_array(state[name])}\n".encode() for name in state.dtype.names))
    if state.dtype.hasobject:
        return hashed(kind, *(f"{_whole(each)}\n".encode() for each in state.reshape(-1).tolist()))
    if not state.dtype.isnative:
        state = state.astype(state.dtype.newbyteorder("="))
    return hashed(kind, numpy.ascontiguousarray(state).reshape(-1).view(numpy.uint8).data)


def _is_jax(state: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(state, getattr(jax, "Array", ()))


def _jax(state: Any) -> str:
    jax: Any = sys.modules["jax"]
    if jax.dtypes.issubdtype(state.dtype, jax.dtypes.prng_key):
        return hashed(RANDOM, str(state.dtype).encode(), _jax(jax.random.key_data(state)).encode())
    if not state.is_fully_addressable:  # every process hashes the pieces that it holds
        pieces = sorted((str(each.index), _array(each.data)) for each in state.addressable_shards)
        return hashed(f"{state.dtype}{list(state.shape)}", repr(pieces).encode())
    return _array(state)


def _is_numpy_like(state: Any) -> bool:
    """tf.Tensor, tf.Variable, keras.Variable; and whatever else gives an array of itself."""
    if isinstance(state, type):
        return False
    return callable(getattr(state, "numpy", None)) or hasattr(state, "__array__")


def _numpy_like(state: Any) -> str:
    import importlib

    taken = state.numpy() if callable(getattr(state, "numpy", None)) else None
    if isinstance(taken, _PLAIN):  # of a string tensor without dimensions
        return _plain(taken)
    # Only objects of somebody who has NumPy come here.
    return _array(importlib.import_module("numpy").asarray(state if taken is None else taken))


_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Any], str]], ...] = (
    (_is_tensor, _tensor),
    (_is_array, _array),
    (_is_jax, _jax),
    (_is_numpy_like, _numpy_like),
)


# Objects.


def _is_random_state(state: Any) -> bool:
    """As random.getstate(), numpy's get_state() and bit_generator.state give it."""
    if isinstance(state, Mapping):
        return "bit_generator" in state and "state" in state
    if not isinstance(state, tuple) or not state:
        return False
    if len(state) == 3 and isinstance(state[0], int) and isinstance(state[1], tuple):
        return len(state[1]) == 625
    return state[0] == "MT19937" if isinstance(state[0], str) else False


def _state_inside(state: Any) -> tuple[Any] | None:
    """What an object tells of itself; in a tuple, as it may be None."""
    if hasattr(state, "bit_generator"):  # numpy.random.Generator
        return (state.bit_generator.state,)
    if _from(state, "random") and hasattr(state, "getstate"):
        return (state.getstate(),)
    if _from(state, "torch", "numpy") and hasattr(state, "get_state"):  # torch.Generator, RandomState
        return (state.get_state(),)
    if _from(state, "tensorflow") and hasattr(state, "state") and hasattr(state, "algorithm"):  # tf.random.Generator
        return ({"algorithm": int(state.algorithm), "state": state.state},)
    if callable(getattr(state, "state_dict", None)):
        return (state.state_dict(),)
    return None


def _reduced(state: Any, path: str, above: tuple[int, ...]) -> _Leaves:
    """As pickle would take it apart, but looked into: the bytes of a pickle depend on who shares what."""
    reduced = state.__reduce_ex__(4)
    if isinstance(reduced, str):
        yield path, f"name {type(state).__module__}.{reduced}"
        return
    make, arguments, inner, items, pairs = (*reduced, None, None, None)[:5]
    made = f"{make.__module__}.{make.__qualname__}"
    yield from _walk([made, *arguments] if arguments else made, f"{path}/()" if path else "()", above)
    if isinstance(inner, tuple) and len(inner) == 2 and all(each is None or isinstance(each, dict) for each in inner):
        inner = {**(inner[0] or {}), **(inner[1] or {})}  # __dict__ and __slots__
    if inner is not None:
        yield from _walk(inner, path, above)
    if items is not None:
        yield from _container("list", _items(list(items)), path, above)
    if pairs is not None:
        yield from _container("dict", _named(dict(pairs)), path, above)
