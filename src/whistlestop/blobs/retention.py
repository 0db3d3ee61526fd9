"""Which checkpoints may go. Pure: the store does the removing."""

from collections.abc import Collection, Sequence

from whistlestop.blobs.manifest import Checkpoint

ASKED = ("on request", "asked by the program")


def removable(checkpoints: Sequence[Checkpoint], *, keep: int, protected: Collection[str] = ()) -> list[Checkpoint]:
    """All but the `keep` newest and the protected ids, oldest first. The newest stays whatever `keep` says, and so
    does the newest healthy one: it is what a resume would take.

    A revision that a later one of the same step and attempt has replaced may always go.
    """
    newest: dict[tuple[int, int], Checkpoint] = {}
    for each in sorted(checkpoints, key=lambda each: each.revision):
        newest[each.step, each.attempt_number] = each
    ranked = [newest[key] for key in sorted(newest, reverse=True)]
    kept = {each.id for each in ranked[: max(1, keep)]} | set(protected)
    kept |= {each.id for each in [each for each in ranked if each.healthy][:1]}
    # What somebody has asked for is not pushed out by what came by itself.
    kept |= {each.id for each in [each for each in ranked if each.meta.get("why") in ASKED][: max(1, keep)]}
    oldest_first = sorted(checkpoints, key=lambda each: (each.step, each.attempt_number, each.revision))
    return [each for each in oldest_first if each.id not in kept]
