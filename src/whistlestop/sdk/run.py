"""The loop: `with whistlestop.run() as run: for step in run.steps(1000): …`. The same with a server and without."""

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from whistlestop.blobs.checkpoints import Checkpoint
from whistlestop.channel.layout import Loop, ProgramStage, Word
from whistlestop.domain.errors import BadRequest
from whistlestop.domain.reasons import STOP_SAYS, StopReason
from whistlestop.sdk.cadence import read_cadence
from whistlestop.sdk.parts import Part, part_of
from whistlestop.sdk.saver import Restored
from whistlestop.sdk.settings import Settings, input_of
from whistlestop.sdk.step import Step
from whistlestop.sdk.training import Killed, Paused, Training

__all__ = ["Killed", "Paused", "Run", "run"]


class Run(Training):
    """One training. Made by `whistlestop.run()`; used as a context manager."""

    def track(self, **parts: Any) -> None:
        """Save these with every checkpoint and load them on resume: anything with state_dict and load_state_dict,
        random generators, dicts and lists (filled in place)."""
        for name, thing in parts.items():
            self._add_part(name, part_of(name, thing))

    def saves(self, *, save: Callable[[], Any], load: Callable[[Any], None], name: str = "state") -> None:
        """Track something by two functions: `save()` returns what pickle can store, `load(state)` takes it back."""
        self._add_part(name, Part(save, load))

    def restore(self) -> Restored | None:
        """Load the checkpoint to go on from into the tracked parts; `steps` does it if nobody has."""
        self._restore_asked = True
        return self._restore()

    def steps(self, total: int | None = None, per_epoch: int | None = None) -> Iterator[Step]:
        """The steps that are left, from the restored one on. Ends after `total`, or when a stop has come."""
        if self._looping:
            raise BadRequest("steps() was called twice; a run has one loop")
        if (total is not None and total < 0) or (per_epoch is not None and per_epoch < 1):
            raise BadRequest(f"steps(total={total}, per_epoch={per_epoch}): expected positive numbers")
        self._looping = True
        self._start()
        self._restore()
        iterator = self._loop(total, per_epoch)
        self._iterator = weakref.ref(iterator)  # weak: `break` has to end it where nobody else holds it
        return iterator

    def log(self, **scalars: Any) -> None:
        """One point per name at the present step. What was logged survives even SIGKILL right after this call."""
        self._log_slowly(scalars)  # attached, `_start` puts the quick one in this one's place

    def save(self, now: bool = True, files: Mapping[str, str | os.PathLike[str]] | None = None) -> Checkpoint | None:
        """Save; inside the loop the present step counts as done, so call it behind its work. `now=False`: at the
        next boundary. `files` are added as they are: name in the checkpoint -> file or directory. A step that is saved
        already is saved anew, and the new one counts."""
        self._start()
        if not now:
            self._save_asked = True
            self._wake()
            return None
        inside = self._attachment.progress[Word.LOOP] == Loop.INSIDE
        step = self._at[0] + 1 if inside else self._at[0]
        saved = self._save(step, "asked by the program", files={k: Path(v) for k, v in (files or {}).items()})
        if saved is not None:
            self._own_save = self._at[0]
        return saved

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Mark an evaluation on the timeline. Long ones may look at `should_stop`."""
        self._start()
        progress = self._attachment.progress
        stage = progress[Word.STAGE]
        progress[Word.EVALUATIONS] += 1
        progress[Word.STAGE] = ProgramStage.EVALUATING
        self._attachment.tell({"kind": "evaluation", "step": self._at[0]})
        try:
            yield
        finally:
            progress[Word.STAGE] = stage

    @property
    def should_stop(self) -> bool:
        """The loop will end, or be left, at its next boundary."""
        orders = self._attachment.orders
        return bool(orders[Word.STOP_LEVEL] or orders[Word.PREEMPT_DEADLINE] or self._interrupts.seen or self._finish)

    def finish(self, reason: str = "custom", text: str | None = None) -> None:
        """End the loop at the next boundary and keep the result. `reason` is one of StopReason, or free words."""
        known = next((each for each in StopReason if each.value == reason), StopReason.CUSTOM)
        self._finish = known, text or (STOP_SAYS[known] if known.value == reason else reason)
        self._wake()

    def input(self, phase: str) -> Path:
        """The directory with the checkpoint that an earlier phase left."""
        return input_of(self.inputs, phase)

    def __enter__(self) -> "Run":
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(error)


def run(
    name: str | None = None,
    *,
    checkpoints: str | os.PathLike[str] | None = None,
    resume: str = "auto",
    every: str | int | Iterable[str] | None = None,
    keep: int = 3,
) -> Run:
    """A training that can be stopped, paused and resumed, with a server or without.

    `every` says when to save ("500 steps", "10 minutes, 1 epoch"); the spec's word wins over it. Without a server:
    `checkpoints` is where they go, `keep` how many stay, and `resume` is "auto", "must" or "never".
    """
    if resume not in ("auto", "must", "never"):
        raise BadRequest(f"resume={resume!r}: expected 'auto', 'must' or 'never'")
    settings = Settings.read(name)
    return Run(
        settings,
        checkpoints=Path(checkpoints) if checkpoints is not None else None,
        resume=resume,
        cadence=read_cadence(settings.every or every),
        keep=keep,
    )
