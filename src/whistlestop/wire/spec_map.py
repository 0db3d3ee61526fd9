"""How values are taken out of a file that a person wrote: what is wrong is collected, with its line."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from whistlestop.wire.mistakes import Mistakes, shown
from whistlestop.wire.yaml_text import Node, plain

MAX_ENTRIES = 1000  # of one list or mapping

T = TypeVar("T")


class Map:
    """A mapping of the file, its path, and how to take values out of it."""

    def __init__(self, node: Node, path: str, mistakes: Mistakes) -> None:
        assert isinstance(node.value, dict)
        self.items, self.line, self.path, self.mistakes = node.value, node.line, path, mistakes

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def wrong(self, key: str, text: str, *, hint: str | None = None, node: Node | None = None) -> None:
        found = node or self.items.get(key)
        self.mistakes.add(self.at(key), text, line=found.line if found else self.line, hint=hint)

    def known(self, keys: Sequence[str]) -> None:
        for key, node in self.items.items():
            if key not in keys:
                self.mistakes.add(self.at(shown(key)), "unknown key", line=node.line, word=key.lower(), words=keys)

    def take(self, key: str, convert: Callable[[Node], T], default: T) -> T:
        """`convert` raises ValueError with words. A key without a value is as good as absent."""
        node = self.items.get(key)
        if node is None or node.value is None:
            return default
        try:
            return convert(node)
        except Wrong as wrong:
            self.mistakes.add(self.at(key), str(wrong), line=node.line, hint=wrong.hint, **wrong.nearest)
        except ValueError as error:
            self.wrong(key, str(error))
        return default

    def inside(self, key: str) -> "Map | None":
        node = self.items.get(key)
        if node is None or node.value is None:
            return None
        if not isinstance(node.value, dict):
            self.wrong(key, f'must be a mapping, not "{shown(plain(node))}"')
            return None
        if len(node.value) > MAX_ENTRIES:
            self.wrong(key, f"has more than {MAX_ENTRIES} entries")
            return None
        return Map(node, self.at(key), self.mistakes)


class Wrong(ValueError):
    def __init__(
        self, text: str, *, hint: str | None = None, word: str | None = None, words: Sequence[str] = ()
    ) -> None:
        super().__init__(text)
        self.hint = hint
        self.nearest: dict[str, Any] = {"word": word, "words": words}
