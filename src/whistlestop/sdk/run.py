"""The loop: `with whistlestop.run() as run: for step in run.steps(1000): …`. The same with a server and without."""

import os
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from whistlestop.channel.layout import Loop, ProgramStage, Word
from whistlestop.domain import skipping
from whistlestop.domain.errors import BadRequest
from whistlestop.domain.reasons import STOP_SAYS, StopReason
from whistlestop.domain.skipping import Ranges
from whistlestop.sdk.cadence import read_cadence
from whistlestop.sdk.driven import Driven
from whistlestop.sdk.items import each
from whistlestop.sdk.looping import Killed, Looping, Paused
from whistlestop.sdk.parts import Part, files_part, part_of
from whistlestop.sdk.randomness import NAME as RNG
from whistlestop.sdk.randomness import rng_part
from whistlestop.sdk.saver import Restored
from whistlestop.sdk.settings import STANDALONE_ROOT, Settings, input_of, safe_name
from whistlestop.sdk.steering import Value
from whistlestop.sdk.step import Step

if TYPE_CHECKING:
    from whistlestop.sdk.committing import Saved

__all__ = ["Killed", "Paused", "Run", "run"]

Item = TypeVar("Item")


class _Cut(BaseException):
    """Leaves an evaluation in the middle. Nobody sees it but `evaluating`."""


