"""Ranks on several nodes: two nodes of two ranks in one process, over real connections."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from whistlestop.channel.layout import Loop, Word
from whistlestop.sdk import nodes
from whistlestop.sdk.attachment import Attachment
from whistlestop.sdk.group import DIED, FRONT_ENDED, STAGED, Group, RanksApart
from whistlestop.sdk.settings import Settings
from whistlestop.sdk.world import World
from whistlestop.testing.wait import until

KEY = "a long secret"


@dataclass
class Met:
    """Rank 0 and 1 on node 0, rank 2 and 3 on node 1."""

    groups: list[Group]
    port: int
    front: Attachment
    close: list[Callable[[], None]]
    lost: list[tuple[int, str]] = field(default_factory=list)

    def end_all(self) -> None:
        for group in self.groups:
            group.end(Loop.FINISHED)
        for close in reversed(self.close):
            close()
        for group in self.groups:
            group.leave()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def settings_of(rank: int, port: int) -> Settings:
    return Settings.read("nodes", {"RANK": str(rank), "WORLD_SIZE": "4", "WHISTLE_AGREE": f"127.0.0.1:{port}"})


def join(root: Path, name: str = "nodes") -> list[Group]:
    return [Group.join(World(rank, 4, rank % 2, 2, rank // 2), root, name=name) for rank in range(4)]


def bring_together(groups: list[Group]) -> Met:
    met = Met(groups, free_port(), Attachment(), [])

    def lost(rank: int, named: str) -> None:
        met.lost.append((rank, named))

    with ThreadPoolExecutor(2) as both:
        attachments = {0: met.front, 2: Attachment()}
        going = [both.submit(nodes.meet, groups[rank], settings_of(rank, met.port), each, lost)
                 for rank, each in attachments.items()]  # fmt: skip
        closers = [each.result(timeout=30) for each in going]
    met.close = [close for close in closers if close is not None]
    assert len(met.close) == 2
    return met


@pytest.fixture
def met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Met]:
    monkeypatch.setenv(nodes.ENV_KEY, KEY)
    met = bring_together(join(tmp_path))
    yield met
    met.end_all()
    until(lambda: not [each for each in threading.enumerate() if each.name.startswith("whistlestop-node")], within=10)


def test_a_node_is_not_done_while_one_of_its_ranks_still_saves(met: Met) -> None:
    first, _, third, fourth = met.groups
    for group in met.groups[:3]:
        group.mine[STAGED] = 1
    fourth.mine[Word.SAVING] = 8
    third.end(Loop.FINISHED)
    going = threading.Thread(target=met.close[1])
    going.start()
    with pytest.raises(AssertionError):
        until(lambda: first.least(STAGED) >= 1, within=0.3)
    fourth.mine[STAGED] = 1
    assert first.least(STAGED) == 1
    fourth.end(Loop.FINISHED)
    going.join(5)
    assert not going.is_alive()
    assert first.least(Word.ACK_SEQ) == 0  # those of node 0
    assert met.lost == []


def test_a_goodbye_does_not_wait_for_ever(met: Met, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_LEAVE_SECONDS", 0.1)
    met.groups[2].end(Loop.FINISHED)  # rank 3 lives, trains and does not save
    begun = time.monotonic()
    met.close[1]()
    assert time.monotonic() - begun < 10
    assert met.lost == []


def test_a_decision_is_confirmed_on_every_node(met: Met) -> None:
    first, *_, fourth = met.groups
    fourth.mine[Word.STEP] = 9
    at = first.decide(3, {Word.STOP_LEVEL: 1})
    assert at > 10
    assert [group.due(at) for group in met.groups] == [True] * 4
    assert [group.due(at - 1) for group in met.groups] == [False] * 4


def test_a_rank_on_another_node_waits_for_what_is_only_proposed(met: Met) -> None:
    first, *_, fourth = met.groups
    ends: list[int] = []

    def run_free() -> None:
        step = 0
        while step < 1_000_000:
            fourth.mine[Word.STEP] = step
            if fourth.due(step):
                ends.append(step)
                return
            step += 1

    going = threading.Thread(target=run_free)
    going.start()
    until(lambda: fourth.mine[Word.STEP] > 100)
    at = first.decide(5, {Word.STOP_LEVEL: 1})
    going.join(20)
    assert ends == [at]


def test_the_end_of_rank_0_is_known_on_other_nodes(met: Met) -> None:
    third, fourth = met.groups[2:]
    met.groups[0].end(Loop.FINISHED)
    met.close[0]()
    until(lambda: third.decided[FRONT_ENDED] == 1)
    with pytest.raises(RanksApart, match="rank 0 has come to its end, and rank 3 waits for the start"):
        fourth.wait(lambda: False, "the start")
    assert met.lost == []


def test_a_rank_that_ends_with_an_error_says_no_goodbye(met: Met) -> None:
    met.close[1]()  # its loop has not ended
    until(lambda: met.lost)
    assert met.lost[0][0] == 2
    assert met.groups[0].decided[DIED] == 3


def test_a_node_that_does_not_answer_is_lost(met: Met, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_ANSWER_SECONDS", 0.2)
    stop = threading.Event()
    monkeypatch.setattr(nodes._Outpost, "_answer", lambda *_: stop.wait(20) and 0)
    begun = time.monotonic()
    met.groups[0].decide(1, {Word.STOP_LEVEL: 1})
    assert time.monotonic() - begun < 15
    until(lambda: any(rank == 2 for rank, _ in met.lost))
    with pytest.raises(RanksApart, match="rank 2 has died"):
        met.groups[0].wait(lambda: False, "all")
    stop.set()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\xff\xfe\x80 no text\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"[" * 70_000 + b"\n",
        b"x" * 200_000,
        json.dumps({"key": "schl\u00fcssel", "node": 1}).encode() + b"\n",
        json.dumps({"key": "\ud800", "node": 1}).encode() + b"\n",
        json.dumps({"key": ["a"], "run": {}}).encode() + b"\n",
        json.dumps({"key": KEY, "run": "nodes/0/1", "node": "x", "rank": None}).encode() + b"\n",
        json.dumps({"key": KEY, "run": "nodes/0/1", "ask": {}}).encode() + b"\n",
        b"",
    ],
)  # fmt: skip
def test_what_strangers_say_does_no_harm(met: Met, garbage: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    """A traceback in a thread would be a warning, and those are errors here."""
    with socket.create_connection(("127.0.0.1", met.port), timeout=10) as stranger:
        try:
            stranger.sendall(garbage)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(1000):
                pass
        except OSError:
            pass
    assert met.groups[0].decide(1, {Word.CHECKPOINT_NOW: 1}) == 3
    assert "Traceback" not in capfd.readouterr().err
    assert met.lost == []


def test_without_a_key_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(nodes.ENV_KEY, raising=False)
    group, port = join(tmp_path)[0], free_port()
    with pytest.raises(RanksApart, match="WHISTLE_AGREE_KEY is not"):
        nodes.meet(group, settings_of(0, port), Attachment(), lambda *_: None)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_nodes_that_don_t_know_where_to_meet_say_what_to_set(tmp_path: Path) -> None:
    settings = Settings.read("nodes", {"RANK": "2", "WORLD_SIZE": "4"})
    groups = join(tmp_path)
    with pytest.raises(RanksApart, match="set WHISTLE_AGREE=host:port and WHISTLE_AGREE_KEY, or call init_process"):
        nodes.meet(groups[2], settings, Attachment(), lambda *_: None)
    with pytest.raises(RanksApart, match=r"rank 2 \(process \d+\) has died"):
        groups[3].wait(lambda: False, "rank 0")


def test_two_nodes_with_one_number_are_refused_in_words(met: Met, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    twin = Group.join(World(2, 4, 0, 2, 1), tmp_path / "other", name="nodes")
    with pytest.raises(RanksApart, match="rank 2 says it is on node 1; there are 2"):
        nodes.meet(twin, settings_of(2, met.port), Attachment(), lambda *_: None)


def test_a_rank_that_is_already_in_its_next_run_waits_until_rank_0_is_there_too(
    met: Met, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = join(tmp_path)
    assert [group.path for group in again] != [group.path for group in met.groups]
    monkeypatch.setattr(nodes, "_HELLO_SECONDS", 0.5)
    with ThreadPoolExecutor(1) as early:
        said: list[str] = []
        again[2].say = said.append
        monkeypatch.setattr(nodes, "_SAY_SECONDS", 0.0)
        going = early.submit(nodes.meet, again[2], settings_of(2, met.port), Attachment(), lambda *_: None)
        until(lambda: said)
        assert "rank 2 has waited" in said[0]
        met.end_all()
        front = nodes.meet(again[0], settings_of(0, met.port), Attachment(), lambda *_: None)
        outpost = going.result(timeout=20)
    assert front is not None
    assert outpost is not None
    for group in again:
        group.end(Loop.FINISHED)
    outpost()
    front()


def test_an_interrupted_rank_tells_rank_0(met: Met, monkeypatch: pytest.MonkeyPatch) -> None:
    attachment = Attachment()
    assert nodes.meet(met.groups[3], settings_of(3, met.port), attachment, lambda *_: None) is None
    attachment.ask_front(Word.RANKS_INTERRUPTED)
    assert met.front.front[Word.RANKS_INTERRUPTED] == 1
    assert os.environ[nodes.ENV_KEY] == KEY
