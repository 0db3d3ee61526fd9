"""Nobody reaches anything without passing here: Host and Origin first, then the token.

A page in somebody's browser must not be able to submit a run: a foreign Origin is refused, and so is a Host that is
not ours (DNS rebinding gives a foreign page our address, but not our name). No cookie is ever read here.
"""

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from whistlestop.domain.errors import BadRequest, Forbidden, WhistleError
from whistlestop.server.api.problems import problem_response

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Guard:
    def __init__(self, app: ASGIApp, *, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, LOOPBACK | hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(headers) or _unspeakable(scope)
        if refusal is None:
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
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return Forbidden(f"a page from {origin[:100]!r} may not use this server")
        return None


def _unspeakable(scope: Scope) -> WhistleError | None:
    """No database takes a NUL, and no name has one."""
    if "\0" in scope.get("path", "") or b"%00" in scope.get("query_string", b""):
        return BadRequest("the address contains a NUL character")
    return None


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
