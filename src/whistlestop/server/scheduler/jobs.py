"""Launched attempts: what their engines say of them against what we believe, and what follows from it."""

import contextlib
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from whistlestop.capacity.victims import NOTICE
from whistlestop.domain import gang
from whistlestop.domain.errors import EngineUnreachable
from whistlestop.domain.lease import MARGIN
from whistlestop.domain.reasons import EndReason
from whistlestop.domain.stops import Stop
from whistlestop.engines.base import Engine, JobId, JobState, JobStatus
from whistlestop.server.scheduler.aside import Aside
from whistlestop.server.scheduler.engines import Engines
from whistlestop.server.services import accounts, gangs, ingest, launches, preempting, runner_events
from whistlestop.server.services.context import Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import events, nodes, phases, runs

log = logging.getLogger(__name__)
Row = sa.Row[Any]
LAUNCH_TRIES = 3  # of one attempt; what fails then counts as our own fault
SALVAGE_EVERY = 10.0
LEFT_SECONDS = 10.0  # for the last words of a runner that has left
PENDING_STEP = 30.0  # seconds by which the start of an attempt that a cluster has not begun is put off each time
FORGET_TROUBLE = 3  # attempts that can't be forgotten: then the others are left for later, too
SUSPECT_EVERY = 1.0  # seconds between two looks at a runner that hung up


