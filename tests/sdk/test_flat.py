"""A state taken apart and put together again is the same state."""

import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from whistlestop.sdk.copying import copy_all, from_buffer
from whistlestop.sdk.flat import ALONE, LONGEST, PAGE, SMALL, Plan, plan_state
from whistlestop.sdk.mapped import Described, Flat, device_for
from whistlestop.testing.wait import until

QUICK = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.complex64, torch.complex128,
]  # fmt: skip
WEIGHT = torch.arange(SMALL, dtype=torch.uint8)  # makes every state large enough to be taken apart


def lay(directory: Path, state: Any, name: str = "state") -> dict[str, bytes]:
    """As files of a checkpoint."""
    plan = Plan()
    plan_state(plan, name, state)
    buffer = memoryview(bytearray(b"\xff" * plan.size))
    copy_all(buffer, plan.copies)
    plan.write_pads(buffer)
    files = {file: bytes(buffer[offset : offset + size]) for file, offset, size in plan.files}
    for file, data in files.items():
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_bytes(data)
    return files


def there_and_back(directory: Path, state: Any) -> Any:
    for left in (directory / "state").glob("*"):
        left.unlink()
    lay(directory, {"it": state, "weight": WEIGHT})
    return Flat(directory / "state").load()["it"]


def same(one: torch.Tensor, other: torch.Tensor) -> None:
    assert (type(one), one.dtype, one.shape, one.stride()) == (type(other), other.dtype, other.shape, other.stride())
    assert one.requires_grad == other.requires_grad
    raw = [torch.empty(each.shape, dtype=each.dtype).copy_(each.detach()).view(-1) for each in (one, other)]
    assert torch.equal(*(each.view(torch.uint8) for each in raw))


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    count = int(np.prod(shape)) if shape else 1
    raw = torch.randint(0, 2, (count * dtype.itemsize,), dtype=torch.uint8)
    tensor = raw.view(dtype).view(shape) if count else torch.empty(shape, dtype=dtype)
    for _ in range(draw(st.integers(0, 2))):
        if tensor.dim() >= 2 and draw(st.booleans()):
            tensor = tensor.transpose(0, -1)
        elif tensor.dim() and tensor.shape[0] > 1:
            tensor = tensor[draw(st.integers(0, tensor.shape[0] - 1)) :: draw(st.integers(1, 3))]
    if dtype.is_floating_point and dtype.itemsize > 1 and draw(st.booleans()):
        tensor = torch.nn.Parameter(tensor, requires_grad=draw(st.booleans()))
    return tensor


@QUICK
@given(state=st.dictionaries(st.text(max_size=5), st.lists(tensors(), max_size=3), max_size=3))
def test_tensors_come_back_with_type_shape_stride_and_bytes(tmp_path: Path, state: dict[str, list[Any]]) -> None:
    found = there_and_back(tmp_path, state)
    assert {name: len(each) for name, each in found.items()} == {name: len(each) for name, each in state.items()}
    for name, own in state.items():
        for one, other in zip(own, found[name], strict=True):
            same(one, other)


@QUICK
@given(
    array=arrays.arrays(
        dtype=st.sampled_from(["f4", "f8", "i2", "u1", "?", "c8", "U3", "datetime64[s]", ">f4"]),
        shape=arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9),
    ),
    turned=st.booleans(),
    every=st.integers(1, 3),
)
def test_arrays_come_back(tmp_path: Path, array: Any, turned: bool, every: int) -> None:
    array = array.T if turned else array
    array = array[::every] if array.ndim else array
    found = there_and_back(tmp_path, [array, array])
    plain = pickle.loads(pickle.dumps(array, protocol=5))  # some lose the order of their bytes here, not their values
    assert (found[0].dtype, found[0].shape) == (plain.dtype, plain.shape)
    assert found[0].tobytes() == plain.tobytes()
    assert found[0] is found[1]


def test_what_shared_its_memory_does_so_again_and_stays_as_large_as_it_was(tmp_path: Path) -> None:
    base = torch.arange(1000, dtype=torch.float32)
    model = torch.nn.Linear(10, 10)
    state = {"base": base, "row": base[10:20], "bits": base.view(torch.int32)[5:], "model": model, "again": base}
    found = there_and_back(tmp_path, state)
    found["row"][0] = -7.0
    assert found["base"][10] == -7.0
    assert found["again"] is found["base"]
    assert found["bits"].untyped_storage().data_ptr() == found["base"].untyped_storage().data_ptr()
    same(found["model"].weight, model.weight)
    assert isinstance(found["model"].weight, torch.nn.Parameter)


