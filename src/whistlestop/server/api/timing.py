"""How long a request waits for its answer to begin, by the address's form: an id in it is nobody's label."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whistlestop.server.services.meters import Meters


class Timing:
    def __init__(self, app: ASGIApp, *, meters: Meters, api: str) -> None:
        self._app, self._meters, self._api = app, meters, api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":  # streams go on for hours
                route = self._route(scope)
                status = f"{message['status'] // 100}xx"
                self._meters.answered(scope["method"], route, status, time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, told)

    def _route(self, scope: Scope) -> str:
        """A router's own routes do not know where it was put."""
        found: str | None = getattr(scope.get("route"), "path", None)
        if found is None:
            return "other"
        inside = scope["path"].startswith(self._api) and not found.startswith(self._api)
        return self._api + found if inside else found
