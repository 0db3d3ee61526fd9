"""Why it ended: by how its last attempt ended, and its last words. An end that was asked for has no cause here."""

import re
from collections.abc import Sequence
from dataclasses import replace

from whistlestop.diagnosis import signals
from whistlestop.diagnosis.evidence import End, Evidence, Line
from whistlestop.diagnosis.findings import KINDS, Cause, Finding
from whistlestop.diagnosis.hosts import bad_host
from whistlestop.diagnosis.reading import Read, of_text
from whistlestop.diagnosis.remedies import remedy
from whistlestop.diagnosis.roots import root
from whistlestop.diagnosis.signs import OTHER, STRONG
from whistlestop.diagnosis.tracebacks import plain
from whistlestop.domain.reasons import ERROR_LINE, EndReason

_LAST = 60  # lines that may say why, where nothing was raised
_QUOTED = 6
_WIDEST = 300  # characters of a line that is quoted
_USAGE = re.compile(
    r"^\S*: error: |^usage: |^Usage: |[Nn]o such option|[Uu]nrecognized arguments?|[Mm]issing (?:option|argument)|"
    r"[Ii]nvalid value for|Could not override|unknown (?:flag|option)|invalid choice|unexpected (?:extra )?argument|"
    r"(?:un)?expected argument|[Uu]nknown (?:config|setting|key|option)"
)
_EXITED = re.compile(
    r"^(?:Error|ERROR|error|FATAL|Fatal|CRITICAL)\b|\b(?:ERROR|FATAL|CRITICAL)\b|[Ff]ailed|[Cc]annot|[Cc]ould not"
)
_NOT_ENDED = frozenset(
    {
        EndReason.FINISHED, EndReason.STOPPED, EndReason.PAUSED, EndReason.KILLED, EndReason.PREEMPTED,
        EndReason.TIME_LIMIT, EndReason.BEHIND, EndReason.STOP_UNANSWERED, EndReason.GUARDED,
    }
)  # fmt: skip


def findings(evidence: Evidence) -> list[Finding]:
    end = last_end(evidence)
    if end is None or end.reason in _NOT_ENDED:
        return []
    found = _cause(evidence, end)
    host = bad_host(evidence, end, found.cause if found else None)
    return [each for each in (found, host) if each is not None]


def last_end(evidence: Evidence) -> End | None:
    """Of the newest attempt. None: it runs, and how those before it ended is past."""
    if not evidence.ends or (evidence.place.ended_at is None and len(evidence.ends) < evidence.attempts):
        return None
    return evidence.ends[-1]


def _cause(evidence: Evidence, end: End) -> Finding | None:
    lines = evidence.lines
    match end.reason:
        case EndReason.OUT_OF_MEMORY:
            return _finding(evidence, end, Cause.HOST_MEMORY, 0.98, "the kernel killed it for lack of memory")
        case EndReason.COMMAND_NOT_FOUND:
            denied = of_text(end.text, OTHER)
            cause = Cause.NOT_ALLOWED if denied and denied[0] is Cause.NOT_ALLOWED else Cause.COMMAND_NOT_FOUND
            return _finding(evidence, end, cause, 0.98, end.text)
        case EndReason.ENDED_EARLY:
            return _finding(evidence, end, Cause.ENDED_EARLY, 0.96, _where(evidence, end))
        case EndReason.SIGNALLED | EndReason.CODE_RAISED:
            return _of_program(evidence, end, lines)
        case EndReason.HOST_LOST | EndReason.RUNNER_LOST:
            return None  # nothing that the program did, and it is tried again by itself
    return _of_words(evidence, end)


