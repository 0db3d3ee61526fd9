"""The step that the loop hands out: an int that knows its epoch."""

from typing import ClassVar


class Step(int):
    """Index of the step about to run, from 0."""

    # Set on a class made for each loop: setting them on every step would cost more than the step.
    total: ClassVar[int | None] = None
    per_epoch: ClassVar[int | None] = None
    accumulate: ClassVar[int] = 1
    micro: int = 0  # with accumulate=n: which of the n parts of this step it is

    @property
    def update(self) -> bool:
        """The last part of the step: the gradients are complete, the optimizer may step."""
        return self.micro == self.accumulate - 1

    @property
    def epoch(self) -> int:
        return self // self.per_epoch if self.per_epoch else 0

    @property
    def batch(self) -> int:
        """Index within the epoch; the step itself if there are no epochs."""
        return self % self.per_epoch if self.per_epoch else int(self)

    @property
    def last(self) -> bool:
        return self.total is not None and self == self.total - 1

    def every(self, steps: int) -> bool:
        """True once in `steps`: on the step that completes that many."""
        return (self + 1) % steps == 0

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)

    def __repr__(self) -> str:
        return int.__repr__(self)


def step_type(*, total: int | None, per_epoch: int | None, accumulate: int = 1) -> type[Step]:
    given = {"total": total, "per_epoch": per_epoch, "accumulate": accumulate, "__slots__": ()}
    return type("Step", (Step,), given)
