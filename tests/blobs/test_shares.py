"""Saves that several nodes make: each brings its share, one checkpoint comes of them, cut at every write."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from moments import BASE, Cut, Place, cut, every_moment, places

from whistlestop.blobs.manifest import Damaged, SaveFailed
from whistlestop.blobs.remote import RemoteStorage
from whistlestop.blobs.shares import share_name
from whistlestop.blobs.staged import Share, Staged
from whistlestop.blobs.storage import Fenced, Storage
from whistlestop.testing.slots import lay

__all__ = ["places"]
Places = Callable[[], Place]


class Nodes:
    """Two of them, each with a disk of its own, and one storage."""

    def __init__(self, here: Place, directory: Path, attempt: int = 1) -> None:
        self.here, self._directory, self._attempt = here, directory, attempt
        here.storage.open_attempt("main", attempt, f"a-{attempt}")

    def lay(self, node: int, step: int, save: int = 1) -> Staged:
        own = {f"ranks/{rank}/parts/shard": b"%d %d" % (rank, step) for rank in (2 * node, 2 * node + 1)}
        files = {**own, f"ranks/{2 * node}/parts/base": BASE, **({} if node else {"parts/model": b"%d" % step})}
        return lay(
            self._directory / f"node-{node}-{step}-{save}",
            step,
            attempt=self._attempt,
            phase="main",
            files=files,
            meta={"why": "test", "digests": {f"rank-{2 * node}/shard": "d"}},
            share=Share(f"5e-{save}", node, 2),
        )

    def join(self, step: int, storage: Storage | None = None, save: int = 1) -> None:
        """All that two runners do, one after the other."""
        storage = storage or self.here.storage
        first = self.lay(0, step, save)
        storage.lay_share(self.lay(1, step, save))
        storage.lay_share(first)
        storage.join(first, storage.shares(first))


def listed(here: Place) -> list[int]:
    return [each.step for each in here.again().list("main")]


def left(here: Place) -> list[str]:
    """All that lies there, but checkpoints and what attempts begin with."""
    storage = here.again()
    if isinstance(storage, RemoteStorage):
        wanted = {entry.sha256 for each in storage.list("main") for entry in each.files.values()}
        names = [each.name for each in storage._objects.all()]
        return [name for name in names if "/shares/" in name or ("/parts/" in name and name[-64:] not in wanted)]
    return [path.name for path in (here._directory / "checkpoints" / "main").glob(".*")]


def test_a_checkpoint_of_two_nodes_has_the_files_of_all_ranks_and_one_manifest(places: Places, tmp_path: Path) -> None:
    here = places()
    nodes = Nodes(here, tmp_path)
    first, second = nodes.lay(0, 7), nodes.lay(1, 7)
    here.again().lay_share(second)
    assert listed(here) == []
    assert here.storage.shares(first).missing == [0]
    assert here.storage.joined(first) is None
    here.storage.lay_share(first)
    done = here.storage.join(first, here.storage.shares(first))
    assert sorted(done.files) == sorted(piece.name for each in (first, second) for piece in each.pieces)
    assert done.meta["digests"] == {"rank-0/shard": "d", "rank-2/shard": "d"}
    here.check()
    assert listed(here) == [7]
    assert left(here) == []
    assert here.storage.joined(first) == done
    fetched = here.again().fetch(done, tmp_path / "fetched")
    assert (fetched / "ranks/3/parts/shard").read_bytes() == b"3 7"


def test_only_what_a_node_needs_is_fetched(places: Places, tmp_path: Path) -> None:
    here = places()
    Nodes(here, tmp_path).join(7)
    (done,) = here.storage.list("main")
    place = here.again().fetch(done, tmp_path / "fetched", only=lambda name: not name.startswith("ranks/0"))
    assert (place / "ranks/3/parts/shard").exists()
    if isinstance(here.storage, RemoteStorage):
        assert not (place / "ranks/0").exists()


def test_what_is_cut_at_any_write_leaves_the_one_before_and_is_finished_by_doing_it_again(
    places: Places, quick: Path
) -> None:
    for number, (here, moment) in enumerate(every_moment(places, "writes", lambda here: cut)):
        nodes = Nodes(here, quick / f"nodes-{number}")
        nodes.join(1)
        with moment:
            try:
                nodes.join(2, here.again(), save=2)
                assert not moment.reached
            except Cut:
                pass
        here.check()
        assert listed(here)[-1] == 1
        # What the runners do that come after those that died, unless the manifest was there already.
        again, first = here.again(), nodes.lay(0, 2, save=2)
        if again.joined(first) is None:
            nodes.join(2, again, save=2)
        here.check()
        assert listed(here) == [2, 1]
        # What it has left is swept by the next attempt, and costs nothing that counts.
        here.again().open_attempt("main", 2, "a-2")
        storage = here.again()
        storage.sweep("main", 2, nodes=2)
        storage.sweep("main", 2, nodes=2)
        here.check()
        assert listed(here) == [2, 1]
        if isinstance(storage, RemoteStorage):
            assert left(here) == []


def test_one_that_is_over_can_neither_bring_a_share_nor_join(places: Places, tmp_path: Path) -> None:
    here = places()
    nodes = Nodes(here, tmp_path)
    first, second = nodes.lay(0, 7), nodes.lay(1, 7)
    here.storage.lay_share(first)
    here.storage.lay_share(second)
    shares = here.storage.shares(first)
    here.again().open_attempt("main", 2, "a-2")
    for act in (
        lambda: here.storage.lay_share(nodes.lay(1, 8, save=2)),
        lambda: here.storage.refuse_share(nodes.lay(1, 8, save=2), "no"),
        lambda: here.storage.join(first, shares),
    ):
        with pytest.raises(Fenced):
            act()
    here.again().sweep("main", 2, nodes=2)
    assert not here.again().shares(first).brought
    assert listed(here) == []


def test_a_share_that_never_comes_is_known(places: Places, tmp_path: Path) -> None:
    here = places()
    nodes = Nodes(here, tmp_path)
    first = nodes.lay(0, 7)
    here.storage.lay_share(first)
    here.storage.shares(first).check(7)
    here.again().refuse_share(nodes.lay(1, 7), "its disk is full")
    with pytest.raises(SaveFailed, match="node 1 could not save its ranks' part of step 7: its disk is full"):
        here.storage.shares(first).check(7)
    here.storage.drop_shares(first)
    assert left(here) == [] or isinstance(here.storage, RemoteStorage)

    second = nodes.lay(0, 9, save=2)
    here.again().lay_share(nodes.lay(1, 11, save=3))
    with pytest.raises(SaveFailed, match="node 1 has gone on to a later save without its ranks' part of step 9"):
        here.storage.shares(second).check(9)


def test_shares_of_another_start_of_the_same_step_are_not_taken(places: Places, tmp_path: Path) -> None:
    here = places()
    nodes = Nodes(here, tmp_path)
    here.storage.lay_share(nodes.lay(1, 7, save=1))
    assert here.storage.shares(nodes.lay(0, 7, save=2)).missing == [0, 1]
    other = lay(tmp_path / "other", 7, phase="main", files={"a": b"b"}, share=Share("6f-1", 0, 2))
    assert here.storage.shares(other).missing == [0, 1]


def test_two_nodes_that_bring_one_file_are_no_checkpoint(places: Places, tmp_path: Path) -> None:
    here = places()
    Nodes(here, tmp_path)
    both = [
        lay(tmp_path / f"{node}", 7, phase="main", files={"a": b"%d" % node}, share=Share("5e-1", node, 2))
        for node in (0, 1)
    ]
    for each in both:
        here.storage.lay_share(each)
    with pytest.raises(SaveFailed, match="two nodes have brought a file of the same name"):
        here.storage.join(both[0], here.storage.shares(both[0]))
    assert listed(here) == []


def test_a_sweep_between_two_saves_takes_nothing_from_a_node_that_is_writing(places: Places, quick: Path) -> None:
    """At every moment of the sweep: what the others bring meanwhile is whole when it is joined."""

    def bring(here: Place) -> Callable[[], object]:
        return lambda: here.again().lay_share(second)

    second: Staged
    for number, (here, moment) in enumerate(every_moment(places, "calls", bring)):
        nodes = Nodes(here, quick / f"nodes-{number}")
        nodes.join(1)
        second = nodes.lay(1, 2, save=2)
        here.storage.sweep("main", 1, nodes=2)
        with moment:
            here.storage.sweep("main", 1, nodes=2)
        first = nodes.lay(0, 2, save=2)
        here.again().lay_share(second)
        here.storage.lay_share(first)
        here.storage.join(first, here.storage.shares(first))
        here.check()
        assert listed(here) == [2, 1]


def test_a_share_that_is_damaged_is_not_joined(places: Places, tmp_path: Path) -> None:
    here = places()
    first = Nodes(here, tmp_path).lay(0, 7)
    here.storage.lay_share(first)
    name = share_name(first)
    if isinstance(here.storage, RemoteStorage):
        here.storage._objects.put(f"main/shares/{name}.json", json.dumps({"content": {}, "sha256": ""}).encode())
    else:
        (here._directory / "checkpoints" / "main" / f".share-{name}" / "manifest.json").write_bytes(b"{")
    with pytest.raises(Damaged, match=f"the share .*{name}.* can't be read"):
        here.again().shares(first)


def test_a_part_that_goes_between_share_and_join_is_no_checkpoint(places: Places, tmp_path: Path) -> None:
    here = places()
    nodes = Nodes(here, tmp_path)
    first = nodes.lay(0, 7)
    for each in (first, nodes.lay(1, 7)):
        here.storage.lay_share(each)
    shares = here.storage.shares(first)
    if isinstance(here.storage, RemoteStorage):
        here.storage._objects.delete([f"main/parts/{shares.brought[1].files['ranks/3/parts/shard'].sha256}"])
    else:
        path = here._directory / "checkpoints" / "main" / f".share-{share_name(first, 1)}" / "ranks/3/parts/shard"
        path.write_bytes(b"something else")
    with pytest.raises(SaveFailed):
        here.storage.join(first, shares)
    assert listed(here) == []
