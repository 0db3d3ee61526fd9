"""Everything before the program starts: the code in place, the checkpoint chosen and verified, the environment made."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from whistlestop.channel import layout
from whistlestop.runner.notes import note

if TYPE_CHECKING:
    from whistlestop.blobs.manifest import Checkpoint
    from whistlestop.blobs.storage import Storage
    from whistlestop.wire.launch import Launch

QUICK_BUNDLE = 8 << 20
_NOT_FINITE = "a value was not finite before it was saved"
# Taken from the runner's own environment where the launch says nothing: without them hardly a program starts.
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


class CannotStart(Exception):
    """The program is not started. `reason` is an EndReason."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class Aside(NamedTuple):
    """A checkpoint that is not gone on from. `why` need not name it."""

    path: str
    why: str
    step: int
    healthy: bool = True  # False: nothing is wrong with its files, but with what was trained

    def in_words(self, run: str) -> str:
        if self.healthy:
            return f"A checkpoint can't be used: {self.why}"
        return f"The checkpoint of step {self.step} is passed over: {self.why}. {_all_the_same(run, self.step, 'it')}"

    def once(self) -> str:
        """Its path, once, and why."""
        return self.why if self.path in self.why else f"{self.path}: {self.why}"


class Chosen(NamedTuple):
    """A checkpoint to go on from."""

    path: str  # on this machine, verified
    address: str  # where it is kept
    step: int
    id: str
    own: bool  # of this phase, not of a run that this one continues


class Prepared(NamedTuple):
    env: dict[str, str]
    cwd: Path
    restored: Chosen | None
    aside: list[Aside]


def is_quick(launch: "Launch") -> bool:
    """Whether preparing takes milliseconds: then the program starts before the runner even connects."""
    try:
        small = launch.bundle is None or os.path.getsize(launch.bundle) <= QUICK_BUNDLE
    except OSError:
        small = True
    fresh = not (launch.restore and os.path.isdir(os.path.join(launch.checkpoints, launch.phase)))
    return small and fresh and not launch.restore_from and not launch.inputs and launch.storage is None


def prepare(launch: "Launch", secrets: Mapping[str, str], *, cancelled: Callable[[], bool] = lambda: False) -> Prepared:
    """Raises CannotStart."""
    from whistlestop.blobs.storage import Fenced, StorageFailed

    aside: list[Aside] = []
    try:
        restored = _choose_checkpoint(launch, aside)
        inputs = _inputs(launch, aside)
    except (StorageFailed, Fenced, OSError) as error:
        place = launch.storage or launch.checkpoints
        raise CannotStart("prepare_failed", f"The checkpoints in {place} can't be used: {error}") from error
    workdir = Path(launch.workdir)
    try:
        if launch.bundle is not None:
            from whistlestop.runner.bundle import BundleRefused, lay_out

            try:
                lay_out(Path(launch.bundle), workdir, cancelled=cancelled)
            except BundleRefused as error:
                raise CannotStart("prepare_failed", str(error)) from error
        elif not workdir.is_dir():
            raise CannotStart("prepare_failed", f"The working directory {workdir} does not exist on this host.")
    except OSError as error:
        raise CannotStart(
            "prepare_failed",
            f"The code could not be laid out in {workdir}: {error.strerror} ({error.filename}). "
            "Free some space or fix the permissions; the run goes on from its last checkpoint.",
        ) from error
    env = environment(launch, secrets, restore=restored) | inputs
    return Prepared(env, workdir / launch.cwd, restored, aside)


def try_prepare(
    launch: "Launch", secrets: Mapping[str, str], *, cancelled: Callable[[], bool] = lambda: False
) -> Prepared | CannotStart:
    """The same, with the problem as a value. Whatever goes wrong here must end as a reason, not as a dead runner."""
    try:
        return prepare(launch, secrets, cancelled=cancelled)
    except CannotStart as problem:
        return problem
    except Exception as error:
        note(f"prepare: {error!r}")
        return CannotStart("prepare_failed", f"Preparing failed: {error!r}")


def environment(launch: "Launch", secrets: Mapping[str, str], *, restore: Chosen | None) -> dict[str, str]:
    env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    env.update(launch.env)
    env.update(secrets)
    env.setdefault("PYTHONUNBUFFERED", "1")
    if launch.sdk_path:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (launch.sdk_path, env.get("PYTHONPATH"))))
    slots = ",".join(map(str, launch.slots))
    if slots and os.path.exists("/proc/driver/nvidia/gpus") and "CUDA_VISIBLE_DEVICES" not in launch.env:
        env["CUDA_VISIBLE_DEVICES"] = slots
    env |= {
        layout.ENV_CHANNEL: launch.directory,
        layout.ENV_RUN: launch.run_id,
        layout.ENV_RUN_NAME: launch.run_name,
        layout.ENV_PHASE: launch.phase,
        layout.ENV_ATTEMPT: launch.attempt_id,
        layout.ENV_ATTEMPT_NUMBER: str(launch.attempt_number),
        layout.ENV_CHECKPOINTS: launch.checkpoints,
        layout.ENV_STAGE: os.path.join(launch.directory, "stage"),
        layout.ENV_EVERY: ",".join(launch.checkpoint_every),
        layout.ENV_KEEP: str(launch.checkpoint_keep),
        layout.ENV_STOP_WHEN: launch.stop_when,
        layout.ENV_SLOTS: slots,
    }
    if launch.preemption_rate is not None:
        env[layout.ENV_RATE] = repr(launch.preemption_rate)
    if restore is not None:
        env[layout.ENV_RESTORE] = restore.path
        env[layout.ENV_OWN] = "1" if restore.own else "0"
    return env


