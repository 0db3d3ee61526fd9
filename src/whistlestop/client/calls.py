"""How a client asks one server, and reads its answers as shapes. What can be asked is in client.py and beside it."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from whistlestop.client.transport import Query, Transport
from whistlestop.domain.errors import ServerUnreachable, WhistleError

Shaped = TypeVar("Shaped", bound=BaseModel)

_ITEMS = TypeAdapter(list[dict[str, Any]])


class Calls:
    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._transport = Transport(url, token, timeout=timeout, environ=environ)

    @property
    def url(self) -> str:
        return self._transport.place.url

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _post_keyed(self, shape: type[Shaped], path: str, body: BaseModel) -> Shaped:
        """Once more where only the answer may have been lost: the key makes it the same request."""
        try:
            return self._post(shape, path, body)
        except ServerUnreachable as unreachable:
            if "broke" not in unreachable.text:
                raise
            return self._post(shape, path, body)

    def _get(self, shape: type[Shaped], path: str, query: Query | None = None) -> Shaped:
        return self._read(shape, self._transport.request("GET", path, query=query).content)

    def _list(self, shape: type[Shaped], path: str, query: Query | None = None) -> list[Shaped]:
        content = self._transport.request("GET", path, query=query).content
        try:
            return [shape.model_validate(item, extra="ignore") for item in _ITEMS.validate_json(content)]
        except ValidationError as error:
            raise self._not_understood(error) from error

    def _post(self, shape: type[Shaped], path: str, body: BaseModel) -> Shaped:
        return self._send(shape, "POST", path, body)

    def _send(self, shape: type[Shaped], method: str, path: str, body: BaseModel | None) -> Shaped:
        text = body.model_dump_json() if body is not None else None
        return self._read(shape, self._transport.request(method, path, body=text).content)

    def _read(self, shape: type[Shaped], content: bytes) -> Shaped:
        try:
            return shape.model_validate_json(content, extra="ignore")  # a newer server may say more
        except ValidationError as error:
            raise self._not_understood(error) from error

    def _not_understood(self, error: ValidationError) -> WhistleError:
        return WhistleError(
            f"The answer of {self.url} was not understood ({error.error_count()} differences).",
            hint="server and client may be of different versions: compare with `whistle version`",
        )
