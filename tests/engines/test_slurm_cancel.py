"""An attempt that Slurm has taken twice is cancelled as a whole: its commands are made up here."""

from pathlib import Path

import pytest

from whistlestop.engines.base import JobId
from whistlestop.engines.slurm import SlurmEngine

# The queue is a file; a job that is cancelled leaves it, but for one that stays until all the others have gone.
SQUEUE = """#!/bin/sh
cat {queue}
"""
SCANCEL = """#!/bin/sh
echo "$*" >> {asked}
case "$1" in --signal=*) exit 1;; esac
for id in "$@"; do
  if [ "$id" != 7 ] || ! grep -q '^8|' {queue}; then sed -i "/^$id|/d" {queue}; fi
done
"""


def test_all_jobs_of_the_name_are_cancelled_at_once_and_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, asked = tmp_path / "queue", tmp_path / "asked"
    for name, text in (("squeue", SQUEUE), ("scancel", SCANCEL)):
        (tmp_path / name).write_text(text.format(queue=queue, asked=asked))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("whistlestop.engines.slurm.CANCEL_AGAIN", 0.0)
    monkeypatch.setattr("whistlestop.engines.slurm.LOOK_EVERY", 0.0)
    lines = ["6|whistle-a|FAILED", "7|whistle-a|RUNNING", "8|whistle-a|RUNNING", "9|whistle-b|RUNNING"]
    queue.write_text("".join(f"{line}|n1|N/A|0|None\n" for line in lines))
    SlurmEngine({}).cancel(JobId("a"))
    assert asked.read_text().splitlines()[:2] == ["--signal=KILL 7.0 8.0", "7 8"]
    assert [line[0] for line in queue.read_text().splitlines()] == ["6", "9"]
