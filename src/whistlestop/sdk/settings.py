"""What the environment tells the program: the runner sets it, nobody else has to."""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from whistlestop.channel import layout
from whistlestop.domain.errors import NotFound
from whistlestop.sdk.costs import read_rate
from whistlestop.sdk.world import World, find_world

STANDALONE_ROOT = "whistle-checkpoints"


@dataclass(frozen=True)
class Settings:
    name: str  # of the run
    phase: str | None  # None: no runner has given one
    world: World
    channel: Path | None  # None: standalone
    checkpoints: Path | None
    restore: Path | None
    attempt_id: str | None
    attempt_number: int | None
    every: str | None
    stop_when: str
    inputs: Mapping[str, Path]
    agree: str | None = None  # host:port where the ranks of several nodes meet
    digests: bool = False
    rate: float | None = None  # unnoticed preemptions per second of this pool
    restore_own: bool = False  # what is restored is one of this phase, wherever it was fetched to
    stage: Path | None = None  # where saves are handed over; None: the program makes them durable itself
    seat: str = ""  # which runner that is, where an attempt has several
    skip: str = "[]"  # JSON: batches that are passed over

    @classmethod
    def read(cls, name: str | None = None, env: Mapping[str, str] | None = None) -> "Settings":
        env = os.environ if env is None else env
        number = env.get(layout.ENV_ATTEMPT_NUMBER, "")
        return cls(
            name=env.get(layout.ENV_RUN_NAME) or name or _script_name(),
            phase=env.get(layout.ENV_PHASE) or None,
            world=find_world(env),
            channel=_path(env, layout.ENV_CHANNEL),
            checkpoints=_path(env, layout.ENV_CHECKPOINTS),
            restore=_path(env, layout.ENV_RESTORE),
            attempt_id=env.get(layout.ENV_ATTEMPT) or None,
            attempt_number=int(number) if number.isdecimal() else None,
            every=env.get(layout.ENV_EVERY) or None,
            stop_when=env.get(layout.ENV_STOP_WHEN) or "[]",
            inputs=read_inputs(env),
            agree=env.get(layout.ENV_AGREE) or None,
            digests=env.get(layout.ENV_DIGESTS) == "1",
            rate=read_rate(env.get(layout.ENV_RATE)),
            restore_own=env.get(layout.ENV_OWN) == "1",
            stage=_path(env, layout.ENV_STAGE),
            seat=env.get(layout.ENV_JOB, ""),
            skip=env.get(layout.ENV_SKIP) or "[]",
        )

    @property
    def rank(self) -> int:
        return self.world.rank


def read_inputs(env: Mapping[str, str] | None = None) -> Mapping[str, Path]:
    """Directories of earlier phases' checkpoints, by the phase's name in small letters, anything else as `_`."""
    env = os.environ if env is None else env
    return {
        _key(variable.removeprefix(layout.ENV_INPUT)): Path(value)
        for variable, value in env.items()
        if variable.startswith(layout.ENV_INPUT) and value
    }


def input_of(inputs: Mapping[str, Path], phase: str) -> Path:
    """The directory that phase `phase` left. NotFound says what there is instead."""
    try:
        return inputs[_key(phase)]
    except KeyError:
        given = ", ".join(sorted(inputs)) or "none"
        raise NotFound(
            f"there is no input from phase {phase!r}; given: {given}",
            hint=f"name it under `needs`, or set {layout.ENV_INPUT}{_key(phase).upper()} to run it by hand",
        ) from None


def safe_name(name: str) -> str:
    """The run's name as the name of a directory."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "run"


def _key(phase: str) -> str:
    return re.sub(r"[^a-z0-9]", "_", phase.lower())


def _path(env: Mapping[str, str], variable: str) -> Path | None:
    value = env.get(variable)
    return Path(value) if value else None


def _script_name() -> str:
    script = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else ""
    return script if script and not script.startswith("-") else "run"
