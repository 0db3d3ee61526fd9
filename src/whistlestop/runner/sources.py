"""What can be asked for notices, in the shapes that are really spoken: AWS, GCP and Azure metadata, and a file."""

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

from whistlestop.runner.alone import Alone
from whistlestop.runner.metadata import LIMIT, Answer, Unanswered, ask
from whistlestop.runner.notices import LEAVE_WITHIN, USUAL_NOTICE, Kind, NoAnswer, Notice, Source

OK, UNAUTHORIZED, NOT_FOUND = 200, 401, 404


class Aws:
    """IMDSv2, or v1 where nobody gives out tokens (or where the answer is lost on its way into a container)."""

    name, every = "aws", 5.0

    def __init__(self, base: str) -> None:
        self.where = base
        self._token: str | None = None
        self._token_at = 0.0  # when it was last asked for

    def ask(self) -> list[Notice]:
        found: list[Notice] = []
        problem: NoAnswer | None = None
        for path, judge in _AWS_ASKED.items():
            try:
                if (answer := self._get(path)) is not None:
                    skew = _skew(answer)
                    said = judge(answer.text, time.time() + skew)
                    found += [replace(each, deadline=each.deadline - skew) if each.deadline else each for each in said]
            except NoAnswer as error:  # what the others say counts all the same
                problem = error
                if isinstance(error.__cause__, Unanswered):  # nobody is there for them either
                    break
        if problem is not None and not found:
            raise problem
        return found

    def acknowledge(self, notice: Notice) -> None:
        """Nobody wants to hear it."""

    def _get(self, path: str) -> Answer | None:
        """None: there is nothing."""
        if self._token is None and time.monotonic() - self._token_at > _TOKEN_RETRY:
            self._renew()
        answer = self._ask(path)
        if answer.status == UNAUTHORIZED:
            self._renew()
            answer = self._ask(path)
        if answer.status == NOT_FOUND:
            return None
        return _good(answer)

    def _ask(self, path: str) -> Answer:
        headers = {} if self._token is None else {"X-aws-ec2-metadata-token": self._token}
        return _ask(self.where, f"/latest/meta-data/{path}", headers=headers)

    def _renew(self) -> None:
        self._token, self._token_at = None, time.monotonic()
        try:
            answer = ask(self.where, "/latest/api/token", method="PUT", headers=_TOKEN_LIFE)
        except Unanswered:
            return
        if answer.status == OK and answer.text.isascii() and answer.text.isprintable():
            self._token = answer.text


_TOKEN_LIFE = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
_TOKEN_RETRY = 60.0
_AWS_ACTIONS = {
    "terminate": "takes the instance back",
    "stop": "stops the instance",
    "hibernate": "hibernates the instance",
}
_AWS_ENDS = ("instance-stop", "instance-retirement", "instance-reboot", "system-reboot")


def _instance_action(text: str, now: float) -> list[Notice]:
    """All of these judge by the clock of who says it."""
    said = _object(text)
    action = said.get("action")
    if action not in _AWS_ACTIONS:
        raise NoAnswer(f"no instance-action: {text[:100]!r}")
    at = min(
        _iso(said.get("time")) or math.inf, now + USUAL_NOTICE["aws"]
    )  # there never is more: not the time is right
    return [Notice("aws", Kind.FINAL, at, f"AWS {_AWS_ACTIONS[action]} at {clock(at)} ({action})", text)]


def _rebalance(text: str, now: float) -> list[Notice]:
    if _iso(_object(text).get("noticeTime")) is None:
        raise NoAnswer(f"no recommendation: {text[:100]!r}")
    words = "AWS recommends to leave this instance: it is likelier than usual to be taken back"
    return [Notice("aws", Kind.ADVISORY, 0.0, words, text)]


def _scheduled(text: str, now: float) -> list[Notice]:
    events = _json(text)
    found = []
    for event in events if isinstance(events, list) else []:
        at = _http_date(event.get("NotBefore")) if isinstance(event, dict) else None
        if at is None or event.get("State", "active") != "active":
            continue
        code = str(event.get("Code"))[:100]
        # One that could have begun long ago may not come for hours: not a reason to leave again and again.
        kind = Kind.FINAL if code in _AWS_ENDS and at > now else Kind.ADVISORY
        words = f"AWS has scheduled a {code} of this instance for {moment(at)}"
        found.append(Notice("aws", kind, at, words, json.dumps(event, sort_keys=True)))
    return found


_AWS_ASKED: Mapping[str, Callable[[str, float], list[Notice]]] = {
    "spot/instance-action": _instance_action,
    "events/recommendations/rebalance": _rebalance,
    "events/maintenance/scheduled": _scheduled,
}


