"""Where the server is, and the token that opens it. Reads the environment and the data directory; sends nothing."""

import ipaddress
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from whistlestop.domain.errors import BadRequest

DEFAULT_URL = "http://127.0.0.1:7333"


@dataclass(frozen=True)
class Place:
    url: str
    token: str | None = field(repr=False)
    explicit: bool  # somebody named the URL; otherwise it may change when the server restarts
    announced: bool  # the server left this address in the data directory
    loopback: bool


def data_dir(environ: Mapping[str, str] | None = None) -> Path:
    environ = os.environ if environ is None else environ
    if given := environ.get("WHISTLE_DATA"):
        return Path(given).expanduser()
    base = environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "whistlestop"


def find_server(url: str | None = None, token: str | None = None, *, environ: Mapping[str, str] | None = None) -> Place:
    """What is given wins, then WHISTLE_URL and WHISTLE_TOKEN, then what the server left in the data directory."""
    environ = os.environ if environ is None else environ
    data = data_dir(environ)
    known = _url_in(data / "server.json")
    given = url or environ.get("WHISTLE_URL")
    chosen = _checked(given) if given else known or DEFAULT_URL
    token = token or environ.get("WHISTLE_TOKEN")
    # The token in the file belongs to the server on this machine: it is never shown to another one.
    if not token and (chosen == known or is_loopback(chosen)):
        token = _text_of(data / "token")
    return Place(chosen, token or None, explicit=bool(given), announced=chosen == known, loopback=is_loopback(chosen))


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked(url: str) -> str:
    url = url.rstrip("/")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise BadRequest(
            f"{url!r} is not the address of a server.",
            hint="WHISTLE_URL looks like http://127.0.0.1:7333",
        )
    return url


def _url_in(path: Path) -> str | None:
    try:
        found = json.loads(path.read_text())["url"]
        return _checked(str(found))
    except (OSError, ValueError, KeyError, TypeError, BadRequest):
        return None  # no server has been here, or it was cut off while it wrote


def _text_of(path: Path) -> str | None:
    try:
        text = path.read_text().strip()
    except (OSError, ValueError):
        return None
    return text if text.isascii() and text.isprintable() else None