def test_a_view_into_something_large_does_not_bring_it_along(tmp_path: Path) -> None:
    large = torch.arange(1 << 20, dtype=torch.float32)
    state = [large[7:70_007], large[::64], large[::64], large.view(1024, 1024)[:, 3]]
    files = lay(tmp_path, state)
    assert sum(map(len, files.values())) < 1 << 20
    found = Flat(tmp_path / "state").load()
    assert all(torch.equal(one, other) for one, other in zip(found, state, strict=True))
    neighbours = lay(tmp_path, [large[: 1 << 19], large[1 << 18 : 1 << 19]], "two")
    assert sum(map(len, neighbours.values())) < (2 << 20) + 4096
    one, other = Flat(tmp_path / "two").load()
    assert one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def test_large_storages_have_files_of_their_own_and_keep_them(tmp_path: Path) -> None:
    def state(step: int) -> dict[str, Any]:
        return {
            "frozen": torch.full((LONGEST // 4 + 1000,), 3.0),
            "moving": torch.full((ALONE // 4,), float(step)),
            "small": [torch.full((1000,), float(number)) for number in range(3)],
            "array": np.full(ALONE // 8 + 5, 2.0),
            "step": step,
        }

    files, later = lay(tmp_path, state(1)), lay(tmp_path, state(2))
    assert [len(data) for name, data in files.items() if not name.endswith("index")] == [
        LONGEST, 4000, ALONE, 4000 + 32 + 4000 + 32 + 4000, ALONE + 40,
    ]  # fmt: skip
    assert {name for name in files if files[name] != later[name]} == {"state/index", "state/000002"}
    found = Flat(tmp_path / "state").load()
    assert torch.equal(found["frozen"], state(2)["frozen"])
    assert np.array_equal(found["array"], state(2)["array"])


class Mine(torch.Tensor):
    pass


def test_a_small_view_into_something_large_is_not_pickled_with_it(tmp_path: Path) -> None:
    large = torch.arange(1 << 20)
    files = lay(tmp_path, {"row": large[5:15]})
    assert sum(map(len, files.values())) < PAGE
    assert torch.equal(Flat(tmp_path / "state").load()["row"], large[5:15])


class Counted:
    taken = 0

    def __reduce__(self) -> Any:
        Counted.taken += 1
        return Counted, ()


@pytest.mark.parametrize("beside", [[], [torch.ones(3)]])
def test_much_that_is_no_tensor_is_pickled_once(tmp_path: Path, beside: list[Any]) -> None:
    Counted.taken = 0
    files = lay(tmp_path, [*beside, "x" * SMALL, Counted()])
    assert Counted.taken == 1
    assert list(files) == (["state/index", "state/000000"] if beside else ["state.pickle"])


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation", "ignore:TypedStorage is deprecated")
def test_small_states_and_strange_tensors_are_pickled(tmp_path: Path) -> None:
    assert list(lay(tmp_path, {"weight": torch.ones(3), "n": 1})) == ["state.pickle"]
    assert torch.equal(pickle.loads((tmp_path / "state.pickle").read_bytes())["weight"], torch.ones(3))
    sparse = torch.eye(3).to_sparse()
    half = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    mirrored = torch.complex(torch.ones(2), torch.ones(2)).conj()
    noted = torch.ones(3)
    noted.note = "kept"  # type: ignore[attr-defined]
    found = there_and_back(tmp_path, [sparse, half, mirrored, noted])
    assert torch.equal(found[0].to_dense(), torch.eye(3))
    assert torch.equal(found[1].dequantize(), half.dequantize())
    assert torch.equal(found[2], mirrored)
    assert found[3].note == "kept"
    derived = there_and_back(tmp_path, torch.ones(3).as_subclass(Mine))
    assert type(derived) is Mine


def test_nothing_is_read_of_a_tensor_that_nobody_touches(tmp_path: Path) -> None:
    state = {"one": torch.ones(ALONE), "two": torch.ones(ALONE), "three": torch.arange(5.0)}
    lay(tmp_path, state)
    for number in range(2):
        (tmp_path / "state" / f"{number:06d}").unlink()
    flat = Flat(tmp_path / "state")
    assert flat.describe()["two"] == Described(1, "float32", (ALONE,))
    assert torch.equal(flat.tensor(2), torch.arange(5.0))
    with pytest.raises(FileNotFoundError):
        flat.tensor(0)


def maps_of(directory: Path) -> list[str]:
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if str(directory) in line]


def test_what_the_program_keeps_is_read_and_nothing_of_it_is_a_map(tmp_path: Path) -> None:
    base = torch.arange(1000.0)
    state = {"large": torch.ones(LONGEST // 4 + 7), "array": np.arange(70_000.0), "base": base, "row": base[10:20]}
    lay(tmp_path, state)
    found = Flat(tmp_path / "state").load(own=True)
    assert maps_of(tmp_path) == []
    assert all(np.array_equal(found[name], state[name]) for name in state)
    found["row"][0] = -7.0
    assert found["base"][10] == -7.0
    mapped = Flat(tmp_path / "state").load()
    assert maps_of(tmp_path) != []
    assert np.array_equal(mapped["array"], state["array"])


def test_a_tensor_of_another_ranks_device_is_asked_for_on_the_current_one() -> None:
    here = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True), mps=SimpleNamespace())
    assert [device_for(here, name) for name in ("cuda:0", "cuda:7", "cuda", "mps:0", "xpu:1", "cpu")] == [
        "cuda", "cuda", "cuda", "cpu", "cpu", "cpu",
    ]  # fmt: skip
    assert device_for(torch, "cpu") == "cpu"


def test_writing_to_what_was_loaded_leaves_the_checkpoint_as_it_is(tmp_path: Path) -> None:
    files = lay(tmp_path, {"tensor": torch.zeros(ALONE), "array": np.zeros(ALONE)})
    found = Flat(tmp_path / "state").load()
    found["tensor"] += 1
    found["array"] += 1
    assert {name: (tmp_path / name).read_bytes() for name in files} == files


def test_a_segment_of_another_size_is_not_loaded(tmp_path: Path) -> None:
    lay(tmp_path, {"tensor": torch.zeros(ALONE)})
    (tmp_path / "state" / "000000").write_bytes(b"short")
    with pytest.raises(ValueError, match="000000"):
        Flat(tmp_path / "state").load()


def test_an_optimizer_goes_on_from_it(tmp_path: Path) -> None:
    def trained(steps: int, model: Any, optimizer: Any) -> None:
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.full((4, 200), 0.1 * step)).square().sum().backward()
            optimizer.step()

    def fresh() -> tuple[Any, Any]:
        torch.manual_seed(1)
        model = torch.nn.Linear(200, 200)
        return model, torch.optim.AdamW(model.parameters())

    model, optimizer = fresh()
    trained(3, model, optimizer)
    lay(tmp_path, optimizer.state_dict(), "optimizer")
    lay(tmp_path, model.state_dict(), "model")
    again, other = fresh()
    again.load_state_dict(Flat(tmp_path / "model").load())
    other.load_state_dict(Flat(tmp_path / "optimizer").load())
    trained(2, model, optimizer)
    trained(2, again, other)
    assert torch.equal(model.weight, again.weight)


@pytest.mark.parametrize("left", [1000, 0])
def test_a_tensor_whose_memory_was_given_back_is_a_failed_save(left: int) -> None:
    tensor = torch.ones(50_000)
    views = [tensor[:0], tensor[1:]]
    tensor.untyped_storage().resize_(left)
    with pytest.raises(ValueError, match=rf"weights.*\(49999,\).*200000 bytes.*{left}"):
        plan_state(Plan(), "weights", views)


class Interrupted(Exception):
    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python's own, of a cut Thread.start
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor copies alone")
def test_nothing_is_written_any_more_when_a_copy_was_interrupted() -> None:
    """The slot's next save would be written to by two, or what is copied be freed under a thread's hands."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    count, size = 16, 2 << 20
    source = np.ones(count * size, np.uint8)
    target = np.zeros(count * size, np.uint8)
    copies = [from_buffer(number * size, memoryview(source)[number * size :][:size]) for number in range(count)]
    others = set(threading.enumerate())
    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        for delay in range(1, 9):
            try:
                signal.setitimer(signal.ITIMER_REAL, delay / 2000)
                copy_all(memoryview(target), copies, threads=2)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except (Interrupted, KeyError) as error:
                if not isinstance(error.__context__ or error, Interrupted):  # a cut Thread.start has a KeyError
                    raise
                interrupted += 1
            target[-PAGE:] = 7  # what a helper would write last
            until(lambda: not any(each.is_alive() for each in set(threading.enumerate()) - others))
            assert (target[-PAGE:] == 7).all(), f"interrupted after {delay / 2} ms"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted


def test_every_file_begins_at_a_page(tmp_path: Path) -> None:
    plan = Plan()
    plan_state(plan, "a", [torch.ones(ALONE), WEIGHT])
    plan_state(plan, "b", {"n": 1})
    assert [name for name, _, _ in plan.files] == ["a/index", "a/000000", "a/000001", "b.pickle"]
    assert all(offset % PAGE == 0 for _, offset, _ in plan.files)


def test_torch_is_not_imported_for_it() -> None:
    script = """
import sys, array
from whistlestop.sdk.flat import Plan, plan_state
plan = Plan()
plan_state(plan, "state", {"a": array.array("d", [1.0]) , "n": 1})
assert not {"torch", "numpy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
