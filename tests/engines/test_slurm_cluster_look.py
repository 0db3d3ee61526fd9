"""How Slurm is, for whoever asks the doctor: its commands are made up here."""

from pathlib import Path

import pytest

from whistlestop.domain.errors import EngineUnreachable
from whistlestop.engines.slurm import SlurmEngine

SINFO = """#!/bin/sh
if [ "$1" = --version ]; then echo "slurm 24.11.5"; exit; fi
{rest}
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmEngine:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return SlurmEngine({"partition": "gpu"})


def sinfo(directory: Path, rest: str) -> None:
    (directory / "sinfo").write_text(SINFO.format(rest=rest))
    (directory / "sinfo").chmod(0o755)


def test_a_cluster_that_answers_has_a_version_and_nodes(engine: SlurmEngine, tmp_path: Path) -> None:
    sinfo(tmp_path, "echo 'n1|idle|none'; echo 'n2|down*|Not responding'")
    found = engine.cluster()
    assert (found.version, found.nodes) == ("Slurm 24.11.5", 1)
    assert found.text == "not usable: n2 (down*, Not responding)"


def test_a_partition_without_nodes_is_named(engine: SlurmEngine, tmp_path: Path) -> None:
    sinfo(tmp_path, "true")
    assert engine.cluster().text == "there is no node in a partition gpu: sinfo shows which there are"


def test_a_controller_that_is_away_is_named_with_what_to_do(engine: SlurmEngine, tmp_path: Path) -> None:
    sinfo(tmp_path, "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1")
    with pytest.raises(EngineUnreachable, match=r"Unable to contact .* Try `scontrol ping`"):
        engine.cluster()
