import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whistlestop.channel.control import Control, ControlUnusable
from whistlestop.channel.layout import SIZE, Word


def test_what_one_side_writes_the_other_side_reads(tmp_path: Path) -> None:
    runner = Control.create(tmp_path / "control")
    program = Control.open(tmp_path / "control")
    runner[Word.STOP_LEVEL] = 2
    program[Word.STEP] = -5
    runner.set_seconds(Word.STOP_DEADLINE, 1234.5)
    assert program[Word.STOP_LEVEL] == 2
    assert runner[Word.STEP] == -5
    assert program.seconds(Word.STOP_DEADLINE) == 1234.5
    assert program.words[Word.STOP_LEVEL] == 2
    assert program.doubles[Word.STOP_DEADLINE] == 1234.5
    runner.close()
    program.close()


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), times=st.floats(allow_nan=False))
def test_every_word_holds_any_value_and_leaves_its_neighbours_alone(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], times: float
) -> None:
    control = Control.create(tmp_path_factory.mktemp("control") / "control")
    words = [word for word in Word if word is not Word.MAGIC]
    expected = dict.fromkeys(words, 0)
    for word, value in zip(words, values, strict=False):
        control[word] = expected[word] = value
    assert {word: control[word] for word in words} == expected
    control.set_seconds(Word.PROGRESS_AT, times)
    assert control.seconds(Word.PROGRESS_AT) == times
    control.close()


def test_the_file_is_for_its_owner_alone_and_takes_real_blocks(tmp_path: Path) -> None:
    Control.create(tmp_path / "control").close()
    info = (tmp_path / "control").stat()
    assert stat.S_IMODE(info.st_mode) == 0o600
    assert info.st_size == SIZE
    assert info.st_blocks * 512 >= SIZE  # a hole would be SIGBUS on a full disk


def test_creating_over_an_existing_block_is_refused_and_leaves_it(tmp_path: Path) -> None:
    first = Control.create(tmp_path / "control")
    first[Word.STEP] = 7
    with pytest.raises(FileExistsError):
        Control.create(tmp_path / "control")
    assert Control.open(tmp_path / "control")[Word.STEP] == 7


@pytest.mark.parametrize("content", [b"", b"x" * 100, bytes(SIZE), bytes(SIZE + 8), os.urandom(SIZE)])
def test_a_file_that_is_no_control_block_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "control").write_bytes(content)
    with pytest.raises(ControlUnusable, match="control"):
        Control.open(tmp_path / "control")


def test_closing_twice_is_allowed(tmp_path: Path) -> None:
    control = Control.create(tmp_path / "control")
    control.close()
    control.close()
