"""One process of a rehearsal: started with its orders already given, watched, ended with certainty, and read."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from whistlestop.blobs.checkpoints import Checkpoint, CheckpointStore
from whistlestop.channel import layout
from whistlestop.channel.control import Control
from whistlestop.channel.layout import Kind, Loop, Word
from whistlestop.channel.reader import JournalReader
from whistlestop.channel.records import JournalDamaged
from whistlestop.domain.ids import new_id
from whistlestop.domain.stops import Stop
from whistlestop.engines import processes
from whistlestop.engines.attempt_files import Started
from whistlestop.engines.containment import Tree
from whistlestop.runner import progress
from whistlestop.runner.leaving import Leaving

ENV_DIGESTS = "WHISTLE_DIGESTS"  # 1: every checkpoint's manifest has a hash per leaf
PHASE = "rehearsal"
_BESIDE, _MOVES = 10, 3  # still moving that far past the ordered step: it is not going to stop
_LINES = 15
_LOOK_SECONDS = 0.05
_SAY_SECONDS, _SAY_WAITING_SECONDS = 2.0, 10.0
_DONE = (Loop.FINISHED, Loop.STOPPED, Loop.LEFT)

Curves = dict[str, dict[int, float]]  # by metric, by step


@dataclass(frozen=True)
class Stage:
    """What all processes of one rehearsal share."""

    command: tuple[str, ...]
    root: Path
    env: Mapping[str, str]
    cwd: Path
    timeout: float
    say: Callable[[str], None]


@dataclass(frozen=True)
class Played:
    step: int  # steps done
    checkpoint: Checkpoint | None
    curves: Curves
    trouble: str = ""  # why it is of no use, for people
    note: str = ""  # what they should know all the same

    def after(self, before: "Played") -> "Played":
        """With the curves of the attempt before it; for a step that both logged, this one counts."""
        curves = {name: dict(points) for name, points in before.curves.items()}
        for name, points in self.curves.items():
            curves.setdefault(name, {}).update(points)
        return replace(self, curves=curves)


def play(
    stage: Stage,
    line: str,
    what: str,
    *,
    to: int,
    pause: bool = False,
    restore: Checkpoint | None = None,
    number: int = 1,
) -> Played:
    """`line` names the attempts that share checkpoints, `what` names this one to people."""
    directory = stage.root / line / f"channel-{number}"
    directory.mkdir(parents=True)
    store = CheckpointStore(stage.root / line / "checkpoints")
    attempt_id = new_id("a")
    env = _environment(stage, directory, store.root, attempt_id, number, restore)
    control = Control.create(directory / layout.CONTROL_FILE)
    try:
        control[Word.STOP_AT_STEP] = to
        control[Word.STOP_LEVEL] = Stop.PAUSE if pause else Stop.FINISH_PHASE
        control[Word.STOP_SEQ] = 1
        log = directory / "output.log"
        try:
            code, cut = _run(stage, control, env, log, attempt_id, what=what, to=to)
        except OSError as error:
            return Played(0, None, {}, trouble=f"{stage.command[0]} could not be started: {error.strerror}.")
        seen = _Seen(control, code, cut, _last_lines(log))
        trouble = seen.trouble(what, to, pause=pause, restore=restore)
        step = max(0, control[Word.STEP])
    finally:
        control.close()
    found = next((each for each in store.list(PHASE) if each.attempt_number == number), None)
    if not trouble and (found is None or found.step != step):
        trouble = seen.without_checkpoint(what, step)
    note = "" if trouble or pause or not code else f"{_capital(what)} failed behind its loop, with {ending(code)}."
    return Played(step, found, _curves(directory), trouble, note)


def ending(code: int) -> str:
    """exit code 3, SIGSEGV"""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


class _Seen:
    """What the control block said when the process was gone."""

    def __init__(self, control: Control, code: int, cut: str, lines: Sequence[str]) -> None:
        self.loop = progress.loop(control)
        self.step = max(0, control[Word.STEP])
        self.resumed = control[Word.RESUMED_STEP]
        self.attached = bool(control[Word.ATTACHED])
        self.imported = progress.imported(control)
        self.code, self.cut = code, cut
        self.said = "\n".join(["It said last:", *(f"  {line}" for line in lines)]) if lines else "It said nothing."

    def trouble(self, what: str, to: int, *, pause: bool, restore: Checkpoint | None) -> str:
        what = _capital(what)
        if not self.attached and (self.cut or self.code == 0):
            return self._without_sdk(what)
        if self.cut:
            return f"{what} {self.cut}.\n{self.said}"
        if self.loop == Loop.NONE:
            how = "ended" if self.code == 0 else f"failed, with {ending(self.code)},"
            return f"{what} {how} before its loop began.\n{self.said}"
        if self.loop == Loop.INSIDE:
            return f"{what} ended inside its loop, at step {self.step}, with {ending(self.code)}.\n{self.said}"
        if pause and self.loop != Loop.PAUSED:
            return f"{what} did not pause there: it came to its end at step {self.step}."
        if not pause and self.loop not in _DONE:
            return f"{what} left its loop at step {self.step} of {to} without an end.\n{self.said}"
        if restore is not None and self.resumed != restore.step:
            return f"{what} did not go on from its checkpoint: it began again at step {self.resumed}."
        return ""

    def _without_sdk(self, what: str) -> str:
        if self.imported:
            return f"{what} loads whistlestop but never comes to a loop of its own: use run.steps(...).\n{self.said}"
        ended = "did not use Whistlestop" if not self.cut else f"{self.cut}, and did not use Whistlestop until then"
        return (
            f"{what} {ended}: there is no loop that could be interrupted. "
            f"Put its loop into whistlestop.run().steps(...).\n{self.said}"
        )

    def without_checkpoint(self, what: str, step: int) -> str:
        return f"{_capital(what)} left no checkpoint of step {step}.\n{self.said}"


def _environment(
    stage: Stage, directory: Path, checkpoints: Path, attempt_id: str, number: int, restore: Checkpoint | None
) -> dict[str, str]:
    env = {
        name: value
        for name, value in stage.env.items()
        if not name.startswith("WHISTLE_") or name.startswith(layout.ENV_INPUT)
    }
    env.setdefault("PYTHONUNBUFFERED", "1")
    env |= {
        layout.ENV_CHANNEL: str(directory),
        layout.ENV_RUN: "rehearsal",
        layout.ENV_RUN_NAME: "rehearsal",
        layout.ENV_PHASE: PHASE,
        layout.ENV_ATTEMPT: attempt_id,
        layout.ENV_ATTEMPT_NUMBER: str(number),
        layout.ENV_CHECKPOINTS: str(checkpoints),
        ENV_DIGESTS: "1",
    }
    if restore is not None:
        env[layout.ENV_RESTORE] = str(restore.path)
    return env


def _run(
    stage: Stage, control: Control, env: Mapping[str, str], log: Path, attempt_id: str, *, what: str, to: int
) -> tuple[int, str]:
    """Exit code, and why we ended it if it did not end by itself. Nothing of it is left when this returns."""
    stage.say(f"{what}: starting")
    with log.open("wb") as output, Leaving() as leaving:
        process = subprocess.Popen(
            stage.command,
            cwd=stage.cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        # Not its descendants by our own pid: whoever calls may have other children. Session and mark find all of its.
        seen = processes.read(process.pid)
        tree = Tree(attempt_id, program=Started(process.pid, seen.start) if seen else None)
        try:
            with leaving.allowed():
                cut = _watch(stage, process, control, what=what, to=to)
        finally:
            tree.end()
            code = process.wait()
    stage.say(f"{what}: {cut or f'ended at step {max(0, control[Word.STEP])}'}")
    return code, cut


def _watch(stage: Stage, process: "subprocess.Popen[bytes]", control: Control, *, what: str, to: int) -> str:
    said_at = time.monotonic()
    deadline = said_at + stage.timeout
    said_step = passed = moves = 0
    while True:
        try:
            process.wait(_LOOK_SECONDS)
            return ""
        except subprocess.TimeoutExpired:
            pass
        now, step = time.monotonic(), control[Word.STEP]
        if step >= to + _BESIDE and step > passed:
            passed, moves = step, moves + 1  # a loop that counts in leaps lands there once
        if moves > _MOVES:
            return f"goes on at step {step}, though it was told to stop at step {to}: its loop ignores the stop"
        if now > deadline:
            where = f"had done {step} of {to} steps" if control[Word.LOOP] else "had not come to its loop"
            return f"{where} after {stage.timeout:g} seconds"
        if step != said_step and now >= said_at + _SAY_SECONDS:
            said_at, said_step = now, step
            stage.say(f"{what}: step {step} of {to}")
        elif not control[Word.LOOP] and now >= said_at + _SAY_WAITING_SECONDS:
            said_at = now
            stage.say(f"{what}: not in its loop yet")


def _curves(directory: Path) -> Curves:
    found: Curves = {}
    names: dict[int, tuple[str, ...]] = {}
    reader = JournalReader(directory, layout.metrics_prefix(0))
    try:
        for record in reader.records():
            if record.kind == Kind.SHAPE:
                names[record.shape] = record.names()
            elif record.kind == Kind.POINTS:
                step, _, values = record.point()
                for name, value in zip(names[record.shape], values, strict=False):
                    found.setdefault(name, {})[step] = value
    except JournalDamaged:  # by a program that was killed in the middle; what was read counts
        pass
    finally:
        reader.close()
    return found


def _last_lines(log: Path) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - (64 << 10)))
        lines = file.read().decode(errors="replace").splitlines()
    return [line for line in lines if line.strip()][-_LINES:]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