class Run(Looping):
    """One training. Made by `whistlestop.run()`; used as a context manager."""

    @property
    def rank(self) -> int:
        return self._settings.world.rank

    @property
    def world(self) -> int:
        """How many ranks train together."""
        return self._settings.world.size

    def track(self, *, rng: Any = False, per_rank: bool = False, **parts: Any) -> None:
        """Save these with every checkpoint and load them on resume: anything with state_dict and load_state_dict,
        random generators, arrays, tensors, variables, Keras models, dicts and lists (filled in place).

        `rng=True` adds the global random generators of Python and of every framework that is loaded. With several ranks
        rank 0 saves for all; random states and loaders are saved by each, others too with `per_rank=True`."""
        for name, thing in parts.items():
            self._add_part(name, part_of(name, thing, per_rank=per_rank))
        if rng is True:
            self._add_part(RNG, rng_part())
        elif rng is not False:  # a generator of the program's own that goes by this name
            self._add_part(RNG, part_of(RNG, rng, per_rank=per_rank))

    def saves(
        self, *, save: Callable[[], Any], load: Callable[[Any], None], name: str = "state", per_rank: bool = False
    ) -> None:
        """Track something by two functions: `save()` returns what pickle can store, `load(state)` takes it back."""
        self._add_part(name, Part(save, load, per_rank))

    def saves_files(
        self, *, save: Callable[[Path], Any], load: Callable[[Path], None], name: str = "files", per_rank: bool = False
    ) -> None:
        """Track what is saved as files: `save(directory)` writes into an empty directory, `load(directory)` reads."""
        self._add_part(name, files_part(save, load, per_rank=per_rank))

    def restore(self) -> Restored | None:
        """Load the checkpoint to go on from into the tracked parts; `steps` does it if nobody has."""
        self._restore_asked = True
        return self._restore()

    def steps(self, total: int | None = None, per_epoch: int | None = None, *, accumulate: int = 1) -> Iterator[Step]:
        """The steps that are left, from the restored one on. Ends after `total`, or when a stop has come.

        `accumulate=4`: every step comes four times, for gradients that are added up; `step.update` is true at the last.
        """
        whole = all(each is None or hasattr(each, "__index__") for each in (total, per_epoch, accumulate))
        if not whole or (total or 0) < 0 or (per_epoch is not None and per_epoch < 1) or accumulate < 1:
            raise BadRequest(f"steps(total={total}, per_epoch={per_epoch}, accumulate={accumulate}): expected positive "
                             "numbers")  # fmt: skip
        self._prepare_loop(total, per_epoch, accumulate)
        return self._iterate(self._loop(accumulate))

    def epochs(self, total: int | None = None) -> Iterator[Step]:
        """For loops that count epochs alone: a step is an epoch."""
        return self.steps(total, per_epoch=1)

    def each(self, items: Iterable[Item], *, epochs: int | None = 1) -> Iterator[tuple[Step, Item]]:
        """Steps over data, `epochs` times (None: for ever), from where the training was left. `Batches` behind a
        loader, loaders with a state and sequences begin there; others are gone over again."""
        return self._iterate(each(self, items, epochs))

    def driven(self, total: int | None = None, per_epoch: int | None = None) -> Driven:
        """For frameworks that own their loop: they call it after every step."""
        return Driven(self, total, per_epoch)

    def _iterate(self, iterator: Generator[Any, None, None]) -> Iterator[Any]:
        self._iterator = weakref.ref(iterator)  # weak: `break` has to end it where nobody else holds it
        return iterator

    def param(self, name: str, default: Value, *, low: float | None = None, high: float | None = None) -> Any:
        """A value that people may change while the run trains (`whistle set RUN name=value`). Ask for it at every step:
        it costs as much as a dict."""
        known = self._steering.params.get(name)
        if known is not None:
            return known.value
        self._start()
        return self._steering.declare(name, default, low, high)

    def log(self, /, **scalars: Any) -> None:
        """One point per name at the present step. What was logged survives even SIGKILL right after this call."""
        self._start()  # attached, it puts the quick one in this one's place
        self._log_slowly(scalars)

    def log_at(self, step: int, scalars: Mapping[str, Any]) -> None:
        """The same at a step of the caller's own, and with names that Python would not take."""
        try:
            self._start()
            self._log_at(int(step), time.time(), scalars)
        except Exception as error:
            self._attachment.say(f"metrics can't be written: {error!r}")

    def save(self, now: bool = True, files: Mapping[str, str | os.PathLike[str]] | None = None) -> "Saved | None":
        """Save; inside the loop the present step counts as done, so call it behind its work. `now=False`: at the
        next boundary. `files` are added as they are: name in the checkpoint -> file or directory. A step that is saved
        already is saved anew, and the new one counts. Training may go on at once: `wait()` of what this returns says
        when it is durable. None: it failed, or comes later."""
        self._start()
        inside = self._attachment.progress[Word.LOOP] == Loop.INSIDE
        given = {name: Path(path) for name, path in (files or {}).items()}
        if not now or self._open_saver().needs_all_ranks:  # several ranks save together, at a step they agree on
            if not inside and now:
                self._attachment.warn("run.save() outside of the loop does nothing here: several ranks save together")
            self._save_asked = True
            self._save_files = given
            self._wake()
            return None
        step = self._at[0] + 1 if inside else self._at[0]
        saved = self._save(step, "asked by the program", files=given)
        if saved is not None:
            self._own_save = self._at[0]
        return saved

    @contextmanager
    def evaluating(self) -> Iterator[Callable[[Iterable[Item]], Iterator[Item]]]:
        """Mark an evaluation on the timeline. With `as over`, `over(loader)` gives its items until a stop comes: then
        the rest of the block is left out, and the loop ends at its next boundary."""
        self._start()
        progress = self._attachment.progress
        stage = progress[Word.STAGE]
        progress[Word.EVALUATIONS] += 1
        progress[Word.STAGE] = ProgramStage.EVALUATING
        self._tell({"kind": "evaluation", "step": self._at[0]})
        try:
            yield self._over
        except _Cut:
            self._attachment.say(f"{self.name}: the evaluation at step {self._at[0]} was left for a stop")
        finally:
            progress[Word.STAGE] = stage

    def _over(self, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            inside = self._attachment.progress[Word.LOOP] == Loop.INSIDE  # behind the loop it is the final evaluation
            if inside and self.should_stop and self._attachment.group is None:  # ranks may be in a collective here
                raise _Cut
            yield item

    @property
    def should_stop(self) -> bool:
        """The loop will end, or be left, at its next boundary. For loops of the program's own: it is time to end."""
        if not self._looping:
            self._start()
            self._interrupts.install()
            self._settle_values()
            self._ask_rules(self._at[0])
        orders, group = self._attachment.orders, self._attachment.group
        if group is not None:  # it ends where all ranks end
            told = group.decided
            ends = told[Word.STOP_LEVEL] or told[Word.PREEMPT_DEADLINE]
            return bool(ends and group.due(self._at[0] + 1))
        if self._at[0] + 1 < orders[Word.STOP_AT_STEP]:
            return False
        asked = orders[Word.STOP_LEVEL] or orders[Word.PREEMPT_DEADLINE]
        return bool(asked or self._interrupts.seen or self._finish or self._fired)

    @property
    def skipped(self) -> Ranges:
        """Batches that a roll-back passes over, as (first, behind): they are not trained on. `each` leaves them out by
        itself; a loop that takes its data by the step's number asks `batch_of`."""
        return self._skips

    def batch_of(self, step: int) -> int:
        """The number of the batch that this step takes: the step's own, unless some were passed over before it."""
        return skipping.batch_of(int(step), self._skips)

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
    stop_when: Sequence[Any] = (),
    lazy: bool = False,
) -> Run:
    """A training that can be stopped, paused and resumed, with a server or without.

    `stop_when` is a list of stop rules: `[whistlestop.plateau("val_loss", patience=5)]`; those of the spec come on top.
    `every` says when to save ("500 steps", "10 minutes, 1 epoch"); the spec's word wins over it. Without a server:
    `checkpoints` is where they go, `keep` how many stay, and `resume` is "auto", "must" or "never".
    `lazy=True`, for torch: parameters and optimizer states are copied while the next forward and backward run, and the
    tracked optimizers' next step waits for it. For loops in which nothing else changes them.
    """
    if resume not in ("auto", "must", "never"):
        raise BadRequest(f"resume={resume!r}: expected 'auto', 'must' or 'never'")
    settings = Settings.read(name)
    # Absolute: the program may change its directory on the way.
    place = Path(checkpoints if checkpoints is not None else f"{STANDALONE_ROOT}/{safe_name(settings.name)}").absolute()
    return Run(
        settings,
        checkpoints=place,
        resume=resume,
        cadence=read_cadence(settings.every or every),
        keep=keep,
        stop_when=stop_when,
        lazy=lazy,
    )
