"""The table of causes is whole."""

import re
from pathlib import Path

from whistlestop.diagnosis.findings import KINDS, Cause

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "diagnosis.md"


def test_every_cause_has_its_weight_and_its_words() -> None:
    assert set(KINDS) == set(Cause)
    assert all(kind.says and kind.do.endswith(".") for kind in KINDS.values())


def test_every_cause_is_documented_with_its_weight_and_no_other_is() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE))
    assert rows == {cause.value: kind.weight.value for cause, kind in KINDS.items()}