class Jobs:
    def __init__(self, context: Context, engines: Engines, url: Callable[[], str], aside: Aside) -> None:
        self._context, self._engines, self._url, self._aside = context, engines, url, aside
        self._salvaged: dict[str, float] = {}
        self._tries: Counter[str] = Counter()  # launches of an attempt that did not come up
        self._unforgettable: dict[JobId, float] = {}  # attempts that could not be forgotten, and when it was tried last
        self._suspects: dict[str, float] = {}  # attempts whose runner hung up -> when it is looked at again
        # Of each node of an attempt: when its engine last said something else of it than lost.
        self._counted_on: dict[tuple[str, int], float] = {}
        self._up_since = context.clock()

    def launch(self, attempt_id: str, token: str) -> None:
        try:
            launch, secrets = launches.build(self._context, attempt_id, token, self._url())
            if Path(launch.workdir).is_relative_to(self._context.settings.data):
                Path(launch.workdir).mkdir(parents=True, exist_ok=True)
            self._engine(attempt_id).launch(launch, secrets)
        except EngineUnreachable as error:
            log.warning("attempt %s: %s", attempt_id, error)
        except Exception as error:  # one attempt's trouble; the others are launched all the same
            log.exception("attempt %s can't be launched", attempt_id)
            self._never_ran(attempt_id, EndReason.LAUNCH_FAILED, f"the runner could not be started: {error}")

    def check_all(self) -> None:
        with self._context.database.read() as connection:
            live = phases.live_attempts(connection)
            ended = phases.unforgotten(connection)
        self._check(live)
        self._forget(ended)
        kept = {row.id for row in live} | {row.id for row in ended}
        self._salvaged = {job: at for job, at in self._salvaged.items() if job in kept}
        self._tries = Counter({job: tries for job, tries in self._tries.items() if job in kept})
        self._counted_on = {key: at for key, at in self._counted_on.items() if key[0] in kept}

    def check(self, attempt_ids: Collection[str]) -> set[str]:
        """Those that still live; the answer: their runs."""
        with self._context.database.read() as connection:
            live = [row for row in phases.live_attempts(connection) if row.id in attempt_ids]
        self._check(live)
        return {row.run_id for row in live}

    def withdraw(self, run_ids: Collection[str]) -> None:
        """What waits in a cluster's queue and is not to run any more has nothing to save: it goes at once."""
        with self._context.database.read() as connection:
            found = phases.withdrawn(connection, run_ids)
        for engine, rows in self._by_engine(found):
            statuses = engine.poll([JobId(row.id) for row in rows])
            for row in rows:
                if (status := statuses.get(JobId(row.id))) is not None and status.state is JobState.PENDING:
                    self._try_to_look_after(engine, row, status, self._context.clock())

    def hung_up(self, attempt_ids: Collection[str]) -> None:
        """A runner's connection ended: whether the runner did is asked until somebody knows."""
        self._suspects.update(dict.fromkeys(attempt_ids, 0.0))

    def suspects(self) -> set[str]:
        """Those that are to be looked at now."""
        now = time.monotonic()
        return {attempt_id for attempt_id, at in self._suspects.items() if at <= now}

    def next_look(self) -> float | None:
        """By time.monotonic()."""
        return min(self._suspects.values(), default=None)

    # --- what the engines say -------------------------------------------------------------------------------------

    def _check(self, live: Sequence[Row]) -> None:
        now = self._context.clock()
        known = {row.id: row for row in live}
        for attempt_id in list(self._suspects):
            row = known.get(attempt_id)
            if row is None or not self._is_silent(row):
                del self._suspects[attempt_id]
            else:
                self._suspects[attempt_id] = time.monotonic() + SUSPECT_EVERY
        for engine, rows in self._by_engine(live):
            statuses = engine.poll([JobId(row.id) for row in rows])
            for row in rows:
                status = statuses.get(JobId(row.id))
                if status is None:
                    continue  # nobody knows just now
                self._try_to_look_after(engine, row, status, now)

    def _try_to_look_after(self, engine: Engine, row: Row, status: JobStatus, now: float) -> None:
        """One attempt's trouble is not the others'."""
        try:
            self._look_after(engine, row, status, now)
        except Exception:
            log.exception("attempt %s could not be looked after; it is tried again", row.id)

    def _is_silent(self, row: Row) -> bool:
        """A runner of it that should be there is not."""
        hub = self._context.hub
        if row.nodes == 1:
            return not hub.hears(row.id)
        with self._context.database.read() as connection:
            ends = nodes.ends(nodes.ended(connection, row.id))
        return not all(hub.hears(row.id, node) for node in gang.open_nodes(row.nodes, ends))

    def _by_engine(self, rows: Sequence[Any]) -> Iterator[tuple[Engine, list[Any]]]:
        by_pool: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            by_pool[row.pool].append(row)
        found: dict[int, tuple[Engine, list[Row]]] = {}
        for pool, those in by_pool.items():
            engine = self._engines.of(pool)
            found.setdefault(id(engine), (engine, []))[1].extend(those)
        yield from found.values()

    def _look_after(self, engine: Engine, row: Row, status: JobStatus, now: float) -> None:
        if status.notice is not None and row.preempt_at is None:
            at = status.notice.at or now + NOTICE
            preempting.goes(self._context, row.id, until=at, why=status.notice.text)
        if status.state is JobState.PENDING:
            self._wait(row, status.text, now)
        for node in range(row.nodes):
            if status.of(node) not in (JobState.LOST, JobState.UNKNOWN):
                self._counted_on[row.id, node] = now
        if status.reason is EndReason.LAUNCH_FAILED:
            self._never_ran(row.id, EndReason.LAUNCH_FAILED, status.text)
            return
        if (off := _called_off(row)) is not None:
            if status.state is JobState.PENDING:
                self._aside.soon(f"cancel {row.id}", lambda: engine.cancel(JobId(row.id)))
                return
            if status.state is JobState.DEAD and not engine.can.salvage:
                self._never_ran(row.id, *off)
                return
        if row.nodes > 1:
            self._look_after_nodes(engine, row, status, now)
            return
        match status.state:
            case JobState.DEAD if engine.can.salvage:
                # Its journals hold what it did not ship, and its program may still live: a new runner ends both.
                self._salvage(engine, JobId(row.id))
            case JobState.DEAD:
                self._end(row.id, _died_of(status), status.text or "its runner died without a word")
            case JobState.LOST:
                if self._lease_is_over(engine, row, row.seen_at, now):
                    if off is not None:
                        self._never_ran(row.id, *off)
                    else:
                        self._end(row.id, EndReason.HOST_LOST, status.text or "its host is lost")
            case JobState.UNKNOWN:
                if row.seen_at is None or self._lease_is_over(engine, row, row.seen_at, now):
                    self._relaunch(row)
            case JobState.ENDED:
                # Everything was acknowledged, and yet we do not know the end: the database is older than the disk.
                if now - row.started_at > LEFT_SECONDS and not self._context.hub.hears(row.id):
                    if off is not None:
                        self._never_ran(row.id, *off)
                        return
                    self._end(row.id, EndReason.RUNNER_LOST, "its runner has left, and nothing tells how it ended")
            case JobState.RUNNING | JobState.PENDING:
                self._force_kill(engine, row, now)

    def _look_after_nodes(self, engine: Engine, row: Row, status: JobStatus, now: float) -> None:
        """Of several nodes those that have not ended yet."""
        with self._context.database.read() as connection:
            known = {each.node: each for each in nodes.of(connection, row.id)}
        ends = nodes.ends(list(known.values()))
        left = gang.open_nodes(row.nodes, ends)
        states = {node: status.of(node) for node in left}
        if not ends and not known and all(state is JobState.UNKNOWN for state in states.values()):
            self._relaunch(row)
            return
        lost: dict[int, tuple[EndReason, str]] = {}
        for node, state in states.items():
            heard = known[node].seen_at if node in known else None
            match state:
                case JobState.DEAD if engine.can.salvage:
                    self._salvage(engine, JobId(row.id))
                case JobState.DEAD:
                    lost[node] = (_died_of(status), status.text or "its runner died without a word")
                case JobState.LOST:
                    if self._lease_is_over(engine, row, heard, now, node):
                        lost[node] = (EndReason.HOST_LOST, status.text or "its host is lost")
                case JobState.UNKNOWN:
                    if self._lease_is_over(engine, row, heard, now, node):
                        lost[node] = (EndReason.RUNNER_LOST, "nothing is left of its runner")
                case JobState.ENDED:
                    if now - max(row.started_at, heard or 0.0) > LEFT_SECONDS:
                        lost[node] = (EndReason.RUNNER_LOST, "its runner has left, and nothing tells how it ended")
                case JobState.RUNNING | JobState.PENDING:
                    self._force_kill(engine, row, now)
        for node, (reason, text) in lost.items():
            early = _left_early(row, known.get(node))
            self._end_node(row, node, *(early or (reason, text)))
        if not lost and ends:
            self._ask_to_leave(row, now)

    def _lease_is_over(self, engine: Engine, row: Row, heard: float | None, now: float, node: int = 0) -> bool:
        """Nobody can look at that host: a runner that lives there, cut off, has to have ended by itself."""
        if not engine.can.lease:
            return True  # what the engine says is proof
        if self._context.hub.hears(row.id, node):
            return False  # whatever the cluster says, it talks to us
        newest = self._context.hub.heard_at(row.id, node) or heard
        # One that talked to our predecessor may come back; one that can't reach us may have asked the cluster as long
        # as that counted on it.
        since = max(newest or row.started_at, self._up_since, self._counted_on.get((row.id, node), 0.0))
        return now - since > engine.can.lease + MARGIN

    def _wait(self, row: Row, text: str, now: float) -> None:
        """In its cluster's queue, which is free: it starts when its first runner is heard of."""
        news = text != row.pending
        if not news and now - row.started_at < PENDING_STEP:
            return
        with self._context.database.write(durable=False) as connection:
            phases.update_attempt(connection, row.id, pending=text, started_at=max(now, row.started_at))
            if text and news:
                phase = phases.get(connection, row.phase_id)
                words = f"attempt {row.number} waits in pool {row.pool}: {text}"
                events.add(
                    connection, row.run_id, "pending", words, at=now,
                    phase=phase.name, attempt=row.number,
                )  # fmt: skip
        self._context.hub.shown(row.run_id)

    # --- what is done about it ------------------------------------------------------------------------------------

    def _engine(self, attempt_id: str) -> Engine:
        with self._context.database.read() as connection:
            attempt = phases.attempt(connection, attempt_id)
        return self._engines.of(attempt.pool if attempt is not None else "")

    def _salvage(self, engine: Engine, job: JobId) -> None:
        now = self._context.clock()
        if now - self._salvaged.get(job, 0.0) > SALVAGE_EVERY:
            self._salvaged[job] = now
            engine.salvage(job)

    def _force_kill(self, engine: Engine, row: Row, now: float) -> None:
        """Kill always wins, and so does the end of its capacity: a runner that does not carry it out in time is ended
        with everything below it."""
        bounds = [row.preempt_at] if row.preempt_at is not None else []
        if row.request == Stop.KILL and row.request_at is not None:
            bounds.append(row.request_at + self._kill_grace(row))
        if bounds and now > min(bounds) + self._context.settings.kill_watch:
            self._aside.soon(f"cancel {row.id}", lambda: engine.cancel(JobId(row.id)))

    def _kill_grace(self, row: Row) -> float:
        if row.kill_grace is not None:
            return float(row.kill_grace)
        with self._context.database.read() as connection:
            run, phase = runs.get(connection, row.run_id), phases.get(connection, row.phase_id)
        return spec_of(run.spec).phase(phase.name).grace.kill_save.total_seconds()

    def _relaunch(self, row: Row) -> None:
        """The intent was written, the launch never happened. Its token was never used: a new one takes its place."""
        if (off := _called_off(row, seen=True)) is not None:
            if row.seen_at is None:
                self._never_ran(row.id, *off)
            else:
                self._end(row.id, off[0], "nothing is left of its runner: what was asked for is done")
            return
        if row.seen_at is not None:  # it did run, and its directory is gone
            self._end(row.id, EndReason.RUNNER_LOST, "nothing is left of its runner, nor of what it had not sent")
            return
        self._tries[row.id] += 1
        if self._tries[row.id] > LAUNCH_TRIES:
            text = f"its runner did not come up in {LAUNCH_TRIES} tries"
            self._never_ran(row.id, EndReason.LAUNCH_FAILED, text)
            return
        token = accounts.new_token()
        with self._context.database.write() as connection:
            phases.update_attempt(connection, row.id, token_hash=accounts.fingerprint(token))
        self.launch(row.id, token)

    def _ask_to_leave(self, row: Row, now: float) -> None:
        """A node that does not come to its end by itself, long after the first one has."""
        with self._context.database.write() as connection:
            if not gangs.why_leave(connection, row, now):
                return
            nodes.tell_to_leave(connection, row.id, row.nodes)
        self._context.hub.ordered(row.id, ingest.order(self._context, row.id))

    # --- ends that no runner tells --------------------------------------------------------------------------------

    def _never_ran(self, attempt_id: str, reason: EndReason, text: str) -> None:
        """Nothing ran, so nothing is charged."""
        self._end(attempt_id, reason, text, charged=False)

    def _end_node(self, row: Row, node: int, reason: EndReason, text: str) -> None:
        now, over = self._context.clock(), False
        with self._context.database.write() as connection:
            attempt = phases.attempt(connection, row.id)
            if attempt is None:
                return
            at = max(attempt.started_at, now)
            found = gangs.ended(connection, attempt, node, reason, text, at=at, data={"reason": reason.value})
            gangs.tell(connection, attempt, f"node {node} has ended: {text}", now)
            if found.decisive is not None:
                phase = phases.get(connection, attempt.phase_id)
                runner_events.end_gang(self._context, connection, attempt, phase, found.decisive, found.rows)
                over = True
        if over:
            self._context.hub.over(row.id)
        else:
            self._context.hub.ordered(row.id, ingest.order(self._context, row.id))
        self._context.hub.changed(row.run_id)

    def _end(self, attempt_id: str, reason: EndReason, text: str, *, charged: bool = True) -> None:
        now = self._context.clock()
        with self._context.database.write() as connection:
            attempt = phases.attempt(connection, attempt_id)
            if attempt is None:
                return
            at = max(attempt.started_at, now) if charged else attempt.started_at  # a clock may be set back
            last = runner_events.reached(self._context, connection, attempt)
            if not runner_events.end(connection, attempt, reason, text, at=at, last_step=last):
                return
            phase = phases.get(connection, attempt.phase_id)
            events.add(
                connection,
                attempt.run_id,
                "ended",
                text,
                at=now,
                scope="instance",
                phase=phase.name,
                attempt=attempt.number,
                data={"reason": reason.value},
            )
        self._context.hub.over(attempt_id)
        self._context.hub.changed(attempt.run_id)

    def could_not_start(self, attempt_id: str, node: int, text: str, *, unfit: bool, left: bool = False) -> None:
        """A node of a cluster says so, before there is a runner. `unfit`: it is the run that can't be run there;
        `left`: it is nobody's fault, the node's capacity goes."""
        reason = EndReason.PREPARE_FAILED if unfit else EndReason.LAUNCH_FAILED
        if left:
            reason, text = EndReason.PREEMPTED, f"had to leave before its runner was started: {text}"
        with self._context.database.read() as connection:
            row = phases.attempt(connection, attempt_id)
        if self._context.hub.hears(attempt_id, node):
            log.warning("attempt %s: a second start on node %s failed, the first one lives: %s", attempt_id, node, text)
        elif row is not None and row.nodes > 1:
            self._end_node(row, node, reason, text)
        else:
            self._never_ran(attempt_id, reason, text)

    def _forget(self, ended: Sequence[Any]) -> None:
        """What the server has stored needs no second copy. A runner that still ships is left alone."""
        for engine, rows in self._by_engine(ended):
            statuses = engine.poll([JobId(row.id) for row in rows])
            over = _OVER if engine.can.salvage else (*_OVER, JobState.DEAD)
            gone = [job for job, status in statuses.items() if status.state in over]
            for job, status in statuses.items():
                if status.state is JobState.DEAD and engine.can.salvage:  # its last bytes may not be known to us
                    with contextlib.suppress(OSError, EngineUnreachable):
                        self._salvage(engine, job)
                elif status.state is JobState.PENDING:  # nobody wants it any more
                    self._aside.soon(f"cancel {job}", lambda job=job, engine=engine: engine.cancel(job))  # type: ignore[misc]
            if gone:
                said = {job: statuses[job].text for job in gone if statuses[job].state is JobState.DEAD}
                self._aside.soon(
                    f"forget {id(engine)}",  # an engine that takes its time keeps no other one waiting
                    lambda gone=gone, engine=engine, said=said: self._forget_now(engine, gone, said),  # type: ignore[misc]
                )

    def _forget_now(self, engine: Engine, jobs: Sequence[JobId], said: Mapping[JobId, str]) -> None:
        """`said`: what a cluster says of the end, where the runner could only tell that it had to leave."""
        done: list[JobId] = []
        trouble = 0
        for job in sorted(jobs, key=lambda job: self._unforgettable.get(job, 0.0)):  # those with trouble come last
            try:
                engine.forget(job)
                done.append(job)
                self._unforgettable.pop(job, None)
            except (OSError, EngineUnreachable) as error:
                log.warning("attempt %s could not be forgotten; it is tried again: %s", job, error)
                self._unforgettable[job] = time.monotonic()
                if (trouble := trouble + 1) == FORGET_TROUBLE:
                    break
        with self._context.database.write(durable=False) as connection:
            for job in done:
                attempt = phases.attempt(connection, job)
                if attempt is not None and (words := said.get(job, "")) and words not in (attempt.text or ""):
                    gangs.tell(connection, attempt, words, self._context.clock())
                phases.update_attempt(connection, job, forgotten=True)


