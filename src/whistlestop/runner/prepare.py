"""Everything before the program starts: the code in place, the checkpoint chosen, the environment made."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from whistlestop.channel import layout
from whistlestop.runner.choosing import Choice, Chosen, choose
from whistlestop.runner.fetching import CannotStart
from whistlestop.runner.notes import note

if TYPE_CHECKING:
    from whistlestop.wire.launch import Launch

QUICK_BUNDLE = 8 << 20
# Taken from the runner's own environment where the launch says nothing: without them hardly a program starts.
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


class Prepared(NamedTuple):
    env: dict[str, str]
    cwd: Path
    choice: Choice


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
    choice = choose(launch)
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
    env = environment(launch, secrets, restore=choice.restored) | choice.inputs
    return Prepared(env, workdir / launch.cwd, choice)


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
