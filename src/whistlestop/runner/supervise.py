"""The main flow of an attempt: prepare, start, carry out requests, end, prove, report, ship, leave."""

import asyncio
import signal
import socket
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whistlestop.channel.control import Control
from whistlestop.channel.journal import JournalWriter
from whistlestop.channel.layout import Word
from whistlestop.domain.reasons import EndReason
from whistlestop.domain.stops import Stop
from whistlestop.engines.containment import Gone, Reaper, Tree
from whistlestop.runner import gang, progress
from whistlestop.runner.climb import Climber
from whistlestop.runner.ended import KILL_PATIENCE, end_data, ended_sentence, ending_of, gone_words, leave
from whistlestop.runner.events import Events
from whistlestop.runner.exit import classify, evidence
from whistlestop.runner.faults import Faults, lose_host
from whistlestop.runner.fetching import CannotStart, Fetching
from whistlestop.runner.fitting import Fitting
from whistlestop.runner.hearing import Hearing
from whistlestop.runner.killing import Killing
from whistlestop.runner.ladder import Times
from whistlestop.runner.lease import Keeping
from whistlestop.runner.lines import Secrets
from whistlestop.runner.link import Link
from whistlestop.runner.logs import Capture, LogBook, Source
from whistlestop.runner.memory import Witness
from whistlestop.runner.notes import note, noted
from whistlestop.runner.notices import usual_notice, watch
from whistlestop.runner.preempted import Preemption
from whistlestop.runner.prepare import Prepared, Preparing, start
from whistlestop.runner.program import Program
from whistlestop.runner.recordfile import RecordFile
from whistlestop.runner.samples import Sampler
from whistlestop.runner.stacks import Spy
from whistlestop.runner.stages import clear, keeper_of
from whistlestop.runner.steering import Steering
from whistlestop.runner.streams import Streams
from whistlestop.runner.telling import FromThread
from whistlestop.runner.time_limit import WHO, TimeLimit
from whistlestop.runner.watching import Watching
from whistlestop.wire.frames import Gang, Order, Peer, Progress, Rehearse, Stacks

if TYPE_CHECKING:
    from whistlestop.wire.launch import Launch