class Gcp:
    """One value of the metadata server, by long polls: the answer comes when it changes."""

    name, every = "gcp", 1.0

    def __init__(self, base: str, key: str, judge: Callable[[str], list[Notice]]) -> None:
        self.where = base
        self._key, self._judge = key, judge
        self._etag = ""

    def ask(self) -> list[Notice]:
        path, timeout = f"/computeMetadata/v1/instance/{self._key}", 2.0
        if self._etag:  # else as it is now: who waits for a change that was there before waits for ever
            path += f"?wait_for_change=true&last_etag={self._etag}&timeout_sec={_LONG_POLL:g}"
            timeout = _LONG_POLL + 2.0
        waited, self._etag, self.every = bool(self._etag), "", GCP_AGAIN
        answer = _good(_ask(self.where, path, headers=_GOOGLE, timeout=timeout))
        found = self._judge(answer.text)
        etag = answer.header("ETag")
        if etag.isalnum():
            # Who answers at once although asked to wait is not asked a thousand times a second.
            self._etag, self.every = etag, GCP_AGAIN if waited else 0.0
        return found

    def acknowledge(self, notice: Notice) -> None:
        """Nobody wants to hear it."""


_GOOGLE = {"Metadata-Flavor": "Google"}
_LONG_POLL = 60.0
GCP_AGAIN = 1.0


def _preempted(text: str) -> list[Notice]:
    if text not in ("TRUE", "FALSE"):
        raise NoAnswer(f"neither TRUE nor FALSE: {text[:100]!r}")
    at = time.time() + USUAL_NOTICE["gcp"]
    return (
        [Notice("gcp", Kind.FINAL, at, f"GCP takes the instance back at {clock(at)}", text)] if text == "TRUE" else []
    )


def _maintenance(text: str) -> list[Notice]:
    at = time.time() + _GCP_MAINTENANCE
    if text == "TERMINATE_ON_HOST_MAINTENANCE":
        return [Notice("gcp", Kind.FINAL, at, "GCP ends the instance for maintenance of its host", text)]
    if text == "MIGRATE_ON_HOST_MAINTENANCE":
        return [Notice("gcp", Kind.ADVISORY, at, "GCP moves the instance to another host", text)]
    if text != "NONE":
        raise NoAnswer(f"no maintenance-event: {text[:100]!r}")
    return []


_GCP_MAINTENANCE = 60.0  # seconds from the event to the maintenance; an hour where there are GPUs


