"""Losses on purpose, as the runner does them."""

import time
from typing import NoReturn

import pytest

from whistlestop.blobs.storage import StorageFailed
from whistlestop.runner.faults import Faults
from whistlestop.wire.frames import Fault, Rehearse


class Lost(Exception):
    pass


def faults(did: list[str]) -> Faults:
    def lose() -> NoReturn:
        raise Lost

    return Faults(
        tell=lambda kind, text, /, **data: did.append(f"{kind}: {text}"),
        kill_program=lambda: did.append("killed"),
        lose_host=lose,
        cut=lambda seconds: did.append(f"cut {seconds}"),
    )


def test_each_is_told_of_before_it_happens() -> None:
    did: list[str] = []
    made = faults(did)
    made.take(Rehearse("program"))
    made.take(Rehearse("link", 3.0))
    with pytest.raises(Lost):
        made.take(Rehearse("host"))
    assert did == [
        "rehearsal: A rehearsal: the program is killed.",
        "killed",
        "rehearsal: A rehearsal: the server is out of reach for 3 s.",
        "cut 3.0",
        "rehearsal: A rehearsal: the program and its runner are killed, as if the host were lost.",
    ]


def test_what_a_newer_server_asks_for_is_said_and_left_alone() -> None:
    did: list[str] = []
    faults(did).take(Rehearse("earthquake"))
    assert len(did) == 1
    assert "'earthquake'" in did[0]


def test_a_slow_storage_is_slow_once() -> None:
    made = faults([])
    made.take(Rehearse(Fault.STORAGE, 0.3))
    began = time.monotonic()
    made.before_commit()
    first = time.monotonic() - began
    made.before_commit()
    assert first >= 0.3
    assert time.monotonic() - began - first < 0.3


def test_saves_fail_for_as_long_as_was_asked_for_from_the_first_one_on() -> None:
    made = faults([])
    made.before_commit()
    made.take(Rehearse(Fault.SAVE, 0.05))
    time.sleep(0.06)  # nothing is saved meanwhile: it does not count
    with pytest.raises(StorageFailed, match="rehearsal"):
        made.before_commit()
    with pytest.raises(StorageFailed):
        made.before_commit()
    time.sleep(0.06)
    made.before_commit()
    made.before_commit()