TICK = 0.1
DRAIN_SECONDS = 2.0
LEAVE_PATIENCE = 20.0


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
        preparing: Preparing,
    ) -> None:
        self._launch = launch
        self._directory = Path(launch.directory)
        self._tree, self._reaper, self._control, self._program = tree, reaper, control, program
        self._hide = Secrets(secrets.values())
        self._preparing = preparing
        self._halted = asyncio.Event()  # nothing is started any more
        self._events = events
        self._steering = steering
        self._troubles: set[str] = set()  # damaged journals that were told of
        self._killing = Killing(tree, reaper)
        self._exited = asyncio.Event()
        self._unwanted = self._over = self._out_of_memory = False
        self._leaves = ""  # why this node has to, for another one's sake
        self._unsafe = False  # what was saved last could not be made durable before the capacity went
        self._limit = TimeLimit(control, launch.time_limit, launch.launched_at)
        self._cannot: CannotStart | None = None  # why the program was ended before it could go on
        self._fetch: asyncio.Task[None] | None = None
        self._ports = gang.ports_of(launch) if launch.nodes > 1 else None
        self._met: list[gang.Met] | None = None  # all nodes, once they have come
        self._all_met = asyncio.Event()
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
        if self._watch is not None and self._preemption.notice is not None:
            await asyncio.to_thread(self._watch.acknowledge, self._preemption.notice)
        link.cancel()
        await asyncio.gather(link, ticking, return_exceptions=True)
        await leave(self._directory, forgets=self._launch.forgets)

    def _set_up(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._from_thread = FromThread(self._loop, self._tell)
        logs = RecordFile.open(self._directory / "logs")
        self._book = LogBook(logs, limit=self._launch.log_limit)
        self._events.begin_writing()
        self._streams = Streams(self._directory, logs=logs, runner=self._events.file, node=self._launch.node)
        self._link = Link(
            self._launch,
            self._streams,
            on_order=self._on_order,
            on_unwanted=self._on_unwanted,
            progress=self._progress,
            on_rehearse=self._on_rehearse,
            on_stacks=self._on_stacks,
            on_gang=self._on_gang,
            here=self._here,
        )
        self._faults = Faults(
            tell=self._tell,
            kill_program=lambda: self._program.signal(signal.SIGKILL),
            lose_host=lambda: lose_host(self._events.file, self._tree, self._program),
            cut=self._link.cut,
        )
        self._climber = Climber(
            self._control,
            Times.of(self._launch.ladder),
            task=self._launch.kind == "task",
            follows=self._launch.node > 0,
            tell=self._tell,
            kill=self._kill,
        )
        self._keeper = keeper_of(
            self._launch,
            self._control,
            tell=self._from_thread,
            answers=self._climber.saves_handed_by,
            before_commit=self._faults.before_commit,
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
            devices=self._launch.slots if self._launch.devices is None else self._launch.devices,
            step=lambda: self._control[Word.STEP],
            node=self._launch.node,
        )
        self._watching = Watching(
            self._launch,
            self._control,
            Spy(self._tree, self._directory, root=self._launch.workdir, hide=self._hide.hide_text),
            tell=self._tell,
            expects=self._expects_progress,
            signs=lambda: max(self._sampler.worked_at, self._book.heard_at),
            host=self._launch.host or socket.gethostname(),
        )
        self._memory = Witness(self._tree.group)
        self._preemption = Preemption(
            self._control,
            self._program,
            self._climber,
            Fitting(self._control, usual_notice(self._launch)),
            tell=self._tell,
            kill=self._kill,
            cancel=self._call_off,
            busy=lambda: self._keeper.busy,
            answering=lambda: self._link.answering,
        )
        self._watch = watch(self._launch, self._loop, take=self._preemption.take, tell=self._from_thread)
        self._preemption.listen(self._loop)
        self._lease: Keeping | None = None
        if self._launch.lease is not None:
            self._lease = Keeping(
                self._launch.lease,
                self._launch.witness,
                heard=lambda: self._link.renewed_at,
                take=self._preemption.take,
            )
        standing = Order(stop=self._launch.stop, actor=self._launch.stop_by, reason=self._launch.stop_reason)
        self._climber.take(standing)

    async def _start(self) -> None:
        """The program runs when this returns. CannotStart otherwise."""
        if self._preparing.result is None:
            await self._unless_halted(asyncio.to_thread(self._preparing.wait), "The program had not been started yet.")
        ready = self._preparing.result
        if not isinstance(ready, Prepared):
            for each in ready.aside if ready is not None else ():
                self._tell("checkpoint_set_aside", each.in_words(self._launch.run_id), path=each.path, why=each.why)
            raise ready or CannotStart(EndReason.PREPARE_FAILED, "Preparing came to no end.")
        choice = ready.choice
        self._keeper.set_aside({each.path for each in choice.aside if each.healthy})
        for kind, text, data in choice.news(self._launch.run_id):
            self._tell(kind, text, **data)
        try:
            pipes = {fd: Source(*said) for fd, said in gang.pipes(self._launch).items()}
        except OSError as error:
            words = f"No pipes for the ranks' output can be made in {self._directory}: {error.strerror}."
            raise CannotStart(EndReason.PREPARE_FAILED, words) from error
        if self._launch.nodes > 1:
            await self._meet()
        if self._program.started_at is None:
            start(self._program, self._launch, ready, self._met)
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
        self._capture.start(out=self._program.out, err=self._program.err, ranks=pipes)
        self._climber.started(self._program)
        if restored is not None and restored.fetching is not None:
            self._fetch = asyncio.create_task(self._fetch_beside(restored.fetching, restored.address))
        if self._launch.kind == "train" and self._launch.node == 0:
            self._keeper.start()
        self._sampler.start()

    async def _unless_halted(self, work: Awaitable[Any], otherwise: str) -> None:
        """CannotStart if somebody has called it off by then."""
        working, halted = asyncio.ensure_future(work), asyncio.create_task(self._halted.wait())
        await asyncio.wait({working, halted}, return_when=asyncio.FIRST_COMPLETED)
        halted.cancel()
        if self._halted.is_set():
            said = self._leaves or ("" if self._preemption.notice is None else f"{self._preemption.notice.text}. ")
            raise CannotStart(self._cut_short(), f"{said}{otherwise}")

    async def _meet(self) -> None:
        """The other nodes."""
        if not self._all_met.is_set():
            self._tell("node_ready", f"Node {self._launch.node} is ready, and waits for the other nodes.")
        await self._unless_halted(self._all_met.wait(), "The other nodes had not come yet.")
        assert self._ports is not None
        self._ports.release()

    def _call_off(self) -> None:
        """The start, if it has not come to that yet."""
        self._preparing.cancelled.set()
        self._halted.set()

    def _here(self, seen: str) -> Peer | None:
        if self._ports is None or self._program.started_at is not None or self._over:
            return None
        return Peer(self._launch.address or seen, self._ports.numbers)

    def _on_gang(self, come: Gang) -> None:
        if self._met is None:
            self._met = [gang.Met(each.address, each.ports) for each in come.nodes]
            self._all_met.set()

    async def _fetch_beside(self, fetching: Fetching, address: str) -> None:
        """A program whose checkpoint can't be had is ended: it must not begin at step 0, and can't go on."""
        problem = await asyncio.to_thread(fetching.run)
        if self._exited.is_set() or self._over:
            return
        fetching.tell(problem, address, self._tell)
        if problem is None:
            fetching.release()
        else:
            self._cannot = problem
            self._kill()

    def _cut_short(self) -> EndReason:
        if self._climber.stop is Stop.KILL or self._unwanted or self._leaves:
            return EndReason.KILLED
        return EndReason.PAUSED if self._climber.stop is Stop.PAUSE else EndReason.PREEMPTED

    def _on_order(self, order: Order) -> None:
        if order.leave and not self._leaves:
            self._leave(order.leave)
        if order.protected is not None:
            self._keeper.protect(order.protected)
        self._steering.take(order.steering, self._tell)
        if order.stop == Stop.KILL and (self._exited.is_set() or self._over):
            self._keeper.abandon()  # its last save is not waited for any longer
        if not self._over:
            self._preemption.on_order(order)
        # What comes behind the program's own end did not cause it.
        if self._exited.is_set() or self._over or not self._climber.take(order):
            return
        if self._program.started_at is None and self._climber.stop >= Stop.PAUSE:
            self._call_off()

    def _leave(self, why: str) -> None:
        """Another node has ended: this one can't go on without it."""
        self._leaves = why
        if not self._over:
            self._book.say(f"this node has to leave: {why}")
        else:
            self._keeper.hurry(LEAVE_PATIENCE)  # what it waits for may be the share of the node that is gone
        self._call_off()
        self._kill()

    def _on_rehearse(self, asked: Rehearse) -> None:
        if self._program.started_at is not None and not self._exited.is_set():
            self._faults.take(asked)

    def _on_stacks(self, asked: Stacks) -> None:
        if self._program.started_at is not None and not self._exited.is_set():
            self._watching.ask(asked.asked)

    def _expects_progress(self) -> bool:
        """Of the program, now. One that is being stopped has its ladder; one that waits for us can't get on."""
        if self._program.started_at is None or self._exited.is_set() or self._over:
            return False
        fetches = self._fetch is not None and not self._fetch.done()
        return not fetches and self._climber.stop is Stop.NONE and self._preemption.notice is None

    def _on_unwanted(self, text: str) -> None:
        self._unwanted = True
        self._keeper.abandon()
        self._book.say(f"the server wants nothing more of this attempt: {text}")
        self._call_off()
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
        if self._lease is not None:
            self._lease.look()  # first: it may have run out while this host stood still
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
            who = WHO.get(reason, reason)
            self._climber.take(Order(stop=Stop.FINISH_PHASE, actor=who, reason=reason), own_limit=True)
        self._watching.look()
        self._steering.retry(self._tell)
        self._preemption.look()
        for trouble in set(self._streams.troubles()) - self._troubles:
            self._troubles.add(trouble)
            self._tell("notice", f"What comes behind a damaged place in a journal is lost: {trouble}.")

    async def _finish(self, cannot: CannotStart | None) -> None:
        """From the program's end to the `ended` event: nothing is reported before it is proven."""
        self._climber.ended()
        self._preemption.ended()
        await self._watching.stop()
        with noted("the last look"):
            self._look()  # a quick program comes and goes between two ticks
        gone = await self._prove_gone(started=cannot is None)
        self._loop.remove_reader(self._program.pidfd)
        status = self._program.status() if cannot is None else None
        notice = await self._preemption.words(status)
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
            self._tell_end(status, cannot, gone, notice)
        except Exception as error:  # without an `ended` the slots would stay taken for ever
            note(f"the end: {error!r}")
            words = "the runner could not judge how the program ended; runner.log says why"
            saved = self._keeper.saved_step
            data = end_data(EndReason.RUNNER_LOST, words, control=None, gone=gone, saved_step=saved)
            self._events.tell("ended", words, **data)

    async def _prove_gone(self, *, started: bool) -> Gone:
        gone = await self._killing.prove(self._tell)
        if self._killing.asked:
            self._book.say(f"killed: {gone_words(gone)}")
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
            patience = self._preemption.patience()
            if patience is None and self._leaves:
                patience = LEAVE_PATIENCE  # what is staged is whole, whatever became of the other node
            if patience is not None and not killed:
                self._keeper.scan()
            safe = self._keeper.finish(KILL_PATIENCE if killed else patience)
            self._unsafe = patience is not None and not safe
            if self._unsafe:
                self._from_thread("notice", "The capacity goes before the newest save is safe: it is given up.")
        clear(self._launch)

    def _tell_end(self, status: int | None, cannot: CannotStart | None, gone: Gone, notice: str) -> None:
        ending = ending_of(
            status,
            self._control,
            self._climber,
            saved=self._keeper.saved_step is not None,
            notice=notice,
            unsafe=self._unsafe,
            out_of_memory=self._out_of_memory,
            task=self._launch.kind == "task",
        )
        if cannot is not None:
            reason, words = EndReason(cannot.reason), cannot.text
        elif self._cannot is not None:
            asked = self._climber.stop >= Stop.PAUSE or self._unwanted or notice
            reason, words = self._cut_short() if asked else EndReason(self._cannot.reason), self._cannot.text
        else:
            reason = EndReason.KILLED if self._unwanted or self._leaves else classify(ending)
            words = evidence(ending, reason, exception=self._book.last_exception, dead_ranks=self._hearing.dead_ranks)
        data = end_data(
            reason,
            self._hide.hide_text(words),
            control=self._control,
            gone=gone,
            saved_step=self._keeper.saved_step,
            stop_reasons=self._hearing.account(reason, self._climber),
            notice=self._preemption.notice.source if self._preemption.notice is not None else None,
            exit_code=ending.exit_code,
            signal=ending.signal,
        )
        self._tell("ended", ended_sentence(reason, words), **data)

    def _progress(self) -> Progress:
        return progress.read(
            self._control,
            task=self._launch.kind == "task",
            started=self._program.started_at is not None,
            stopping=self._climber.stop is not Stop.NONE,
            ending=self._exited.is_set(),
        )

    def _tell(self, kind: str, text: str, /, **data: Any) -> None:
        text = self._hide.hide_text(text)
        self._events.tell(kind, text, **data)
        if kind in _SAID_ALOUD:
            self._book.say(text)
        self._link.kick()


_SAID_ALOUD = {
    "program_started", "order_seen", "rung", "leftovers", "notice", "ended", "checkpoint_set_aside", "stuck",
    "going_again",
}  # fmt: skip
_MOMENTS = {"attached": "The program has attached.", "training": "The program has reached its loop."}
