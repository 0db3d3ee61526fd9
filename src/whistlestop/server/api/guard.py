"""Nobody reaches anything without passing here: Host and Origin first, then the token or the session.

A page in somebody's browser must not be able to submit a run: a foreign Origin is refused, and so is a Host that is
not ours (DNS rebinding gives a foreign page our address, but not our name). Addresses beside the API hold no data.
"""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whistlestop.domain.errors import BadRequest, Forbidden, TooLarge, WhistleError
from whistlestop.server.api.problems import problem_response
from whistlestop.server.services.sessions import Entrance

MOST_BODY = 4 * 2**20  # bytes; bundles have a limit of their own
MOST_STRANGE = 4096  # bytes from somebody who is not signed in yet
ENTRANCE = "whistlestop.entrance"  # in the scope of a request to the API: who was let in
METRICS = "/metrics"  # beside the API, where Prometheus looks for it; nobody reads it without a token either
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Guard:
    def __init__(
        self, app: ASGIApp, *, hosts: frozenset[str], admit: Callable[[str, Mapping[str, str]], Entrance], api: str
    ) -> None:
        self._admit, self._api = admit, api
        self._app, self._hosts = app, LOOPBACK | {name.lower() for name in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(headers) or _unspeakable(scope) or self._stranger(scope, headers)
        if refusal is None and scope["type"] == "http":
            await self._app(scope, receive if _is_bundle(scope) else _capped(receive, self._most(scope)), send)
        elif refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4403, "reason": "foreign host or origin"})
        else:
            await problem_response(refusal)(scope, receive, send)

    def _refusal(self, headers: dict[str, str]) -> WhistleError | None:
        host = headers.get("host", "")
        if _name(f"//{host}") not in self._hosts:
            return Forbidden(
                f"this server is not called {host[:100]!r}",
                hint="reach it by its own name, or start it with --allow-host NAME",
            )
        origin = headers.get("origin")
        if origin is not None and _authority(origin) != host.lower():
            return Forbidden(f"a page from {origin[:100]!r} may not use this server")
        return None

    def _stranger(self, scope: Scope, headers: dict[str, str]) -> WhistleError | None:
        """Before a byte of the body is read: whoever has no token gets no memory of ours."""
        if scope["type"] != "http":
            return None
        try:
            if scope["path"].startswith(f"{self._api}/runner/"):
                return None  # the nodes of a cluster: each address asks for the attempt's own token
            if scope["path"].startswith(self._api) or scope["path"] == METRICS:
                scope[ENTRANCE] = self._admit(scope["method"], headers)
        except WhistleError as error:
            return error
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > self._most(scope) and not _is_bundle(scope):
            return _too_large(self._most(scope))
        return None

    def _most(self, scope: Scope) -> int:
        return MOST_BODY if scope["path"].startswith(self._api) else MOST_STRANGE


def _capped(receive: Receive, most: int) -> Receive:
    """The same limit for those who do not say how much they send."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise HTTPException(413, _too_large(most).text)  # FastAPI takes any other error for a body that is no JSON
        return message

    return counted


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"a request to this address may have {most // 1024:,} KiB")


def _is_bundle(scope: Scope) -> bool:
    return scope["method"] == "PUT" and str(scope["path"]).startswith("/api/v1/bundles/")


def _unspeakable(scope: Scope) -> WhistleError | None:
    """No database takes a NUL, and no name has one."""
    if "\0" in scope.get("path", "") or b"%00" in scope.get("query_string", b""):
        return BadRequest("the address contains a NUL character")
    return None


def _authority(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
