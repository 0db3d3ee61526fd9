"""The ledger of private steps: never too few, exact unless the host crashed, whatever is cut and where."""

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whistlestop.domain.errors import BadRequest
from whistlestop.sdk.privacy import BLOCK, SIZE, SLOTS, PrivacyLedger, limit_steps

WORD = slice(0, 8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "phase" / "privacy.ledger"


def test_what_was_spent_is_known_exactly_after_a_close(path: Path) -> None:
    with PrivacyLedger.open(path) as ledger:
        assert ledger.spent == 0
        for _ in range(BLOCK + 7):
            ledger.spend()
        ledger.spend(3)
        assert ledger.spent == BLOCK + 10
    with PrivacyLedger.open(path, boot=b"another") as ledger:
        assert ledger.spent == BLOCK + 10
    assert sorted(file.name for file in path.parent.iterdir()) == ["privacy.ledger", "privacy.ledger.lock"]


def test_a_ledger_can_be_raised_but_never_lowered(path: Path) -> None:
    with PrivacyLedger.open(path) as ledger:
        ledger.at_least(500)
        ledger.spend()
        ledger.at_least(3)
        assert ledger.spent == 501
    with PrivacyLedger.open(path) as ledger:
        assert ledger.spent == 501


def test_a_killed_program_has_spent_what_it_has_counted(path: Path) -> None:
    program = (
        "import sys; from whistlestop.sdk.privacy import PrivacyLedger\n"
        "ledger = PrivacyLedger.open(sys.argv[1])\n"
        "for _ in range(1234): ledger.spend()\n"
        "print('spent', flush=True); sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "spent\n"
        with pytest.raises(BadRequest, match="another process holds"):
            PrivacyLedger.open(path)
        child.send_signal(signal.SIGKILL)
    with PrivacyLedger.open(path) as ledger:
        assert ledger.spent == 1234


def test_after_a_crash_of_the_host_the_reserved_steps_count_as_spent(path: Path) -> None:
    ledger = PrivacyLedger.open(path, boot=b"before")
    for _ in range(42):
        ledger.spend()
    image = bytearray(path.read_bytes())
    image[WORD] = bytes(8)  # the word never reached the disk
    ledger.close()
    crashed = path.with_name("crashed")
    crashed.write_bytes(image)
    with PrivacyLedger.open(crashed, boot=b"after") as again:
        assert 42 <= again.spent <= 42 + BLOCK


def damaged(whole: bytes) -> Iterator[bytes]:
    yield b""
    yield whole[:-1]
    yield whole + b"\0"
    yield bytes(SIZE)
    for word in (0, -1, 1 << 40):
        yield word.to_bytes(8, "little", signed=True) + whole[8:]
    both = bytearray(whole)
    for place in SLOTS:
        both[place + 20] ^= 1
    yield bytes(both)


def test_a_damaged_ledger_is_refused_in_words_and_left_as_it_is(path: Path) -> None:
    ledger = PrivacyLedger.open(path)
    ledger.at_least(1000)
    ledger.spend(20)
    whole = path.read_bytes()
    ledger.close()
    for number, image in enumerate(damaged(whole)):
        bad = path.with_name(f"bad{number}")
        bad.write_bytes(image)
        with pytest.raises(BadRequest, match=r"is damaged: .* no step is run") as caught:
            PrivacyLedger.open(bad)
        assert caught.value.hint
        assert bad.read_bytes() == image
        with pytest.raises(BadRequest, match="is damaged"):
            PrivacyLedger.open(bad)  # and its lock was let go


def test_a_ledger_that_cannot_be_made_is_refused(path: Path) -> None:
    path.parent.write_text("a file where the directory should be")
    with pytest.raises(BadRequest, match="can't be opened"):
        PrivacyLedger.open(path)


def test_a_closed_ledger_counts_no_more(path: Path) -> None:
    ledger = PrivacyLedger.open(path)
    ledger.spend()
    ledger.close()
    ledger.close()
    with pytest.raises(BadRequest, match="is closed"):
        ledger.spend()


def test_a_step_costs_a_store_and_a_compare(path: Path) -> None:
    """Counted, not timed: syncs are rare however quick the steps are."""
    with PrivacyLedger.open(path) as ledger:
        before = ledger._slot.number
        began = time.perf_counter()
        for _ in range(200_000):
            ledger.spend()
        assert ledger._slot.number - before < 40
        assert time.perf_counter() - began < 20  # a thousandth of it on an idle machine


OPERATIONS = st.tuples(st.just("spend"), st.integers(1, 150)) | st.tuples(
    st.sampled_from(["at_least", "reopen"]), st.integers(0, 1000)
)
CUTS = st.none() | st.tuples(st.sampled_from(["program", "host"]), st.integers(0, 128) | st.none())


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(OPERATIONS, CUTS), max_size=14))
def test_no_crash_at_any_point_forgets_a_step(
    story: list[tuple[tuple[str, int], tuple[str, int | None] | None]],
) -> None:
    """After each operation, or inside of it with so many bytes of its record written, the program may be cut (its
    memory is the kernel's), or the host (then what was not synced is lost)."""
    with tempfile.TemporaryDirectory() as directory:
        path, boot = Path(directory) / "ledger", 0
        ledger = PrivacyLedger.open(path, boot=b"0")
        for (name, amount), how in story:
            before, earlier, image = ledger.spent, ledger._slot.block, path.read_bytes()
            if name == "spend":
                ledger.spend(amount)
            elif name == "at_least":
                ledger.at_least(amount)
            else:
                ledger.close()
                ledger = PrivacyLedger.open(path, boot=b"%d" % boot)
            truth = ledger.spent
            assert truth == {"spend": before + amount, "at_least": max(before, amount), "reopen": before}[name]
            if how is None:
                continue
            what, inside = how
            # The block follows the clock: that of a record may be twice as large as the next one.
            written, block = path.read_bytes(), max(ledger._block, ledger._slot.block, earlier)
            ledger._let_go()
            # Inside: spend() had not returned, so its steps never ran.
            left = written if inside is None else cut(image, written, inside)
            if what == "host":
                boot += 1
                left = image[WORD] + left[8:]
            path.write_bytes(left)
            ledger = PrivacyLedger.open(path, boot=b"%d" % boot)
            assert ledger.spent >= (truth if inside is None else before)
            assert ledger.spent <= truth + 4 * block + 151
            if what == "program" and inside is None:
                assert ledger.spent == truth
        ledger.close()


def cut(before: bytes, after: bytes, at: int) -> bytes:
    """The record that the operation wrote is there up to `at` bytes, and the word not at all."""
    image = bytearray(before)
    for place in SLOTS:
        image[place : place + at] = after[place : place + at]
    return bytes(image)


@given(st.integers(0, 5000), st.floats(0.001, 1000))
def test_the_limit_is_the_last_step_within_the_budget(limit: int, scale: float) -> None:
    asked: list[int] = []

    def spent(steps: int) -> float:
        asked.append(steps)
        return scale * math.sqrt(steps)

    assert limit_steps(lambda steps: scale if steps <= limit else 2 * scale, scale) == limit
    found = limit_steps(spent, scale * math.sqrt(limit + 0.5))
    assert found == limit
    assert len(asked) <= 30


def test_a_budget_that_is_never_reached_has_a_limit_all_the_same() -> None:
    assert limit_steps(lambda steps: 0.0, 1.0) >= 1 << 60


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_worker_that_was_forked_does_not_keep_the_ledger_locked(path: Path) -> None:
    ledger = PrivacyLedger.open(path)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    try:
        ledger.spend(5)
        ledger.close()
        with PrivacyLedger.open(path) as again:
            assert again.spent == 5
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)