def _of_program(evidence: Evidence, end: End, lines: Sequence[Line]) -> Finding | None:
    read = root(lines, signals.first_rank(evidence, end))
    sent = signals.of(end)
    if sent is not None and sent.name == "SIGXFSZ":
        return _finding(evidence, end, Cause.DISK_FULL, 0.9, "SIGXFSZ: a file became larger than the limit of its user")
    if sent is not None and sent.inside:
        return _crash(evidence, end, sent, lines)
    said = _said(lines)
    if sent is not None:
        # Whoever was killed for what it said before, or the ranks of one that failed: its words know better.
        if read is not None and read.cause not in (Cause.CODE_ERROR, Cause.KILLED_OUTSIDE) and not read.follows:
            return _raised(evidence, end, read)
        if said is not None and said[0] in (Cause.HOST_MEMORY, Cause.SHARED_MEMORY, Cause.DEVICE_MEMORY):
            return _finding(evidence, end, said[0], said[1] - 0.1, said[2].text, quoted=said[2])
        return _killed(evidence, end, sent)
    if (
        read is None
        or read.follows
        or (read.cause is Cause.CODE_ERROR and read.raised.name in ("RuntimeError", "SystemExit"))
    ):
        other = _launched(end, lines) or (signals.of_child(lines) if said is None else None)
        if other is not None:
            return _finding(evidence, end, *other)
        if said is not None and (read is None or read.follows):
            return _finding(evidence, end, said[0], said[1] - 0.03, said[2].text, quoted=said[2])
    if read is not None:
        return _raised(evidence, end, read)
    return _of_words(evidence, end) or _finding(
        evidence, end, Cause.CODE_ERROR, 0.6, f"exit code {end.exit_code}, and it does not say why"
    )


def _launched(end: End, lines: Sequence[Line]) -> tuple[Cause, float, str] | None:
    """By the shell's codes, and by what parsers of arguments say before they leave."""
    usage = [text for _, text in map(plain, lines[-_LAST:]) if _USAGE.search(text)]
    errors = [text for text in usage if not text.lower().startswith("usage")]
    if end.exit_code == 2 and usage:
        return Cause.WRONG_CONFIG, 0.97, (errors or usage)[-1]
    if end.exit_code == 127 and "shared librar" in _last_text(lines):
        return Cause.MISSING_MODULE, 0.9, _last_text(lines)
    if end.exit_code == 127:
        return Cause.COMMAND_NOT_FOUND, 0.95, _last_text(lines) or "exit code 127"
    if end.exit_code == 126:
        return Cause.NOT_ALLOWED, 0.85, _last_text(lines) or "exit code 126: the command may not be executed"
    return None


def _said(lines: Sequence[Line]) -> tuple[Cause, float, Line] | None:
    """The last line that says plainly what it was."""
    for line in reversed(lines[-_LAST:]):
        found = of_text(plain(line)[1], STRONG)
        if found:
            return *found, line
    for line in reversed(lines[-_LAST:]):
        text = plain(line)[1]
        found = of_text(text, OTHER) if line.stream == "err" or _EXITED.search(text) else None
        if found:
            return found[0], found[1] - 0.1, line
    return None


def _of_words(evidence: Evidence, end: End) -> Finding | None:
    """Nothing of a program: what the end itself was told with."""
    _, _, line = end.text.partition(ERROR_LINE)
    found = of_text(line or end.text, (*STRONG, *OTHER))
    if found:
        return _finding(evidence, end, found[0], found[1] - 0.1, line or end.text)
    if end.reason in (EndReason.STORAGE_UNFIT, EndReason.STORAGE_AWAY):
        return _finding(evidence, end, Cause.SAVES_FAIL, 0.9, end.text)
    if end.reason in (EndReason.CHECKPOINT_UNUSABLE, EndReason.CHECKPOINT_DAMAGED):
        return _finding(evidence, end, Cause.BAD_DATA, 0.7, end.text)
    return None


def _raised(evidence: Evidence, end: End, read: Read) -> Finding:
    raised, frame = read.raised, read.raised.own
    where = f", raised by {frame}" if frame else ""
    on = f" on rank {raised.rank}" if raised.rank else ""
    quoted = tuple(f"at {each}" for each in (frame, raised.frames[-1] if raised.frames else None) if each is not None)
    return Finding(
        read.cause,
        read.confidence,
        f"{_short(raised.text)}{on}{where}{_at_step(end)}",
        evidence=tuple(dict.fromkeys((_short(raised.text), *quoted, *map(_short, raised.more[:3])))),
        do=remedy(read.cause, raised.whole, evidence.lines)
        or (f"Look at {frame.file} line {frame.line}." if read.cause is Cause.CODE_ERROR and frame else ""),
        step=end.last_step,
        rank=raised.rank if raised.rank or _several(evidence.lines) else None,
        host=end.host,
        at=raised.at or end.at,
    )


