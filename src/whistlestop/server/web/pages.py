"""The shell for every page address, and the static files. Neither holds data, so neither asks who comes."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Response

from whistlestop.domain.errors import NotFound
from whistlestop.server.web import assets

router = APIRouter(include_in_schema=False)
PAGES = (
    "/",
    "/projects/{name:path}",
    "/new",
    "/runs/{run}",
    "/queue",
    "/pools",
    "/hosts",
    "/usage",
    "/alerts",
    "/sign-in",
)
FOREVER = "public, max-age=31536000, immutable"


def shell(status: int = 200) -> Response:
    headers = {"Cache-Control": "no-cache"}
    return Response(assets.find_assets().shell(), status, headers, media_type="text/html; charset=utf-8")


for address in PAGES:
    router.add_api_route(address, lambda: shell(), methods=["GET", "HEAD"], response_model=None)


@router.api_route("/static/{version}/{name:path}", methods=["GET", "HEAD"], response_model=None)
async def static(
    version: Annotated[str, Path(max_length=64)],
    name: Annotated[str, Path(max_length=200)],
    accept_encoding: Annotated[str, Header()] = "",
) -> Response:
    """A version that is not the present one is of a page that was open during an upgrade: it gets what there is now."""
    known = assets.find_assets()
    found = known.files.get(name)
    if found is None:
        raise NotFound(f"there is no file {name}")
    headers = {"Cache-Control": FOREVER if version == known.version else "no-cache", "Vary": "Accept-Encoding"}
    if "gzip" in accept_encoding:
        return Response(
            found.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=assets.media_type(name)
        )
    return Response(found.plain, headers=headers, media_type=assets.media_type(name))


@router.get("/{anything:path}", response_model=None)
def unknown(anything: str, accept: Annotated[str, Header()] = "") -> Response:
    """A mistyped address: to a browser the dashboard says so, to a script the API does."""
    if "text/html" not in accept or anything.startswith(("api/", "static/")):
        raise NotFound(f"there is nothing at /{anything[:100]}")
    return shell(404)