class Azure:
    """Scheduled events. They are shown to every machine of the set: only those that name this one count."""

    name, every = "azure", 1.0

    def __init__(self, base: str) -> None:
        self.where, self._vm = urldefrag(base)  # http://169.254.169.254#vm_0: it may be told who it is
        self._patience = _AZURE_FIRST
        self._alone = Alone(self.where)

    def ask(self) -> list[Notice]:
        answer = _good(_ask(self.where, _EVENTS, headers=_METADATA, timeout=self._patience))
        self._patience = 2.0
        events = _object(answer.text).get("Events")
        listed = [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []
        ends = [event for event in listed if event.get("EventType") in _AZURE_ENDS]
        skew = _skew(answer)
        return [_azure_notice(event, skew) for event in ends if self._is_ours(event)]

    def acknowledge(self, notice: Notice) -> None:
        """Only by the last runner on this machine: the others may still be saving."""
        if self._alone.is_last():
            body = json.dumps({"StartRequests": [{"EventId": notice.answer_to}]}).encode()
            _good(_ask(self.where, _EVENTS, method="POST", headers=_METADATA, body=body))

    def _is_ours(self, event: Mapping[str, Any]) -> bool:
        if not self._vm:
            self._vm = _good(_ask(self.where, _NAME, headers=_METADATA)).text
        resources = event.get("Resources")
        return isinstance(resources, list) and self._vm in resources


_METADATA = {"Metadata": "true"}
_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_AZURE_FIRST = 120.0  # seconds: the first question switches the service on
_AZURE_ENDS = {
    "Preempt": "takes the machine back",
    "Terminate": "deletes the machine",
    "Reboot": "restarts the machine",
    "Redeploy": "moves the machine to another node",
}


def _azure_notice(event: Mapping[str, Any], skew: float) -> Notice:
    what = str(event["EventType"])
    started = event.get("EventStatus") == "Started"
    now = time.time() + skew
    at = now if started else _http_date(event.get("NotBefore")) or now + USUAL_NOTICE["azure"]
    if what == "Preempt":
        at = min(at, now + LEAVE_WITHIN)
    words = f"Azure {_AZURE_ENDS[what]} {'now' if started else f'at {clock(at)}'} ({what})"
    # What is acknowledged begins for all machines that it names: the others may still be saving.
    identity = str(event.get("EventId", ""))[:200] if len(event["Resources"]) == 1 else ""
    return Notice("azure", Kind.FINAL, at - skew, words, json.dumps(event, sort_keys=True), answer_to=identity)


class File:
    """A file that somebody puts there: `{"deadline": 1700000000}` or `{"in_seconds": 30}`, `"kind"`, `"text"`; without
    them its existence is the notice."""

    name, every = "file", 0.5

    def __init__(self, path: str) -> None:
        self.where = path
        self._seen: tuple[int, int] | None = None
        self._said: list[Notice] = []
        self._torn: tuple[int, int] | None = None  # it may be in the middle of being written
        self._first = True

    def ask(self) -> list[Notice]:
        first, self._first = self._first, False
        try:
            stat = os.stat(self.where)
            version = (stat.st_mtime_ns, stat.st_size)
            if version == self._seen:
                return self._said
            with open(self.where, "rb") as file:
                text = file.read(LIMIT).decode("utf-8", "replace").strip()
        except FileNotFoundError:
            self._seen = self._torn = None
            return []
        except OSError as error:
            raise NoAnswer(error.strerror or str(error)) from error
        said = _said(text)
        if not said and version != self._torn and not first:
            self._torn = version
            return []
        self._seen, self._said = version, []
        notice = self._notice(said or {}, text, stat.st_mtime)
        if first and notice.deadline < time.time():
            raise NoAnswer(f"its notice was for {moment(notice.deadline)}, which is over: it is not heeded. Remove it")
        self._said = [notice]
        return self._said

    def acknowledge(self, notice: Notice) -> None:
        """Nobody wants to hear it."""

    def _notice(self, said: Mapping[str, Any], text: str, written_at: float) -> Notice:
        at = _number(said.get("deadline"))
        if at is None:
            grace = _number(said.get("in_seconds"))
            at = written_at + (USUAL_NOTICE["file"] if grace is None else grace)
        kind = Kind.ADVISORY if said.get("kind") == "advisory" else Kind.FINAL
        words = str(said.get("text") or "")[:500] or f"The file {Path(self.where).name} says that the capacity goes"
        return Notice("file", kind, at, words, f"{written_at} {text}")


def _said(text: str) -> Mapping[str, Any] | None:
    """An empty file says nothing, and that is enough; None: no JSON object."""
    if not text:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class Unknown:
    """A name that a newer server may know."""

    every = 3600.0

    def __init__(self, name: str, where: str) -> None:
        self.name, self.where = name, where

    def ask(self) -> list[Notice]:
        raise NoAnswer(f"nobody knows how to ask {self.name!r}; those that are known: {', '.join(SOURCES)}")

    def acknowledge(self, notice: Notice) -> None:
        """There is none."""


SOURCES: Mapping[str, Callable[[str], list[Source]]] = {
    "aws": lambda where: [Aws(where)],
    "gcp": lambda where: [Gcp(where, "preempted", _preempted), Gcp(where, "maintenance-event", _maintenance)],
    "azure": lambda where: [Azure(where)],
    "file": lambda where: [File(where)],
}


def clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")


def moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ask(base: str, path: str, **how: Any) -> Answer:
    try:
        return ask(base, path, **how)
    except Unanswered as error:
        raise NoAnswer(str(error)) from error


def _good(answer: Answer) -> Answer:
    if answer.status != OK:
        raise NoAnswer(f"it answers with status {answer.status}")
    return answer


def _skew(answer: Answer) -> float:
    """Seconds by which the clock of who answers is ahead of ours. It is told in whole seconds: so few are none."""
    said = _http_date(answer.header("Date"))
    skew = 0.0 if said is None else said - time.time()
    return skew if abs(skew) > _SAME_CLOCK else 0.0


_SAME_CLOCK = 5.0


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoAnswer(f"what came is no JSON: {text[:100]!r}") from error


def _object(text: str) -> Mapping[str, Any]:
    found = _json(text)
    return found if isinstance(found, dict) else {}


def _number(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e11
    return float(value) if good else None  # type: ignore[arg-type]


def _iso(value: object) -> float | None:
    try:
        return _utc(datetime.fromisoformat(str(value)))
    except (ValueError, OverflowError):
        return None


def _utc(at: datetime) -> float:
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _http_date(value: object) -> float | None:
    """`Mon, 11 Apr 2026 22:26:58 GMT`, and without the day, as AWS has it."""
    try:
        return _utc(parsedate_to_datetime(str(value)))
    except (ValueError, TypeError, OverflowError):
        return None
