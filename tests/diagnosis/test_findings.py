"""The table of causes is whole."""

from whistlestop.diagnosis.findings import KINDS, Cause


def test_every_cause_has_its_weight_and_its_words() -> None:
    assert set(KINDS) == set(Cause)
    assert all(kind.says and kind.do.endswith(".") for kind in KINDS.values())
