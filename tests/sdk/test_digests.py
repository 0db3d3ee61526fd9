"""A state's digest says whether two processes hold the same bits, and where they do not."""

import collections
import dataclasses
import enum
import json
import random
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from whistlestop.sdk.digests import MANY, digest, digest_files
from whistlestop.testing.missing import missing


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Settings:
    rate: float
    names: list[str]


class Colour(enum.Enum):
    RED = 1


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Stubborn:
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("no")


def module(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        missing(f"{name} is not installed")


def test_every_leaf_has_its_path() -> None:
    state = {"state": {0: {"step": 3, "names": ["a", "b"]}}, "groups": [{"lr": 0.1}, Pair(1, None)]}
    assert set(digest(state)) == {
        "state/0/step",
        "state/0/names",
        "groups/0/lr",
        "groups/1/left",
        "groups/1/right",
    }
    assert set(digest(5)) == {""}


def test_only_the_leaf_that_changed_has_another_hash() -> None:
    one = digest({"a": {"x": 1.0, "y": 2.0}, "b": "text"})
    two = digest({"a": {"x": 1.0, "y": 2.5}, "b": "text"})
    assert [leaf for leaf in one if one[leaf] != two[leaf]] == ["a/y"]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (0.0, -0.0),
        (0.1, 0.1 + 2**-55),
        (1, 1.0),
        (1, True),
        (1, "1"),
        (b"a", "a"),
        (10**40, 10**40 + 1),
        ([1, 2], [2, 1]),
        ([], {}),
        ([1, [2]], [[1], 2]),
        ({1}, {2}),
        ({1: 2}, {"1": 3}),
        (Colour.RED, "RED"),
        (Settings(0.1, ["a"]), Settings(0.1, ["b"])),
        (Plain(1), Plain(2)),
        (Slotted(1), Slotted(2)),
        (collections.deque([1]), collections.deque([2])),
        (complex(1, 2), complex(2, 1)),
        (range(3), range(4)),
        (len, max),
        (random.Random(1), random.Random(2)),
        ({1: "a", "1": "b"}, {1: "b", "1": "a"}),
        ({i: i for i in range(MANY + 1)}, {i: i + (i == 7) for i in range(MANY + 1)}),
    ],
)
def test_what_is_not_the_same_has_another_digest(one: Any, two: Any) -> None:
    assert digest(one) != digest(two)
    assert digest(one) == digest(one)


def test_the_order_of_a_dict_and_of_a_set_does_not_count() -> None:
    assert digest({"a": 1, "b": 2, 3: 4}) == digest({3: 4, "b": 2, "a": 1})
    assert digest(set("abcdefgh")) == digest(set("hgfedcba"))


def test_who_shares_an_object_does_not_count() -> None:
    shared = [1.5, [2.5]]
    assert digest({"a": shared, "b": shared}) == digest({"a": [1.5, [2.5]], "b": [1.5, [2.5]]})


def test_a_state_that_holds_itself_comes_to_an_end() -> None:
    state: dict[str, Any] = {"a": 1}
    state["self"] = state
    assert digest(state)["self"].startswith("cycle")


def test_what_cannot_be_looked_into_is_no_error() -> None:
    found = digest({"lock": threading.Lock(), "stubborn": Stubborn(), "good": 1})
    assert found["lock"].startswith("unreadable")
    assert found["stubborn"].startswith("unreadable")
    assert found == digest({"lock": threading.Lock(), "stubborn": Stubborn(), "good": 1})


def test_a_large_container_is_one_leaf() -> None:
    assert set(digest({"many": {str(i): [i, []] for i in range(MANY + 1)}})) == {"many"}


def test_a_random_state_says_that_it_is_one() -> None:
    assert digest(random.Random(3).getstate())[""].startswith("random ")
    assert digest(random.Random(3)) == digest(random.Random(3).getstate())


