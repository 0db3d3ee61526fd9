"""A spec may come from anywhere: whatever it is, the answer is a SpecInvalid, soon and within bounds."""

import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whistlestop.domain.errors import SpecInvalid
from whistlestop.wire.mistakes import Mistakes
from whistlestop.wire.spec_file import apply_sets, parse_spec
from whistlestop.wire.yaml_text import CONTROL, plain, read, write

LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30))
HOSTILE = {
    "empty": ("", "is empty"),
    "only a comment": ("# nothing\n", "is empty"),
    "a list": ("- a\n", "must be a mapping"),
    "a word": ("hello", "must be a mapping"),
    "two documents": ("name: a\n---\nname: b\n", "more than one document"),
    "a billion laughs": (LAUGHS, "expand without end"),
    "an alias to itself": ("a: &a [*a]\n", "has no anchor"),
    "a large scalar, often": ("a: &a " + "x" * 100_000 + "\nb: [" + "*a, " * 1000 + "*a]\n", "expand without end"),
    "deep flow lists": ("[" * 200_000, "nested deeper"),
    "deep flow mappings": ("{a: " * 60_000, "nested deeper"),
    "deep block lists": ("- " * 100_000, "nested deeper"),
    "deep by alias": ("a: &a [[[[[[[[1]]]]]]]]\nb: [[[[[[[[[*a]]]]]]]]]\n", "nested deeper"),
    "many keys": ("\n".join(f"k{n}: 1" for n in range(20_000)), "too many values"),
    "too large": ("# " + "x" * 300_000, "larger than 256 KiB"),
    "a python tag": ("name: !!python/object/apply:os.system [x]\ncommand: a", "tags such as"),
    "a local tag": ("name: !boom x\ncommand: a", "tags such as"),
    "a number as key": ("1: a", "is not a word"),
    "a list as key": ("? [a, b]\n: c", "must be a word"),
    "a key twice": ("name: a\ncommand: b\nname: c\n", "given twice, first in line 1"),
    "a nul": ("name: a\0", "is not allowed"),
    "an escape character": ("name: \x1b[31m", "is not allowed"),
    "an escaped nul": ('name: a\ncommand: "a\\0b"', "is not allowed"),
    "an escaped half character": ('name: a\ncommand: "\\ud800"', "is not allowed"),
    "a character beyond unicode": ('name: "\\Uffffffff"', "not YAML"),
    "a half character": ("name: \ud800", "is not allowed"),
    "a number without end": ("name: a\ncommand: b\npriority: " + "9" * 100_000, "whole number"),
    "not yaml": ("name: a: b: c", "not YAML"),
    "an open quote": ("name: 'abc", "not YAML"),
    "a bad directive": ("%FOO bar\n%YAML 9.9\n---\nname: a\n", ""),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_text_gets_a_clear_answer_within_bounds(case: str) -> None:
    text, words = HOSTILE[case]
    tracemalloc.start()
    started = time.process_time()
    try:
        with pytest.raises(SpecInvalid) as caught:
            parse_spec(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert any(words in problem.text for problem in caught.value.problems), caught.value.problems
    assert len(caught.value.problems) <= 100
    assert peak < 64 << 20
    assert time.process_time() - started < 20, "tracing memory costs much; without it this takes under a second"
    str([(p.text, p.hint, p.path) for p in caught.value.problems]).encode()  # can be shown


@given(st.text())
def test_random_text_raises_nothing_but_spec_invalid(text: str) -> None:
    _only_spec_invalid(text)


@given(st.lists(st.sampled_from(["name", "phases", ":", " ", "\n", "- ", "[", "]", "{", "}", "'", '"', "&a", "*a",
    "!", "|", ">", "#", "\t", "?", ",", "command", "x", "1", "---", "...", "%", "\\", "@", "`", "<<", "\r", "\x85"]),
    max_size=60))  # fmt: skip
def test_yaml_like_text_raises_nothing_but_spec_invalid(pieces: list[str]) -> None:
    _only_spec_invalid("".join(pieces))


@given(st.lists(st.text(), max_size=5))
def test_random_changes_raise_nothing_but_spec_invalid(sets: list[str]) -> None:
    text = "name: a\nphases: [{name: b, command: c}]"
    try:
        spec = parse_spec(text, sets)
    except SpecInvalid:
        return
    assert parse_spec(apply_sets(text, sets)) == spec


LETTERS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(lambda text: not CONTROL.search(text))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | LETTERS
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(LETTERS, inner, max_size=4))


@given(st.dictionaries(LETTERS, VALUES, max_size=5))
def test_what_is_written_is_read_back_as_the_same_values(value: dict[str, Any]) -> None:
    mistakes = Mistakes()
    node = read(write(value), mistakes)
    assert not mistakes.problems
    assert node is not None
    assert plain(node) == value


def _only_spec_invalid(text: str) -> None:
    try:
        spec = parse_spec(text)
    except SpecInvalid:
        return
    assert spec.phases
