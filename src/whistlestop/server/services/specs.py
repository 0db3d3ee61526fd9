"""A run's spec as values. The text never changes, so it is read once."""

from functools import lru_cache

from whistlestop.wire.spec import Spec
from whistlestop.wire.spec_file import parse_spec


@lru_cache(maxsize=1024)
def spec_of(text: str) -> Spec:
    return parse_spec(text)