def _crash(evidence: Evidence, end: End, sent: "signals.Sent", lines: Sequence[Line]) -> Finding:
    said = _said(lines)
    if said is not None and said[0] is not Cause.COMMUNICATION and said[2].stream == "err":
        strong = of_text(plain(said[2])[1], STRONG)
        if strong:
            return _finding(evidence, end, *strong, said[2].text, quoted=said[2])
    if sent.name == "SIGABRT" and said is not None and said[0] is Cause.COMMUNICATION:  # NCCL's watchdog ends it so
        return _finding(evidence, end, said[0], said[1], said[2].text, quoted=said[2])
    read = root(lines, None)
    if sent.name == "SIGABRT" and read is not None and read.cause is not Cause.CODE_ERROR:
        return _raised(evidence, end, read)
    left = signals.shared_memory_left(evidence) if sent.name == "SIGBUS" else ""
    if left:
        return _finding(evidence, end, Cause.SHARED_MEMORY, 0.8, f"SIGBUS, and {left}")
    frame = signals.crashed_in(lines)
    where = f" in {frame}" if frame else ""
    return _finding(evidence, end, Cause.CRASHED, 0.95, f"{sent.name}: {sent.says}{where}")


def _killed(evidence: Evidence, end: End, sent: "signals.Sent") -> Finding:
    grown = _grown(evidence)
    found = _finding(evidence, end, Cause.KILLED_OUTSIDE, 0.75 if grown else 0.93, f"it was ended by {sent.name}")
    if not grown:
        return found
    return replace(found, evidence=(grown, *found.evidence), do=KINDS[Cause.KILLED_OUTSIDE].do + " Watch its memory.")


def _grown(evidence: Evidence) -> str:
    """Memory that grew without end makes a kill by the kernel likely, where nobody could count it."""
    for each in evidence.series:
        if (
            each.kind == "system"
            and each.name.endswith("memory_bytes")
            and "gpu" not in each.name
            and len(each.values) > 5
        ):
            first, last, most = sorted(each.values[:3])[1], each.values[-1], max(each.values)
            if last >= 0.9 * most and last > 3 * max(first, 1.0) and last > 4e9:
                return f"its memory grew from {first / 1e9:.1f} to {last / 1e9:.1f} GB"
    return ""


def _finding(
    evidence: Evidence, end: End, cause: Cause, confidence: float, says: str, quoted: Line | None = None
) -> Finding:
    texts = [quoted.text] if quoted is not None else []
    texts += [line.text for line in evidence.lines[-_QUOTED:] if line.text.strip()]
    rank = plain(quoted)[0] if quoted is not None else 0
    return Finding(
        cause,
        round(max(0.5, min(confidence, 0.99)), 2),
        f"{_short(says) or KINDS[cause].says}{_at_step(end)}",
        evidence=tuple(dict.fromkeys(_short(text) for text in (*texts, end.text) if text.strip())),
        do=remedy(cause, says, evidence.lines),
        step=end.last_step,
        rank=rank or None,
        host=end.host,
        at=end.at,
    )


def _where(evidence: Evidence, end: End) -> str:
    total = f" of {evidence.place.total:,}" if evidence.place.total else ""
    return f"exit code 0 at step {end.last_step or 0:,}{total}, with its loop not done"


def _at_step(end: End) -> str:
    return f" (at step {end.last_step:,})" if end.last_step else ""


def _several(lines: Sequence[Line]) -> bool:
    return len({plain(line)[0] for line in lines[-_LAST:]}) > 1


def _last_text(lines: Sequence[Line]) -> str:
    return next((line.text for line in reversed(lines) if line.text.strip() and line.stream != "sys"), "")


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