def _called_off(row: Row, *, seen: bool = False) -> tuple[EndReason, str] | None:
    """Nobody wants it any more, and its runner was never heard of; `seen`: or a person says so."""
    if row.seen_at is not None and not seen:
        return None
    if row.request == Stop.KILL:
        return EndReason.KILLED, "killed before its runner was started"
    if row.request == Stop.PAUSE:
        return EndReason.PAUSED, "paused before its runner was started"
    if row.preempt_at is not None and row.seen_at is None:
        return EndReason.PREEMPTED, f"had to leave before its runner was started: {row.preempt_why}"
    return None


def _left_early(row: Row, node: Row | None) -> tuple[EndReason, str] | None:
    """Of a node whose runner was never heard of, and that had to leave: it is not lost. Who was told to because of
    another one explains nothing of the attempt's end."""
    if node is not None and node.seen_at is not None:
        return None
    if row.preempt_at is not None:
        return EndReason.PREEMPTED, f"had to leave before its runner was started: {row.preempt_why}"
    if node is not None and node.told:
        return EndReason.LAUNCH_FAILED, "was told to leave before its runner was started"
    return None


def _died_of(status: JobStatus) -> EndReason:
    return status.reason or (EndReason.PREEMPTED if status.reclaimed else EndReason.RUNNER_LOST)


_OVER = (JobState.ENDED, JobState.UNKNOWN, JobState.LOST)
