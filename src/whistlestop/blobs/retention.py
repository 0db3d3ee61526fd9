"""Which checkpoints may go. Pure: the store does the removing."""

from collections.abc import Collection, Sequence

from whistlestop.blobs.manifest import Checkpoint


def removable(checkpoints: Sequence[Checkpoint], *, keep: int, protected: Collection[str] = ()) -> list[Checkpoint]:
    """All but the `keep` newest and the protected ids, oldest first. The newest stays whatever `keep` says."""
    newest_first = sorted(checkpoints, key=lambda each: (each.step, each.attempt_number), reverse=True)
    return [each for each in reversed(newest_first[max(1, keep) :]) if each.id not in protected]
