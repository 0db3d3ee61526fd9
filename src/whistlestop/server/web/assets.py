"""The dashboard's files: found once, kept in memory, packed for the way. Only what is in the list can be asked for."""

import gzip
import hashlib
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".toml": "text/plain; charset=utf-8",
    ".LICENSE": "text/plain; charset=utf-8",
}
FIRST = ("css/tokens.css", "css/base.css", "css/parts.css", "vendor/uplot.css")  # the rest may build on these
EARLY = ("", "ui", "vendor")  # modules of these directories are on every page: fetched at once, not one after another
LATE = ("vendor/uplot.js",)


@dataclass(frozen=True)
class Content:
    plain: bytes
    packed: bytes
    digest: str


@dataclass(frozen=True)
class Assets:
    """One state of the directory. The version follows from it, so an upgrade, or an edit, is a new address."""

    version: str
    files: dict[str, "Content"]

    def shell(self) -> str:
        """The page around all pages."""
        styles = [*FIRST, *sorted(name for name in self.files if name.startswith("css/") and name not in FIRST)]
        early = [
            name
            for name in sorted(self.files)
            if name.endswith(".js") and name.rpartition("/")[0] in EARLY and name not in LATE
        ]
        links = [f'<link rel="stylesheet" href="/static/{self.version}/{name}">' for name in styles]
        links += [f'<link rel="modulepreload" href="/static/{self.version}/{name}">' for name in early]
        links.append(f'<script type="module" src="/static/{self.version}/app.js"></script>')
        text = (STATIC / "index.html").read_text()
        return text.replace("{version}", self.version).replace("{links}", "\n".join(links))


def find_assets() -> Assets:
    """As they are on the disk, looked at once a second at most: a page asks for some fifty files at once."""
    return _look(int(time.monotonic()))


@lru_cache(maxsize=1)
def _look(_second: int, static: Path = STATIC) -> Assets:
    found = {}
    for path in sorted(static.rglob("*")):
        if path.suffix in TYPES and path.is_file():
            there = path.stat()
            found[path.relative_to(static).as_posix()] = _content(path, there.st_mtime_ns, there.st_size)
    # By content: an installer gives every file the same date.
    digests = sorted((name, content.digest) for name, content in found.items())
    return Assets(hashlib.sha256(repr(digests).encode()).hexdigest()[:16], found)


def media_type(name: str) -> str:
    return TYPES[Path(name).suffix]


@lru_cache(maxsize=512)
def _content(path: Path, _changed: int, _size: int) -> Content:
    plain = path.read_bytes()
    return Content(plain, gzip.compress(plain, 6, mtime=0), hashlib.sha256(plain).hexdigest())
