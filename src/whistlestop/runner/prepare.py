"""Everything before the program starts: the code in place, the checkpoint chosen, the environment made."""

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from whistlestop.channel import layout
from whistlestop.engines.attempt_files import seat_of
from whistlestop.runner.choosing import Choice, Chosen, choose
from whistlestop.runner.fetching import CannotStart
from whistlestop.runner.notes import note
from whistlestop.runner.program import NotStarted, Program

if TYPE_CHECKING:
    from whistlestop.runner.gang import Met
    from whistlestop.wire.launch import Launch

QUICK_SECONDS = 0.5  # what is prepared within them starts before the runner has loaded the rest of itself
# Taken from the runner's own environment where the launch says nothing: without them hardly a program starts.
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


class Prepared(NamedTuple):
    env: dict[str, str]
    cwd: Path
    choice: Choice


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


class Preparing:
    """In a thread, while the rest of the runner is loaded: whatever hangs, orders are heard."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.result: Prepared | CannotStart | None = None
        self._over = threading.Event()

    def begin(self, launch: "Launch", secrets: Mapping[str, str]) -> None:
        threading.Thread(target=self._run, args=(launch, secrets), daemon=True).start()

    def settle(self, result: Prepared | CannotStart) -> None:
        self.result = result
        self._over.set()

    def wait(self, seconds: float | None = None) -> Prepared | CannotStart | None:
        """None: not within so many seconds."""
        self._over.wait(seconds)
        return self.result

    def _run(self, launch: "Launch", secrets: Mapping[str, str]) -> None:
        """Whatever goes wrong here must end as a reason, not as a dead runner."""
        try:
            self.settle(prepare(launch, secrets, cancelled=self.cancelled.is_set))
        except CannotStart as problem:
            self.settle(problem)
        except BaseException as error:
            note(f"prepare: {error!r}")
            self.settle(CannotStart("prepare_failed", f"Preparing failed: {error!r}"))


def start(program: Program, launch: "Launch", ready: Prepared, met: "Sequence[Met] | None" = None) -> None:
    """`met`: all nodes, where there are several. Raises CannotStart."""
    command, env = launch.command, ready.env
    if met is not None or launch.ranks:
        from whistlestop.runner import gang  # here: few have them, and everybody waits for what is imported above

        met = met if met is not None else [gang.alone(launch)]
        command, env = gang.command(launch), {**gang.environment(launch, met), **env}  # what a user has said counts
    try:
        program.start(command, env=env, cwd=ready.cwd)
    except NotStarted as problem:
        raise CannotStart("command_not_found", str(problem)) from problem


def environment(launch: "Launch", secrets: Mapping[str, str], *, restore: Chosen | None) -> dict[str, str]:
    env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    env.update(launch.env)
    env.update(secrets)
    env.setdefault("PYTHONUNBUFFERED", "1")
    if launch.sdk_path:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (launch.sdk_path, env.get("PYTHONPATH"))))
    slots = ",".join(map(str, launch.slots))
    devices = slots if launch.devices is None else ",".join(map(str, launch.devices))
    if devices and os.path.exists("/proc/driver/nvidia/gpus") and "CUDA_VISIBLE_DEVICES" not in launch.env:
        env["CUDA_VISIBLE_DEVICES"] = devices
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
    if launch.skip:
        env[layout.ENV_SKIP] = json.dumps(launch.skip)
    if launch.nodes > 1:
        env[layout.ENV_JOB] = seat_of(launch.attempt_id, launch.node, launch.nodes)
    if launch.preemption_rate is not None:
        env[layout.ENV_RATE] = repr(launch.preemption_rate)
    if restore is not None:
        env[layout.ENV_RESTORE] = restore.path
        env[layout.ENV_OWN] = "1" if restore.own else "0"
    return env
