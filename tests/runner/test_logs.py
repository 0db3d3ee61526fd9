"""Output to lines: whatever a program prints, memory and log stay bounded and readable."""

import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from whistlestop.runner.lines import MAX_LINE, Lines, Secrets, looks_like_exception
from whistlestop.runner.logs import TAIL_LINES, Capture, LogBook
from whistlestop.runner.recordfile import RecordFile
from whistlestop.wire.frames import LogLine, decode_line, split_records


def all_lines(data: bytes, *, size: int = 1 << 20, secrets: Secrets | None = None, at: float = 0.0) -> list[str]:
    lines = Lines(secrets)
    found: list[str] = []
    for position in range(0, len(data), size):
        found += lines.feed(data[position : position + size], at)
    return found + lines.finish()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_are_the_same_however_the_bytes_arrive(size: int) -> None:
    text = "one\ntwo\n\nthree ünïcode\nno newline at the end"
    assert all_lines(text.encode(), size=size) == text.split("\n")


def test_a_long_line_is_cut_with_a_mark() -> None:
    for size in (1000, 1 << 20):
        [line, after] = all_lines(b"x" * (3 * MAX_LINE) + b"\nafter\n", size=size)
        assert line == "x" * MAX_LINE + f" … [{2 * MAX_LINE} bytes cut]"
        assert after == "after"


def test_garbage_is_replaced_and_nul_is_kept() -> None:
    assert all_lines(b"a\xff\xfeb\n\x00\x01\n") == ["a��b", "\x00\x01"]


def test_a_progress_bar_is_folded_to_its_last_state() -> None:
    bar = b"".join(b"\r%3d%%" % percent for percent in range(101))
    assert all_lines(bar + b"\ndone\n")[-2:] == ["100%", "done"]
    assert len(all_lines(bar + b"\ndone\n")) <= 3


def test_a_progress_bar_is_updated_once_a_second() -> None:
    lines = Lines()
    found = [text for tenth in range(100) for text in lines.feed(b"%d%%\r" % tenth, 100 + tenth / 10)]
    assert 9 <= len(found) <= 11
    assert lines.update(200.0) == ["99%"]
    assert lines.finish() == []


def test_windows_line_ends_make_no_extra_lines() -> None:
    assert all_lines(b"one\r\ntwo\r\n") == ["one", "two"]


@pytest.mark.parametrize("size", [1, 5, 1 << 20])
def test_secrets_are_blanked_out_also_across_reads_and_at_the_cut(size: int) -> None:
    secrets = Secrets(["hunter22", "first line of a key\nsecond line of it"])
    printed = b"password hunter22!\nfirst line of a key\nsecond line of it\n"
    assert all_lines(printed, size=size, secrets=secrets)[0] == "password ***!"
    assert "line of" not in " ".join(all_lines(printed, size=size, secrets=secrets))
    cut = all_lines(b"x" * (MAX_LINE - 4) + b"hunter22" + b"y" * 100, size=max(size, 64), secrets=secrets)
    assert "hunt" not in cut[0]


def test_very_short_secrets_do_not_blank_out_everything() -> None:
    assert all_lines(b"a cat\n", secrets=Secrets(["a", ""])) == ["a cat"]


def book_of(path: Path, limit: int = 1 << 30) -> tuple[LogBook, RecordFile]:
    file = RecordFile.open(path / "logs")
    return LogBook(file, limit=limit), file


def read(file: RecordFile) -> list[LogLine]:
    return [decode_line(body) for body in split_records(file.read(0, 1 << 30))[0]]


def test_a_flood_is_counted_and_its_last_lines_are_kept(tmp_path: Path) -> None:
    book, file = book_of(tmp_path, limit=20_000)
    for number in range(50_000):
        book.add("out", [f"line {number}"], 1.0)
    book.say("the runner may always speak")
    book.close()
    lines = read(file)
    texts = [line.text for line in lines]
    assert texts[0] == "line 0"
    assert texts[-1] == "line 49999"
    assert "the runner may always speak" in texts
    kept = sum(line.stream == "out" for line in lines)
    mark = next(text for text in texts if "dropped here" in text)
    assert mark.startswith(f"{50_000 - kept} lines (")
    assert book.dropped_lines == 50_000 - kept
    assert kept >= TAIL_LINES
    assert file.end < 20_000 + 200 * TAIL_LINES


def test_a_full_disk_costs_lines_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book, file = book_of(tmp_path)
    book.add("out", ["before"], 1.0)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "no space")))
    book.add("out", ["lost one", "lost two"], 2.0)
    monkeypatch.setattr(os, "pwrite", real)
    book.add("out", ["after"], 3.0)
    assert [line.text for line in read(file)] == ["before", "2 lines lost here: the disk was full", "after"]


def test_a_torn_record_is_cut_when_the_file_is_opened_again(tmp_path: Path) -> None:
    book, file = book_of(tmp_path)
    book.add("out", ["whole", "torn"], 1.0)
    whole = split_records(file.read(0, 1 << 20))[0]
    os.truncate(tmp_path / "logs", file.end - 1)
    again = RecordFile.open(tmp_path / "logs")
    assert again.end == 4 + len(whole[0])
    assert [line.text for line in read(again)] == ["whole"]


def test_nonsense_behind_the_records_is_cut(tmp_path: Path) -> None:
    book, file = book_of(tmp_path)
    book.add("out", ["whole"], 1.0)
    (tmp_path / "logs").write_bytes(file.read(0, 1 << 20) + b"\xff\xff\xff\x7f" + os.urandom(5 << 20))
    assert [line.text for line in read(RecordFile.open(tmp_path / "logs"))] == ["whole"]


def capture(path: Path, code: str) -> list[LogLine]:
    book, file = book_of(path)
    taken = Capture(book, Secrets(()))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        taken.start(out=os.dup(program.stdout.fileno()), err=os.dup(program.stderr.fileno()))
        program.wait(60)
        assert taken.stop(30)
    book.close()
    return read(file)


def test_a_line_of_100_megabytes_takes_no_100_megabytes_of_memory(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    [line] = capture(tmp_path, "import sys\nfor _ in range(100): sys.stdout.write('x' * (1 << 20))")
    assert f"[{(100 << 20) - MAX_LINE} bytes cut]" in line.text
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # KiB


def test_both_streams_are_read_and_the_last_error_is_remembered(tmp_path: Path) -> None:
    lines = capture(tmp_path, "import sys; print('out'); sys.stdout.flush(); raise RuntimeError('boom')")
    assert [line.text for line in lines if line.stream == "out"] == ["out"]
    assert [line.text for line in lines if line.stream == "err"][-1] == "RuntimeError: boom"


def test_random_bytes_never_break_the_folding() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        data = bytes(chance.choice(b"ab\r\n\xff\0") for _ in range(chance.randrange(200)))
        whole, pieces = all_lines(data), all_lines(data, size=chance.randrange(1, 20))
        assert [text for text in whole if text][-1:] == [text for text in pieces if text][-1:]


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("ValueError: boom", True),
        ("torch.OutOfMemoryError: CUDA out of memory", True),
        ("whistlestop.sdk.parts.RestoreFailed: extra is tracked, but the checkpoint has no such part", True),
        ("Epoch 3: loss 0.5", False),
        ("see https://example.org/A: more", False),
    ],
)
def test_the_last_line_of_a_traceback_is_known(line: str, is_one: bool) -> None:
    assert looks_like_exception(line) is is_one