def _choose_checkpoint(launch: "Launch", aside: list[Aside]) -> "Chosen | None":
    """Never a silent start from zero where checkpoints were committed before. The fence comes first: an earlier attempt
    that is still alive somewhere can't add one behind our back."""
    from whistlestop.blobs.open import open_storage

    storage = open_storage(launch.storage or launch.checkpoints, launch.storage_options)
    if launch.kind == "train":
        storage.probe(launch.phase)
        storage.open_attempt(launch.phase, launch.attempt_number, launch.attempt_id)
    if not launch.restore:
        return None
    if (found := _newest(launch, storage, launch.phase, aside)) is not None:
        return found
    if aside or (launch.must_restore and launch.restore_from is None):
        raise CannotStart("checkpoint_unusable", _unusable(launch, aside))
    if launch.restore_from is None:
        return None
    return _verified(launch, launch.restore_from)


def _unusable(launch: "Launch", aside: list[Aside]) -> str:
    poisoned = [each for each in aside if not each.healthy]
    if poisoned and len(poisoned) == len(aside):
        paths = ", ".join(each.path for each in poisoned)
        return (
            "No checkpoint of this phase is fit to go on from: a value was not finite before they were saved "
            f"({paths}). Nothing was touched. {_all_the_same(launch.run_id, poisoned[0].step)}"
        )
    whys = "".join(f" {each.once()}." for each in aside)
    instead = f" {_all_the_same(launch.run_id, poisoned[0].step, f'step {poisoned[0].step}')}" if poisoned else ""
    return (
        f"This phase has committed checkpoints, and none of them can be used.{whys} Nothing was touched: "
        f"restore the files, or start the phase afresh.{instead}"
    )


def _all_the_same(run: str, step: int, what: str = "the newest") -> str:
    return f"To go on from {what} all the same: whistle continue {run} --step {step}"


def _inputs(launch: "Launch", aside: list[Aside]) -> dict[str, str]:
    """A phase that left no checkpoint gives no variable; one whose checkpoints are all damaged is an error."""
    from whistlestop.blobs.open import open_storage

    env = {}
    for wanted in launch.inputs:
        damaged: list[Aside] = []
        variable = layout.ENV_INPUT + re.sub(r"[^A-Z0-9]", "_", wanted.phase.upper())
        if wanted.path is not None:
            env[variable] = _verified(launch, wanted.path).path
            continue
        storage = open_storage(launch.storage or launch.checkpoints, launch.storage_options)
        found = _newest(launch, storage, wanted.phase, damaged)
        aside += damaged
        if found is not None:
            env[variable] = found.path
        elif damaged:
            raise CannotStart(
                "checkpoint_unusable", f"No checkpoint of phase {wanted.phase} can be used: {damaged[0].once()}"
            )
    return env


def _verified(launch: "Launch", address: str) -> Chosen:
    from whistlestop.blobs.manifest import Damaged
    from whistlestop.blobs.open import locate

    try:
        storage, checkpoint = locate(address, launch.storage_options)
        path = storage.fetch(checkpoint, _place(launch, checkpoint))
    except Damaged as error:
        raise CannotStart(
            "checkpoint_unusable", f"The checkpoint to start from, {address}, can't be used: {error.text}"
        ) from error
    return Chosen(str(path), address, checkpoint.step, checkpoint.id, own=False)


def _newest(launch: "Launch", storage: "Storage", phase: str, aside: list[Aside]) -> Chosen | None:
    paths: dict[str, Path] = {}

    def fetch(checkpoint: "Checkpoint") -> None:
        paths[checkpoint.id] = storage.fetch(checkpoint, _place(launch, checkpoint))

    found, damaged = storage.newest(phase, verify=fetch)
    aside += [
        Aside(storage.where(each), why if each.healthy else _NOT_FINITE, each.step, each.healthy)
        for each, why in damaged
    ]
    if found is None:
        return None
    return Chosen(str(paths[found.id]), storage.where(found), found.step, found.id, own=True)


def _place(launch: "Launch", checkpoint: "Checkpoint") -> Path:
    """Where a checkpoint is put that comes from afar: gone with the attempt."""
    return Path(launch.directory) / "fetched" / checkpoint.phase / checkpoint.path.name
