"""Collects every mistake of a spec, so that one answer names them all."""

import difflib
from collections.abc import Iterable

from whistlestop.domain.errors import Problem, SpecInvalid

MOST = 100  # nobody reads more, and a hostile file must not cost more


class Mistakes:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.left_out = 0

    def add(
        self,
        path: str,
        text: str,
        *,
        line: int | None = None,
        hint: str | None = None,
        word: str | None = None,
        words: Iterable[str] = (),
    ) -> None:
        """`word` and `words`: what was written and what would be valid; the nearest becomes the hint."""
        if len(self.problems) >= MOST:
            self.left_out += 1
            return
        if hint is None and word is not None:
            hint = nearest(word, words)
        problem = Problem(path, text, line, hint)
        if problem not in self.problems:
            self.problems.append(problem)

    def check(self, what: str = "The spec") -> None:
        """Raise SpecInvalid if there was any mistake."""
        if not self.problems:
            return
        self.problems.sort(key=lambda problem: problem.line or 0)  # in the order of the file
        count = len(self.problems) + self.left_out
        first = self.problems[0]
        where = f"{first.path}: " if first.path else ""
        text = f"{what} has a mistake: {where}{first.text}." if count == 1 else f"{what} has {count} mistakes."
        raise SpecInvalid(text, problems=self.problems)


def nearest(word: str, words: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(word[:60], list(words), n=1, cutoff=0.6)
    return f'did you mean "{close[0]}"?' if close else None


def shown(text: object, width: int = 40) -> str:
    """A value inside a sentence: short, and on one line."""
    words = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(str(text)[:1000].split()))
    return words if len(words) <= width else words[: width - 1] + "…"
