"""Where an attempt's program hands over what it saves, and what is fetched for it; gone when the attempt is."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from whistlestop.blobs.open import open_storage
from whistlestop.blobs.retention import Policy
from whistlestop.channel.control import Control
from whistlestop.channel.layout import Word
from whistlestop.engines.attempt_files import memory_of, seat_of
from whistlestop.runner.checkpoints import CheckpointKeeper

if TYPE_CHECKING:
    from whistlestop.wire.launch import Launch


def own_stage(launch: "Launch") -> Path:
    return Path(launch.directory) / "stage"


def clear(launch: "Launch") -> None:
    """The slots, and what was fetched for the program: nobody needs them behind its end."""
    seat = seat_of(launch.attempt_id, launch.node, launch.nodes)
    for path in (memory_of(seat), own_stage(launch), Path(launch.directory) / "fetched"):
        shutil.rmtree(path, ignore_errors=True)


def keeper_of(
    launch: "Launch",
    control: Control,
    *,
    tell: Callable[..., None],
    answers: Callable[[float], int],
    before_commit: Callable[[], None],
) -> CheckpointKeeper:
    """What became of each save is in the control block: the program may wait for it."""

    def durable(step: int, seconds: float) -> None:
        control.set_seconds(Word.DURABLE_SECONDS, seconds)
        control[Word.DURABLE_STEP] = max(control[Word.DURABLE_STEP], step + 1)

    def failed() -> None:
        control[Word.SAVES_FAILED] += 1

    return CheckpointKeeper(
        open_storage(launch.storage or launch.checkpoints, launch.storage_options),
        launch.phase,
        (launch.attempt_number, launch.attempt_id),
        own_stage(launch),
        node=launch.node,
        nodes=launch.nodes,
        policy=Policy.from_launch(launch.checkpoint_keep, launch.checkpoint_policy),
        protected=launch.checkpoint_protected,
        over=launch.passed_over,
        tell=tell,
        answers=answers,
        durable=durable,
        failed=failed,
        before_commit=before_commit,
    )
