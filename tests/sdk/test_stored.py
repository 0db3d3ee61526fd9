"""What a checkpoint holds, by name, without reading more of it than is asked for."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import whistlestop
from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.domain.errors import BadRequest, NotFound
from whistlestop.sdk.fetched import mark_of


@pytest.fixture
def checkpoint(alone: Path) -> Path:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.Linear(300, 400))
    optimizer = torch.optim.Adam(model.parameters())
    with whistlestop.run("demo") as run:
        run.track(model=model, optimizer=optimizer, array=np.arange(50_000.0), state={"n": 7})
        for _ in run.steps(2):
            model(torch.ones(1, 200)).sum().backward()
            optimizer.step()
    return CheckpointStore(alone / "whistle-checkpoints" / "demo").list("run-001")[0].path


def test_one_that_is_still_fetched_is_waited_for(checkpoint: Path) -> None:
    mark, away = mark_of(checkpoint), checkpoint.with_name("away")
    mark.touch()
    checkpoint.rename(away)
    with ThreadPoolExecutor(1) as thread:
        loading = thread.submit(whistlestop.load, checkpoint)
        assert not loading.done()
        away.rename(checkpoint)
        mark.unlink()
        assert loading.result(30)["state"] == {"n": 7}


def test_parts_are_had_by_name(checkpoint: Path) -> None:
    stored = whistlestop.load(checkpoint)
    assert stored.names() == sorted(stored) == ["array", "model", "optimizer", "state"]
    assert stored["state"] == {"n": 7}
    assert stored["array"][-1] == 49_999.0
    assert stored["model"]["1.weight"].shape == (400, 300)
    assert "model" in stored
    assert "other" not in stored
    assert stored.get("model") is stored["model"]
    with pytest.raises(NotFound, match="it has: array, model, optimizer, state"):
        stored["weights"]


def test_tensors_are_listed_and_had_one_by_one(checkpoint: Path) -> None:
    stored = whistlestop.load(str(checkpoint))
    tensors = stored.tensors("model")
    assert list(tensors) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert (tensors["1.weight"].dtype, tensors["1.weight"].shape) == ("float32", (400, 300))
    assert torch.equal(stored.tensor("model", "1.bias"), stored["model"]["1.bias"])
    assert stored.tensors("optimizer")["state.0.exp_avg"].shape == (300, 200)
    assert stored.tensors("array")[""].dtype == "float64"
    assert stored.tensors("state") == {}
    with pytest.raises(NotFound, match="no tensor"):
        stored.tensor("model", "2.bias")


def test_a_tensor_is_read_without_its_neighbours(checkpoint: Path) -> None:
    stored = whistlestop.load(checkpoint)
    expected = {name: stored.tensor("optimizer", name).clone() for name in ("state.0.exp_avg", "state.2.exp_avg")}
    again = whistlestop.load(checkpoint)
    assert all(torch.equal(again.tensor("optimizer", name), each) for name, each in expected.items())
    assert again._read == {}


def test_a_training_that_was_restored_lives_without_the_files(alone: Path) -> None:
    """They may be taken away from another host: whoever looks at a map of them then is killed."""

    def train(stop_at: int | None = None) -> list[str]:
        torch.manual_seed(0)
        model = torch.nn.Linear(200, 200)
        optimizer = torch.optim.Adam(model.parameters())
        held, state = {"average": torch.zeros(40_000)}, {"array": np.zeros(40_000)}
        mapped: list[str] = []
        with whistlestop.run("demo") as run:
            run.track(model=model, optimizer=optimizer, held=held)
            run.saves(name="state", save=lambda: state, load=state.update)
            for step in run.steps(4):
                lines = Path("/proc/self/maps").read_text().splitlines()
                mapped += [line for line in lines if str(alone) in line and "/parts/" in line]
                model(torch.ones(1, 200)).sum().backward()
                optimizer.step()
                state["array"] += step + 1
                if step == stop_at:
                    run.finish()
        seen.append(float(state["array"][0]))
        return mapped

    seen: list[float] = []
    assert train(stop_at=1) == []
    assert train() == []
    assert seen == [1 + 2, 1 + 2 + 3 + 4]


def save_files(save: Callable[[Path], None]) -> None:
    with whistlestop.run("demo") as run:
        run.saves_files(save=save, load=print, name="own")
        for _ in run.steps(1):
            pass


def test_links_in_what_a_framework_writes_become_what_they_lead_to(alone: Path) -> None:
    (alone / "shards" / "deep").mkdir(parents=True)
    (alone / "shards" / "deep" / "0.bin").write_bytes(b"shard")
    (alone / "shards" / "first.bin").symlink_to("deep/0.bin")

    def save(directory: Path) -> None:
        (directory / "epoch-1.ckpt").write_bytes(b"weights")
        (directory / "last.ckpt").symlink_to("epoch-1.ckpt")
        (directory / "shards").symlink_to(alone / "shards")

    save_files(save)
    checkpoint = CheckpointStore(alone / "whistle-checkpoints" / "demo").list("run-001")[0]
    own = checkpoint.path / "files" / "own"
    assert {path.relative_to(own).as_posix(): path.read_bytes() for path in own.rglob("*") if path.is_file()} == {
        "epoch-1.ckpt": b"weights",
        "last.ckpt": b"weights",
        "shards/deep/0.bin": b"shard",
        "shards/first.bin": b"shard",
    }
    assert not any(path.is_symlink() for path in own.rglob("*"))


@pytest.mark.parametrize(("target", "words"), [("nowhere", "leads to no file"), ("../own", "leads back")])
def test_a_link_that_can_not_be_followed_is_a_failed_save_in_words(
    alone: Path, capfd: pytest.CaptureFixture[str], target: str, words: str
) -> None:
    def save(directory: Path) -> None:
        (directory / "odd").symlink_to(target)

    save_files(save)
    told = capfd.readouterr().err
    assert "step 1 could not be saved" in told
    assert "files/own/odd" in told
    assert words in told


def test_only_a_directory_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="not the directory"):
        whistlestop.load(tmp_path / "nothing")
    assert whistlestop.load(tmp_path).names() == []
