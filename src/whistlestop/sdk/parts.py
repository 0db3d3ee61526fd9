"""The parts of a program that a checkpoint holds: how each one's state is taken and given back. Not where it goes."""

from collections.abc import Callable, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import Any

from whistlestop.domain.errors import BadRequest, WhistleError


class RestoreFailed(WhistleError):
    """The checkpoint could not be loaded. Training has not started: it would have begun again from step 0."""

    code = "restore_failed"


@dataclass(frozen=True)
class Part:
    save: Callable[[], Any]
    load: Callable[[Any], None]


def part_of(name: str, thing: Any) -> Part:
    """How to save and load `thing`; the first of these that fits."""
    if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):  # torch, and all that follow it
        return Part(thing.state_dict, thing.load_state_dict)
    if hasattr(thing, "getstate") and hasattr(thing, "setstate"):  # random.Random, the random module
        return Part(thing.getstate, thing.setstate)
    if hasattr(thing, "bit_generator"):  # numpy.random.Generator
        return Part(lambda: thing.bit_generator.state, lambda state: setattr(thing.bit_generator, "state", state))
    if isinstance(thing, MutableMapping):
        return Part(lambda: dict(thing), lambda state: _fill_mapping(thing, state))
    if isinstance(thing, MutableSequence):
        return Part(lambda: list(thing), lambda state: _fill_sequence(thing, state))
    raise BadRequest(
        f"{name} can't be tracked: {type(thing).__name__} has no state_dict and load_state_dict",
        hint="give run.saves(save=..., load=...) two functions instead",
    )


def pack(state: Any) -> bytes:
    import pickle

    return pickle.dumps(state, protocol=5)


def unpack(data: bytes) -> Any:
    import pickle

    return pickle.loads(data)


def _fill_mapping(thing: MutableMapping[Any, Any], state: Any) -> None:
    thing.clear()
    thing.update(state)


def _fill_sequence(thing: MutableSequence[Any], state: Any) -> None:
    thing[:] = state
