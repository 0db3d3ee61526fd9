"""`whistlestop.mirror(...)`: what a script logs elsewhere goes to its run as well. Its own calls stay what they are."""

import threading
from collections.abc import Mapping, Sequence
from re import Pattern
from types import TracebackType
from typing import Any

from whistlestop.domain.errors import BadRequest
from whistlestop.integrations import mirrored_calls, mirrored_lines
from whistlestop.integrations.mirror_target import Target, say_once, target

__all__ = ["Mirror", "mirror"]

# Patches belong to the process, so who listens does, too: source -> mirrors. Lines have their pattern as the source.
_listening: dict[str, list["Mirror"]] = {}
_changing = threading.RLock()


def mirror(
    *sources: str, run: Target | None = None, lines: str | Pattern[str] | Sequence[str | Pattern[str]] | None = None
) -> "Mirror":
    """Send what the program logs elsewhere to its run, from here on until `close()` or the end of a `with` block.

    `sources`: "tensorboard", "mlflow", "wandb"; without sources and lines all three. They may be imported before or
    after. `lines`: regular expressions with named groups for what the program prints (`step` is the step, every other
    group a metric), or the names "key=value" and "huggingface". `run`: default is the open run; under a runner, a
    program that has none needs none; elsewhere nothing happens.
    """
    patterns = [lines] if isinstance(lines, str | Pattern) else list(lines or ())
    if not sources and not patterns:
        sources = tuple(mirrored_calls.SOURCES)
    for source in sources:
        if source not in mirrored_calls.SOURCES:
            raise BadRequest(
                f"mirror({source!r}): expected one of {', '.join(mirrored_calls.SOURCES)}; "
                "patterns for printed lines are given as lines=…"
            )
    readers = {f"lines {each}": mirrored_lines.reader(each) for each in patterns}
    return Mirror(sources, readers, run)


class Mirror:
    """Made by `whistlestop.mirror()`. Closing it takes the patches back, unless another mirror needs them."""

    def __init__(
        self, sources: Sequence[str], readers: Mapping[str, mirrored_lines.Reader], run: Target | None
    ) -> None:
        self._run = run
        self._keys = {*sources, *readers}
        with _changing:
            for key in self._keys:
                _listening.setdefault(key, []).append(self)
            for source in sources:
                mirrored_calls.begin(source, _tell)
            for key, read in readers.items():
                mirrored_lines.begin(key, read, _tell)

    def close(self) -> None:
        """The program's calls go to nobody but their own library again. A second call does nothing."""
        with _changing:
            for key in self._keys:
                mirrors = _listening[key]
                if self in mirrors and len(mirrors) == 1:
                    # Lines first end, then are forgotten: a last one without a newline is told by its end.
                    (mirrored_calls if key in mirrored_calls.SOURCES else mirrored_lines).end(key)
                if self in mirrors:
                    mirrors.remove(self)

    def __enter__(self) -> "Mirror":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _tell(key: str, step: Any, values: Mapping[str, Any]) -> None:
    """One point from a source, once to each run that listens, however many mirrors it has. Never raises."""
    try:
        told: list[Target] = []
        numbers: dict[str, float] | None = None
        counted = False
        for each in tuple(_listening.get(key, ())):
            run = each._run if each._run is not None else target()
            if run is None or any(run is other for other in told):
                continue
            told.append(run)
            if numbers is None:
                numbers = numbers_of(values)
                counted = isinstance(step, mirrored_calls.Counted)
                step = None if step is None else int(number_of(step))
            if not numbers:
                return
            if step is None or step < 0 or (counted and getattr(run, "_looping", False)):
                run.log(**numbers)
            else:
                run.log_at(step, numbers)
    except Exception as error:
        say_once(f"a point of {key} could not be mirrored: {error!r}")


def numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Those that are numbers, the others left out: images, texts and symbolic tensors are logged by the same calls."""
    found = {}
    for name, value in values.items():
        try:
            found[str(name)] = number_of(value)
        except Exception:
            continue
    return found


def number_of(value: Any) -> float:
    """Of Python, NumPy, torch, JAX and TensorFlow scalars, also as arrays of one. Raises for everything else."""
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str | bytes):
        raise TypeError("a text")
    if hasattr(value, "item"):
        return float(value.item())
    if hasattr(value, "numpy"):
        return float(value.numpy().item())
    return float(value)
