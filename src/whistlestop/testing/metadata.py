"""A local metadata server that speaks as those of AWS, GCP and Azure do, for tests and rehearsals: point a pool's
`notices` at its address. It can also misbehave."""

import json
import threading
import time
import uuid
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

_JSON = "application/json"


class MetadataServer:
    """`with MetadataServer() as server`: what it says is changed by its methods, what it was asked is in `asked`."""

    def __init__(self, *, vm: str = "vm_0", tokens: bool = True) -> None:
        self.vm = vm
        self.tokens = tokens  # AWS: False is a machine with IMDSv1 only
        self.skew = 0.0  # seconds by which its clock is ahead
        self.misbehaviour = ""  # garbage, huge, redirect, silent, dripping
        self.asked: list[tuple[str, str]] = []  # method and path
        self.acknowledged: list[str] = []  # Azure: EventIds
        self._given: set[str] = set()  # AWS: tokens that are good
        self._aws: dict[str, Any] = {}
        self._gcp = {"preempted": "FALSE", "maintenance-event": "NONE"}
        self._azure: list[dict[str, Any]] = []
        self._version = 1
        self._changed = threading.Condition()
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    # What it says.

    def aws_interrupts(self, *, at: float, action: str = "terminate") -> None:
        self._aws["spot/instance-action"] = {"action": action, "time": _iso(at)}

    def aws_recommends_rebalance(self) -> None:
        self._aws["events/recommendations/rebalance"] = {"noticeTime": _iso(time.time())}

    def aws_schedules(self, *, at: float, code: str = "system-reboot") -> None:
        event = {
            "NotBefore": _date(at).partition(", ")[2],  # AWS has it without the day
            "Code": code,
            "Description": f"scheduled {code}",
            "EventId": f"instance-event-{uuid.uuid4().hex[:17]}",
            "NotAfter": _date(at + 900).partition(", ")[2],
            "State": "active",
        }
        self._aws.setdefault("events/maintenance/scheduled", []).append(event)

    def forget_tokens(self) -> None:
        """As if those that were given out had expired."""
        self._given.clear()

    def gcp_says(self, **values: str) -> None:
        """`preempted="TRUE"`, `maintenance_event="TERMINATE_ON_HOST_MAINTENANCE"`."""
        with self._changed:
            self._gcp |= {name.replace("_", "-"): value for name, value in values.items()}
            self._version += 1
            self._changed.notify_all()

    def azure_schedules(self, what: str, *, at: float, resources: list[str] | None = None) -> str:
        """The event's id."""
        event = {
            "EventId": str(uuid.uuid4()).upper(),
            "EventType": what,
            "ResourceType": "VirtualMachine",
            "Resources": [self.vm] if resources is None else resources,
            "EventStatus": "Scheduled",
            "NotBefore": _date(at),
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
        self._azure = [*self._azure, event]
        self._version += 1
        return str(event["EventId"])

    # How it answers.

    def answer(self, handler: "_Handler", method: str, body: bytes) -> None:
        self.asked.append((method, handler.path))
        if self.misbehaviour:
            return self._misbehave(handler)
        path = urlsplit(handler.path).path
        if path.startswith("/latest/"):
            return self._answer_as_aws(handler, method, path)
        if path.startswith("/computeMetadata/v1/instance/"):
            return self._answer_as_gcp(handler, path.rpartition("/")[2])
        if path.startswith("/metadata/"):
            return self._answer_as_azure(handler, method, path, body)
        return handler.reply(404, b"")

    def _answer_as_aws(self, handler: "_Handler", method: str, path: str) -> None:
        if path == "/latest/api/token":
            life = handler.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            if not self.tokens:
                return handler.reply(404, b"")
            if method != "PUT" or not life.isdigit() or not 1 <= int(life) <= 21600:
                return handler.reply(400, b"")
            token = uuid.uuid4().hex
            self._given.add(token)
            return handler.reply(200, token.encode(), {"X-aws-ec2-metadata-token-ttl-seconds": life})
        if self.tokens and handler.headers.get("X-aws-ec2-metadata-token") not in self._given:
            return handler.reply(401, b"")
        said = self._aws.get(path.removeprefix("/latest/meta-data/"))
        return handler.reply(404, b"") if said is None else handler.reply(200, json.dumps(said).encode())

    def _answer_as_gcp(self, handler: "_Handler", key: str) -> None:
        if handler.headers.get("Metadata-Flavor") != "Google" or key not in self._gcp:
            return handler.reply(403 if key in self._gcp else 404, b"")
        asked = {name: values[0] for name, values in parse_qs(urlsplit(handler.path).query).items()}
        with self._changed:
            if asked.get("wait_for_change") == "true":
                # A change that was there before the question is answered at once only to who says what he knows.
                known = asked.get("last_etag", self._etag(key))
                changed = lambda: self._etag(key) != known or self._closed.is_set()  # noqa: E731
                self._changed.wait_for(changed, float(asked.get("timeout_sec", "60")))
            value, etag = self._gcp[key], self._etag(key)
        return handler.reply(
            200, value.encode(), {"Metadata-Flavor": "Google", "ETag": etag, "Content-Type": "text/plain"}
        )

    def _etag(self, key: str) -> str:
        return uuid.uuid5(uuid.NAMESPACE_URL, f"{self._version} {key}={self._gcp[key]}").hex[:16]

    def _answer_as_azure(self, handler: "_Handler", method: str, path: str, body: bytes) -> None:
        asked = parse_qs(urlsplit(handler.path).query)
        if handler.headers.get("Metadata") != "true" or "api-version" not in asked:
            return handler.reply(400, b'{"error": "Bad request. Required metadata header not specified"}')
        if path == "/metadata/instance/compute/name":
            return handler.reply(200, self.vm.encode(), {"Content-Type": "text/plain"})
        if path != "/metadata/scheduledevents":
            return handler.reply(404, b"")
        if method == "POST":
            wanted = [str(each["EventId"]) for each in json.loads(body)["StartRequests"]]
            self.acknowledged += wanted
            started = {"EventStatus": "Started", "NotBefore": ""}
            self._azure = [event | started if event["EventId"] in wanted else event for event in self._azure]
            return handler.reply(200, b"")
        return handler.reply(200, json.dumps({"DocumentIncarnation": self._version, "Events": self._azure}).encode())

    def _misbehave(self, handler: "_Handler") -> None:
        match self.misbehaviour:
            case "garbage":
                handler.wfile.write(b"\x00\xff no HTTP at all \r\n\r\n")
            case "huge":
                handler.send_response(200)
                handler.end_headers()
                for _ in range(1000):
                    handler.wfile.write(bytes(1 << 16))
            case "redirect":
                handler.reply(302, b"", {"Location": f"{self.url}/elsewhere"})
            case "silent":
                self._closed.wait(60)
            case "dripping":
                handler.send_response(200)
                handler.flush_headers()
                while not self._closed.wait(0.05):
                    handler.wfile.write(b"X-Drip: 1\r\n")
                    handler.wfile.flush()
            case other:
                handler.reply(int(other), b"")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: MetadataServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has left: nothing to say."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer("GET")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def do_POST(self) -> None:
        self._answer("POST")

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": _JSON, "Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(time.time() + self.server.owner.skew)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read what was asked, not this."""

    def _answer(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.close_connection = True
        self.server.owner.answer(self, method, body)


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _date(at: float) -> str:
    return format_datetime(datetime.fromtimestamp(at, UTC), usegmt=True)
