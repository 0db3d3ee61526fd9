"""The HTTP client: everything a person can do, from Python. The CLI is thin over it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whistlestop.client.client import Client as Client

__all__ = ["Client"]


def __getattr__(name: str) -> object:
    # Lazily: small neighbours (discovery, bundle) are used without the cost of HTTP and shapes.
    if name == "Client":
        from whistlestop.client.client import Client

        return Client
    raise AttributeError(name)