def test_two_processes_with_different_hash_seeds_agree() -> None:
    code = (
        "import collections, json, random; from whistlestop.sdk.digests import digest\n"
        "class Thing: pass\n"
        "thing = Thing(); thing.names = set('abcdef'); thing.key = {frozenset('xyz'): 1}\n"
        "state = {'t': thing, 'r': random.Random(1).getstate(), 'c': collections.Counter('abca'), 'f': [0.1, None]}\n"
        "print(json.dumps(digest(state)))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert json.loads(said[0]) == json.loads(said[1])
    assert "unreadable" not in said[0]


def test_numpy_arrays_count_by_type_shape_and_bits() -> None:
    numpy = module("numpy")
    array = numpy.arange(6, dtype="f4").reshape(2, 3)
    assert digest(array)[""].startswith("float32[2,3] ")
    assert digest(array) == digest(numpy.asfortranarray(array)) == digest(array.astype(">f4").astype("f4"))
    assert digest(array) != digest(array.reshape(3, 2))
    assert digest(array) != digest(array.astype("f8"))
    assert digest(numpy.float32(1)) != digest(numpy.float32(2))
    assert digest(numpy.array(["a", None], dtype=object)) == digest(numpy.array(["a", None], dtype=object))
    structured = numpy.zeros(2, dtype={"names": ["a", "b"], "formats": ["i1", "i8"], "offsets": [0, 8], "itemsize": 16})
    assert digest(structured) == digest(structured.copy())
    for generator in (numpy.random.default_rng, numpy.random.RandomState):
        assert digest(generator(1)) == digest(generator(1))
        assert digest(generator(1)) != digest(generator(2))
        assert digest(generator(1))[""].startswith("random ")


def test_torch_tensors_count_by_their_bits_whatever_their_type() -> None:
    torch = module("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64):
        tensor = torch.arange(6).reshape(2, 3).to(dtype)
        other = tensor.clone()
        other[0, 0] = 1
        assert digest(tensor) == digest(tensor.t().contiguous().t()), dtype
        assert digest(tensor) != digest(other), dtype
        assert not digest(tensor)[""].startswith("unreadable"), dtype
    assert digest(torch.tensor(2.0)) == digest(torch.nn.Parameter(torch.tensor(2.0)))
    assert digest(torch.zeros(0)) == digest(torch.zeros(0))
    assert digest(torch.eye(3).to_sparse()) == digest(torch.eye(3).to_sparse())
    assert digest(torch.eye(3, device="meta"))[""] == "float32[3,3] without data"
    assert digest(torch.Generator().manual_seed(1)) == digest(torch.Generator().manual_seed(1))
    assert digest(torch.Generator().manual_seed(1)) != digest(torch.Generator().manual_seed(2))
    model = torch.nn.Linear(2, 1)
    assert set(digest(model.state_dict())) == {"weight", "bias"} == set(digest(model))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert {"state/0/exp_avg", "state/0/step", "param_groups/0/lr"} <= set(digest(optimizer.state_dict()))


def test_jax_arrays_and_keys_have_digests() -> None:
    jax = module("jax")
    assert digest(jax.numpy.ones(3)) == digest(jax.numpy.ones(3))
    assert digest(jax.numpy.ones(3)) != digest(jax.numpy.zeros(3))
    assert digest(jax.numpy.ones(3, dtype="bfloat16"))[""].startswith("bfloat16[3] ")
    assert digest(jax.random.key(1)) == digest(jax.random.key(1)) != digest(jax.random.key(2))
    assert digest(jax.random.key(1))[""].startswith("random ")


def test_files_are_read_by_what_they_hold(tmp_path: Path) -> None:
    torch = module("torch")
    numpy = module("numpy")
    for name in ("one", "two"):
        place = tmp_path / name
        (place / "deep").mkdir(parents=True)
        torch.save({"w": torch.ones(2), "name": "a"}, place / "model.pt")
        numpy.savez(place / "arrays.npz", a=numpy.ones(3))
        (place / "state.json").write_text('{"a": 1, "b": [1, 2]}' if name == "one" else '{"b": [1, 2],\n "a": 1}')
        (place / "deep" / "raw.dat").write_bytes(b"raw")
        (place / "broken.json").write_bytes(b"{")
        with zipfile.ZipFile(place / "model.keras", "w") as archive:
            archive.writestr("metadata.json", f'{{"date_saved": "{name}"}}')
            archive.writestr("config.json", "{}")
    one = digest_files(tmp_path / "one")
    assert one == digest_files(tmp_path / "two")
    assert {"model.pt/w", "arrays.npz/a.npy", "state.json/a", "deep/raw.dat", "broken.json"} <= set(one)
    (tmp_path / "two" / "deep" / "raw.dat").write_bytes(b"row")
    two = digest_files(tmp_path / "two")
    assert [leaf for leaf in one if one[leaf] != two[leaf]] == ["deep/raw.dat"]


def test_safetensors_are_read_without_their_library(tmp_path: Path) -> None:
    module("safetensors")
    torch = module("torch")
    from safetensors.torch import save_file

    save_file({"w": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "m.safetensors", metadata={"when": "today"})
    one = digest_files(tmp_path)
    save_file({"w": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "m.safetensors", metadata={"when": "now"})
    assert one == digest_files(tmp_path)
    assert set(one) == {"m.safetensors/w"}


TENSORFLOW = """
import json, os, sys, pathlib
import tensorflow as tf
from whistlestop.sdk.digests import digest, digest_files
variable = tf.Variable([1.0, 2.0])
assert digest(variable) == digest(tf.constant([1.0, 2.0])) != digest(tf.constant([1.0, 3.0]))
assert digest(tf.constant("text")) == digest(tf.constant("text"))
assert digest(tf.random.Generator.from_seed(1)) == digest(tf.random.Generator.from_seed(1))
found = []
for name, saves in (("one", 1), ("two", 2)):
    checkpoint = tf.train.Checkpoint(v=variable)
    manager = tf.train.CheckpointManager(checkpoint, name, max_to_keep=1)
    for _ in range(saves):
        manager.save()
    pathlib.Path(name, "more.json").write_text("{}")
    found.append(digest_files(pathlib.Path(name)))
print(json.dumps(found))
"""

ORBAX = """
import json, pathlib
import jax.numpy as jnp, orbax.checkpoint as ocp
from whistlestop.sdk.digests import digest_files
found = []
for name in ("one", "two"):
    with ocp.StandardCheckpointer() as saver:
        saver.save(pathlib.Path(name).absolute() / "state", {"w": jnp.ones(3), "n": {"b": jnp.zeros(2)}})
    found.append(digest_files(pathlib.Path(name)))
print(json.dumps(found))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("package", "code", "leaves"),
    [("tensorflow", TENSORFLOW, {"v", "more.json"}), ("orbax", ORBAX, {"state/w", "state/n/b"})],
)
def test_checkpoints_in_many_files_are_one_thing(package: str, code: str, leaves: set[str], tmp_path: Path) -> None:
    """In a process of its own: these frameworks are heavy, and leave threads behind."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        missing(f"{package} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout.splitlines()[-1])
    assert set(one) == leaves
    assert one == two
