"""One request to the server, and its errors turned back into our own. Knows HTTP; knows no endpoint."""

import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any
from urllib.parse import quote

import httpx2
from pydantic import ValidationError

from whistlestop.client.discovery import Place, find_server
from whistlestop.domain import errors
from whistlestop.domain.errors import WhistleError
from whistlestop.wire.api import Problem

PREFIX = "/api/v1"
_BY_STATUS: Mapping[int, type[WhistleError]] = {
    400: errors.BadRequest,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Refused,
    413: errors.TooLarge,
    422: errors.BadRequest,
    502: errors.ServerUnreachable,
    503: errors.ServerUnreachable,
    504: errors.ServerUnreachable,
}

Query = Mapping[str, Any]


class Transport:
    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._find: Callable[[], Place] = lambda: find_server(url, token, environ=environ or os.environ)
        self._timeout = timeout
        self._place: Place | None = None
        self._http: httpx2.Client | None = None

    @property
    def place(self) -> Place:
        if self._place is None:
            self._place = self._find()
        return self._place

    @property
    def http(self) -> httpx2.Client:
        if self._http is None:
            place = self.place
            headers = {"Authorization": f"Bearer {place.token}"} if place.token else {}
            self._http = httpx2.Client(
                base_url=place.url,
                headers={**headers, "User-Agent": "whistlestop"},
                timeout=httpx2.Timeout(self._timeout, connect=10.0),
                trust_env=not place.loopback,  # a proxy must never see the token of this machine
                # Reading the system's certificates takes longer than most answers: only where they are used.
                verify=True if place.url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            )
        return self._http

    def look_again(self) -> None:
        """After a lost connection: the server may have come back at another port."""
        if self.place.explicit:
            return
        found = self._find()
        # A server that left in order took its address with it: wait for it where it was, not at the default.
        if found.announced and found != self._place:
            self.close()

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
        self._http = self._place = None

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: str | bytes | IO[bytes] | None = None,
        json: bool = True,
        timeout: float | None = None,
    ) -> httpx2.Response:
        kind = "application/json" if json else "application/octet-stream"
        with reaching(self.place):
            response = self.http.request(
                method,
                PREFIX + path,
                params=clean(query),
                content=body,
                headers={"Content-Type": kind} if body is not None else None,
                timeout=httpx2.USE_CLIENT_DEFAULT if timeout is None else timeout,
            )
        if response.is_error:
            raise error_of(response, self.place)
        return response

    def pieces(self, path: str, *, timeout: float = 120.0) -> Iterator[bytes]:
        """The bytes of an answer as they come."""
        with (
            reaching(self.place),
            self.http.stream("GET", PREFIX + path, timeout=httpx2.Timeout(timeout, connect=10.0)) as response,
        ):
            if response.is_error:
                response.read()
                raise error_of(response, self.place)
            yield from response.iter_raw()


def clean(query: Query | None) -> dict[str, Any]:
    return {key: value for key, value in (query or {}).items() if value not in (None, "", [], ())}


def quoted(word: str) -> str:
    """One segment of a path: `#12` and names with blanks included."""
    return quote(word, safe="")


@contextmanager
def reaching(place: Place) -> Iterator[None]:
    """Turn every failure of the network into ServerUnreachable, with what to do."""
    try:
        yield
    except httpx2.ConnectError as error:
        hint = (
            "start it with: whistle up"
            if place.loopback
            else "check WHISTLE_URL, and that the server runs and can be reached"
        )
        raise errors.ServerUnreachable(f"There is no server at {place.url}.", hint=hint) from error
    except httpx2.TimeoutException as error:
        raise errors.ServerUnreachable(
            f"The server at {place.url} did not answer in time.", hint="try again; nothing is lost by it"
        ) from error
    except httpx2.TransportError as error:
        raise errors.ServerUnreachable(
            f"The connection to {place.url} broke: {error or type(error).__name__}.",
            hint="the server may be restarting; try again",
        ) from error
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise errors.BadRequest(f"{place.url!r} is not the address of a server.") from error


def error_of(response: httpx2.Response, place: Place) -> WhistleError:
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        return _unexplained(response, place)
    kind = errors.BY_CODE.get(problem.code) or _BY_STATUS.get(response.status_code, WhistleError)
    hint = problem.hint or (_token_hint(place) if response.status_code == 401 else None)
    error = kind(
        problem.detail,
        hint=hint,
        problems=[errors.Problem(item.path, item.text, item.line, item.hint) for item in problem.problems],
    )
    error.code = problem.code
    return error


def _unexplained(response: httpx2.Response, place: Place) -> WhistleError:
    """Not one of our answers: another program at that address, or a proxy in between."""
    kind = _BY_STATUS.get(response.status_code, WhistleError)
    hint = _token_hint(place) if response.status_code == 401 else "is this a Whistlestop server?"
    return kind(f"{place.url} answered with HTTP {response.status_code}.", hint=hint)


def _token_hint(place: Place) -> str:
    if place.token:
        return "the token is not valid here; make one with `whistle token create` where the server runs"
    return "set WHISTLE_TOKEN to a token of this server"
