"""`python -m whistlestop.runner DIRECTORY`: one attempt, from its launch.json to its `done` file.

The imports here are few on purpose: the program is started first, everything else is loaded while it runs.
"""

import fcntl
import mmap
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from whistlestop.channel.layout import CONTROL_FILE, SIZE, Word
from whistlestop.engines.attempt_files import LOCK, read_began, read_program, seat_of
from whistlestop.engines.containment import Reaper, Tree, become_subreaper
from whistlestop.runner import launching
from whistlestop.runner.fetching import CannotStart
from whistlestop.runner.notes import note
from whistlestop.runner.prepare import QUICK_SECONDS, Prepared, Preparing, start
from whistlestop.runner.program import Program

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from whistlestop.channel.control import Control
    from whistlestop.runner.events import Events
    from whistlestop.runner.steering import Steering
    from whistlestop.wire.launch import Launch


def main(arguments: list[str]) -> int:
    directory = Path(arguments[0])
    if not _hold_lock(directory, arguments):
        return 0  # another runner has it
    signal.pthread_sigmask(signal.SIG_BLOCK, launching.SIGNALS)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o077)
    os.chdir("/")
    launch = launching.read_launch(directory)
    secrets = launching.read_secrets()
    if "--salvage" in arguments:
        _salvage(launch, directory)
    else:
        _supervise(launch, directory, secrets, walk="--walk" in arguments)
    os._exit(0)  # threads that still read or hash have nothing left to say


def _hold_lock(directory: Path, arguments: list[str]) -> bool:
    """The engine has locked it for us, or we lock it ourselves. Held until this process is gone, however it goes."""
    given = [int(each.removeprefix("--lock=")) for each in arguments if each.startswith("--lock=")]
    fd = given[0] if given else os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(fd, False)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _supervise(launch: "Launch", directory: Path, secrets: dict[str, str], *, walk: bool) -> None:
    if missing := set(launch.secret_names) - set(secrets):
        # The server died while it handed them over. Without our mark the engine knows nothing of this attempt, and
        # it is launched again.
        note(f"secrets are missing: {', '.join(sorted(missing))}")
        return
    tree = Tree.create(seat_of(launch.attempt_id, launch.node, launch.nodes), walk=walk)
    launching.mark_began(directory, group=tree.group)
    become_subreaper()
    reaper = Reaper()
    program = Program.fork(tree, reaper)
    launching.mark_program(directory, program.pid)
    from whistlestop.channel.control import Control
    from whistlestop.runner.events import Events
    from whistlestop.runner.recordfile import RecordFile
    from whistlestop.runner.steering import Steering

    events = Events(RecordFile.open(directory / "runner"))
    events.tell("preparing", "The code is laid out and a checkpoint is looked for.")
    preparing, problem = Preparing(), ""
    try:
        (directory / CONTROL_FILE).unlink(missing_ok=True)
        control = Control.create(directory / CONTROL_FILE)
        control[Word.STOP_LEVEL] = launch.stop  # the program may be in its loop before we are connected
    except OSError as error:
        control = Control(mmap.mmap(-1, SIZE))  # private: nobody will attach
        problem = f"The channel in {directory} could not be made: {error.strerror}."
    steering = Steering(directory, control, cast("list[dict[str, Any]]", launch.steering))  # as it stands in the JSON
    try:
        steering.begin()
    except OSError as error:
        problem = f"The changes could not be put into {directory}: {error.strerror}."
    if problem:
        preparing.settle(CannotStart("prepare_failed", problem))
    else:
        preparing.begin(launch, secrets)
        if launch.nodes == 1 and not launch.ranks:  # else there are pipes to be made, and others to be met
            _start_if_ready(launch, program, preparing)
    _go_on(launch, tree, reaper, control, steering, events, program, secrets, preparing)


def _start_if_ready(launch: "Launch", program: Program, preparing: Preparing) -> None:
    ready = preparing.wait(QUICK_SECONDS)
    if isinstance(ready, Prepared):
        try:
            start(program, launch, ready)
        except CannotStart as problem:
            preparing.settle(problem)


def _go_on(
    launch: "Launch",
    tree: Tree,
    reaper: Reaper,
    control: "Control",
    steering: "Steering",
    events: "Events",
    program: Program,
    secrets: dict[str, str],
    preparing: Preparing,
) -> None:
    import asyncio

    from whistlestop.runner.supervise import Supervisor

    sys.setswitchinterval(0.001)  # an order must not wait behind a log flood in another thread
    supervisor = Supervisor(
        launch,
        tree=tree,
        reaper=reaper,
        control=control,
        steering=steering,
        events=events,
        program=program,
        secrets=secrets,
        preparing=preparing,
    )
    asyncio.run(_and_exit(supervisor.run()))


def _salvage(launch: "Launch", directory: Path) -> None:
    import asyncio

    from whistlestop.runner.salvage import salvage

    began = read_began(directory)
    group = Path(began.group) if began is not None and began.group else None
    launching.mark_began(directory, group=group)
    seat = seat_of(launch.attempt_id, launch.node, launch.nodes)
    tree = Tree(seat, group=group, root=os.getpid(), program=read_program(directory))
    asyncio.run(_and_exit(salvage(launch, tree)))


async def _and_exit(work: "Coroutine[None, None, None]") -> None:
    """asyncio would wait for its threads, and one that reads from a dead disk never ends."""
    await work
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
