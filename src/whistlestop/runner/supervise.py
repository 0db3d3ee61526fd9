"""The main flow of an attempt: prepare, start, carry out requests, end, prove, report, ship, leave."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whistlestop.blobs.open import open_storage
from whistlestop.blobs.retention import Policy
from whistlestop.channel.control import Control
from whistlestop.channel.journal import JournalWriter
from whistlestop.channel.layout import Word
from whistlestop.domain.reasons import EndReason
from whistlestop.domain.stops import Stop
from whistlestop.engines.containment import Gone, Reaper, Tree
from whistlestop.runner import progress
from whistlestop.runner.checkpoints import CheckpointKeeper
from whistlestop.runner.climb import Climber
from whistlestop.runner.ended import KILL_PATIENCE, end_data, ended_sentence, ending_of, leave
from whistlestop.runner.events import Events
from whistlestop.runner.exit import classify, evidence
from whistlestop.runner.fetching import CannotStart, Fetching
from whistlestop.runner.hearing import Hearing
from whistlestop.runner.killing import Killing
from whistlestop.runner.ladder import Times
from whistlestop.runner.lines import Secrets
from whistlestop.runner.link import Link
from whistlestop.runner.logs import Capture, LogBook
from whistlestop.runner.memory import Witness
from whistlestop.runner.notes import note, noted
from whistlestop.runner.prepare import Prepared, try_prepare
from whistlestop.runner.program import NotStarted, Program
from whistlestop.runner.recordfile import RecordFile
from whistlestop.runner.samples import Sampler
from whistlestop.runner.stages import clear, own_stage, shared_stage
from whistlestop.runner.steering import Steering
from whistlestop.runner.streams import Streams
from whistlestop.runner.telling import FromThread
from whistlestop.runner.time_limit import TimeLimit
from whistlestop.wire.frames import Order, Progress

if TYPE_CHECKING:
    from whistlestop.wire.launch import Launch

PREEMPT_GRACE = "WHISTLE_PREEMPT_GRACE"  # seconds between the notice and the end of the host
TICK = 0.1
DRAIN_SECONDS = 2.0


class Supervisor:
    def __init__(
        self,
        launch: "Launch",
        *,
        tree: Tree,
        reaper: Reaper,
        control: Control,
        steering: Steering,
        events: Events,
        program: Program,
        secrets: Mapping[str, str],
        prepared: Prepared | CannotStart | None,
    ) -> None:
        self._launch = launch
        self._directory = Path(launch.directory)
        self._tree, self._reaper, self._control, self._program = tree, reaper, control, program
        self._secrets = secrets
        self._hide = Secrets(secrets.values())
        self._prepared = prepared
        self._events = events
        self._steering = steering
        self._troubles: set[str] = set()  # damaged journals that were told of
        self._killing = Killing(tree, reaper)
        self._exited = asyncio.Event()
        self._cancelled = threading.Event()  # ends preparing
        self._preempted = self._unwanted = self._over = self._out_of_memory = False
        self._limit = TimeLimit(control, None)
        self._cannot: CannotStart | None = None  # why the program was ended before it could go on
        self._fetch: asyncio.Task[None] | None = None
        self._words = {Word.ATTACHED: "attached", Word.LOOP: "training"}

    async def run(self) -> None:
        """Returns when the server has everything, or wants nothing more."""
        self._set_up()
        link = asyncio.create_task(self._link.run())
        ticking = asyncio.create_task(self._tick())
        cannot: CannotStart | None = None
        try:
            await self._start()
            await self._exited.wait()
        except CannotStart as problem:
            cannot = problem
        await self._finish(cannot)
        ticking.cancel()
        if not self._unwanted:
            await self._link.everything_safe()
        link.cancel()
        await asyncio.gather(link, ticking, return_exceptions=True)
        await leave(self._directory)

    def _set_up(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._from_thread = FromThread(self._loop, self._tell)
        logs = RecordFile.open(self._directory / "logs")
        self._book = LogBook(logs, limit=self._launch.log_limit)
        self._events.begin_writing()
        self._streams = Streams(self._directory, logs=logs, runner=self._events.file)
        self._link = Link(
            self._launch,
            self._streams,
            on_order=self._on_order,
            on_unwanted=self._on_unwanted,
            progress=self._progress,
        )
        self._climber = Climber(
            self._control,
            Times.of(self._launch.ladder),
            task=self._launch.kind == "task",
            tell=self._tell,
            kill=self._kill,
        )
        self._keeper = CheckpointKeeper(
            open_storage(self._launch.storage or self._launch.checkpoints, self._launch.storage_options),
            self._launch.phase,
            (self._launch.attempt_number, self._launch.attempt_id),
            own_stage(self._launch),
            shared=shared_stage(self._launch),
            policy=Policy.from_launch(self._launch.checkpoint_keep, self._launch.checkpoint_policy),
            protected=self._launch.checkpoint_protected,
            tell=self._from_thread,
            answers=self._climber.saves_handed_by,
            durable=self._on_durable,
            failed=self._on_save_failed,
        )
        self._hearing = Hearing(
            self._directory,
            announce=self._keeper.announce,
            applied=self._steering.applied,
            refused=self._steering.refused,
            hide=self._hide.hide_text,
        )
        self._capture = Capture(self._book, self._hide)
        self._sampler = Sampler(
            self._tree,
            JournalWriter(self._directory, "metrics-sys"),
            every=self._launch.sample_every,
            slots=self._launch.slots,
            step=lambda: self._control[Word.STEP],
        )
        self._memory = Witness(self._tree.group)
        self._loop.add_signal_handler(signal.SIGTERM, self._on_preempted)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    async def _start(self) -> None:
        """The program runs when this returns. CannotStart otherwise."""
        if self._prepared is None:
            preparing = asyncio.create_task(asyncio.to_thread(self._prepare))
            halted = asyncio.create_task(asyncio.to_thread(self._cancelled.wait))
            await asyncio.wait({preparing, halted}, return_when=asyncio.FIRST_COMPLETED)
            if self._cancelled.is_set():
                raise CannotStart(self._cut_short(), "The program had not been started yet.")
            self._cancelled.set()
            self._prepared = await preparing
        if isinstance(self._prepared, CannotStart):
            raise self._prepared
        ready = self._prepared
        choice = ready.choice
        self._keeper.set_aside({each.path for each in choice.aside if each.healthy})
        for kind, text, data in choice.news(self._launch.run_id):
            self._tell(kind, text, **data)
        if self._program.started_at is None:
            start_program(self._program, self._launch, ready)
        restored = choice.restored
        if restored is not None:
            self._keeper.use(restored.id)
        self._loop.add_reader(self._program.pidfd, self._on_exit)
        since = "" if restored is None else f" from the checkpoint at step {restored.step}"
        self._tell(
            "program_started",
            f"The program was started{since}: {' '.join(self._launch.command)}",
            pid=self._program.pid,
            restored_step=restored.step if restored else None,
            restored_from=restored.address if restored else None,
        )
        # Only now: the words above come before the first of the program.
        self._capture.start(out=self._program.out, err=self._program.err)
        self._climber.started(self._program)
        self._limit = TimeLimit(self._control, self._launch.time_limit)
        if restored is not None and restored.fetching is not None:
            self._fetch = asyncio.create_task(self._fetch_beside(restored.fetching, restored.address))
        if self._launch.kind == "train":
            self._keeper.start()
        self._sampler.start()

    async def _fetch_beside(self, fetching: Fetching, address: str) -> None:
        """A program whose checkpoint can't be had is ended: it must not begin at step 0, and can't go on."""
        problem = await asyncio.to_thread(fetching.run)
        if self._exited.is_set() or self._over:
            return
        if problem is None:
            self._tell("checkpoint_fetched", fetching.in_words(), seconds=fetching.seconds,
                       bytes=fetching.checkpoint.bytes, path=address)  # fmt: skip
            return
        self._cannot = problem
        if problem.reason == EndReason.CHECKPOINT_DAMAGED:
            text = f"A checkpoint can't be used: {problem.text}"
            self._tell("checkpoint_set_aside", text, path=address, why=problem.text)
        self._kill()

    def _prepare(self) -> Prepared | CannotStart:
        return try_prepare(self._launch, self._secrets, cancelled=self._cancelled.is_set)

    def _cut_short(self) -> EndReason:
        if self._climber.stop is Stop.KILL or self._unwanted:
            return EndReason.KILLED
        return EndReason.PAUSED if self._climber.stop is Stop.PAUSE else EndReason.PREEMPTED

    def _on_order(self, order: Order) -> None:
        if order.protected is not None:
            self._keeper.protect(order.protected)
        self._steering.take(order.steering, self._tell)
        if order.stop == Stop.KILL and (self._exited.is_set() or self._over):
            self._keeper.abandon()  # its last save is not waited for any longer
        # What comes behind the program's own end did not cause it.
        if self._exited.is_set() or self._over or not self._climber.take(order):
            return
        if self._program.started_at is None and self._climber.stop >= Stop.PAUSE:
            self._cancelled.set()

    def _on_durable(self, step: int, seconds: float) -> None:
        self._control.set_seconds(Word.DURABLE_SECONDS, seconds)
        self._control[Word.DURABLE_STEP] = max(self._control[Word.DURABLE_STEP], step + 1)

    def _on_save_failed(self) -> None:
        self._control[Word.SAVES_FAILED] += 1

    def _on_preempted(self) -> None:
        """SIGTERM to the runner: the host goes. The loop saves; a program without the SDK gets the same signal."""
        if self._preempted or self._over:
            return
        self._preempted = True
        grace = float(os.environ.get(PREEMPT_GRACE, "25"))
        self._control.set_seconds(Word.PREEMPT_DEADLINE, time.time() + grace)
        self._tell("notice", f"The capacity will be taken back in {grace:.0f} s: the program was asked to save.")
        if self._program.started_at is None:
            self._cancelled.set()
        elif not self._control[Word.ATTACHED]:
            self._program.signal(signal.SIGTERM)
        self._loop.call_later(grace, self._kill)

    def _on_unwanted(self, text: str) -> None:
        self._unwanted = True
        self._keeper.abandon()
        self._book.say(f"the server wants nothing more of this attempt: {text}")
        self._cancelled.set()
        self._kill()

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._program.pidfd)
        self._exited.set()

    def _kill(self) -> None:
        if not self._over:
            self._killing.begin(self._exited.set)

    async def _tick(self) -> None:
        said = ""
        while True:
            try:
                self._look()
            except Exception as error:
                if (text := f"tick: {error!r}") != said:  # ten times a second, perhaps for days
                    note(said := text)
            await asyncio.sleep(TICK)

    def _look(self) -> None:
        self._reaper.reap()
        self._events.file.flush()
        for word, kind in list(self._words.items()):
            if self._control[word]:
                del self._words[word]
                self._tell(kind, _MOMENTS[kind])
                self._climber.go_on()
        self._hearing.listen()
        self._keeper.scan()  # a journal may be damaged, or its disk full
        if self._limit.is_due():
            reason = self._launch.limit_reason
            self._climber.take(Order(stop=Stop.FINISH_PHASE, actor="the time limit", reason=reason), own_limit=True)
        self._steering.retry(self._tell)
        for trouble in set(self._streams.troubles()) - self._troubles:
            self._troubles.add(trouble)
            self._tell("notice", f"What comes behind a damaged place in a journal is lost: {trouble}.")

    async def _finish(self, cannot: CannotStart | None) -> None:
        """From the program's end to the `ended` event: nothing is reported before it is proven."""
        self._climber.ended()
        with noted("the last look"):
            self._look()  # a quick program comes and goes between two ticks
        gone = await self._prove_gone(started=cannot is None)
        self._loop.remove_reader(self._program.pidfd)
        status = self._program.status() if cannot is None else None
        self._over = True
        with noted("settling"):
            await asyncio.to_thread(self._settle, cannot is None)
        with noted("the last words"):
            self._hearing.listen(last=True)
        if self._book.dropped_lines:
            self._tell("dropped", f"The log limit cut {self._book.dropped_lines} lines.",
                       lines=self._book.dropped_lines, bytes=self._book.dropped_bytes)  # fmt: skip
        self._from_thread.over = True
        self._streams.hold_back(self._events.file.end)
        try:
            self._tell_end(status, cannot, gone)
        except Exception as error:  # without an `ended` the slots would stay taken for ever
            note(f"the end: {error!r}")
            words = "the runner could not judge how the program ended; runner.log says why"
            saved = self._keeper.saved_step
            data = end_data(EndReason.RUNNER_LOST, words, control=None, gone=gone, saved_step=saved)
            self._events.tell("ended", words, **data)

    async def _prove_gone(self, *, started: bool) -> Gone:
        gone = await self._killing.prove(self._tell)
        if self._killing.asked:
            self._book.say(f"killed: {gone.ended} processes ended, proven gone")
        elif gone.ended and started:
            self._tell("leftovers", f"{gone.ended} processes outlived the program and were ended.", count=gone.ended)
        self._out_of_memory = self._memory.saw_kill()
        self._tree.remove()
        return gone

    def _settle(self, ran: bool) -> None:
        """Output drained, checkpoints judged, samples stopped. In a thread: each may take a while, and none that fails
        may keep the others from theirs."""
        if not ran:
            return
        with noted("the samples"):
            self._sampler.stop()
        with noted("the output"):
            if not self._capture.stop(DRAIN_SECONDS):
                self._book.say("somebody outside of the run still holds its output open; the rest was not waited for")
            self._book.close()
        with noted("the checkpoints"):
            killed = self._climber.stop is Stop.KILL or self._unwanted
            self._keeper.finish(KILL_PATIENCE if killed else None)
        clear(self._launch)

    def _tell_end(self, status: int | None, cannot: CannotStart | None, gone: Gone) -> None:
        ending = ending_of(
            status,
            self._control,
            self._climber,
            saved=self._keeper.saved_step is not None,
            preempted=self._preempted,
            out_of_memory=self._out_of_memory,
            task=self._launch.kind == "task",
        )
        if cannot is not None:
            reason, words = EndReason(cannot.reason), cannot.text
        elif self._cannot is not None:
            asked = self._climber.stop >= Stop.PAUSE or self._unwanted
            reason, words = self._cut_short() if asked else EndReason(self._cannot.reason), self._cannot.text
        else:
            reason = EndReason.KILLED if self._unwanted else classify(ending)
            words = evidence(ending, reason, exception=self._book.last_exception, dead_ranks=self._hearing.dead_ranks)
        data = end_data(
            reason,
            self._hide.hide_text(words),
            control=self._control,
            gone=gone,
            saved_step=self._keeper.saved_step,
            stop_reasons=self._stop_reasons(reason),
            exit_code=ending.exit_code,
            signal=ending.signal,
        )
        self._tell("ended", ended_sentence(reason, words), **data)

    def _stop_reasons(self, reason: EndReason) -> list[dict[str, Any]]:
        """The program's own account; where it has none, the request that was carried out."""
        if self._hearing.stop_reasons or reason is not EndReason.STOPPED:
            return self._hearing.stop_reasons
        text = f"asked by {self._climber.actor}" if self._climber.actor else ""
        return [{"reason": self._climber.reason, "decisive": True, "text": text}]

    def _progress(self) -> Progress:
        return progress.read(
            self._control,
            task=self._launch.kind == "task",
            started=self._program.started_at is not None,
            stopping=self._climber.stop is not Stop.NONE,
            ending=self._exited.is_set(),
        )

    def _tell(self, kind: str, text: str, **data: Any) -> None:
        text = self._hide.hide_text(text)
        self._events.tell(kind, text, **data)
        if kind in _SAID_ALOUD:
            self._book.say(text)
        self._link.kick()


_SAID_ALOUD = {"program_started", "order_seen", "rung", "leftovers", "notice", "ended", "checkpoint_set_aside"}
_MOMENTS = {"attached": "The program has attached.", "training": "The program has reached its loop."}


def start_program(program: Program, launch: "Launch", ready: Prepared) -> None:
    try:
        program.start(launch.command, env=ready.env, cwd=ready.cwd)
    except NotStarted as problem:
        raise CannotStart(EndReason.COMMAND_NOT_FOUND, str(problem)) from problem
