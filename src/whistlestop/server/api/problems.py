"""Errors as RFC 9457 problem+json with our stable code: one handler for all of them."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from whistlestop.domain.errors import BadRequest, NotFound, TooLarge, WhistleError
from whistlestop.domain.errors import Problem as Mistake
from whistlestop.wire.api import Problem, ProblemItem

log = logging.getLogger(__name__)
PLAIN: dict[int, type[WhistleError]] = {404: NotFound, 413: TooLarge}  # what the framework raises with no class of ours


def problem_response(error: WhistleError, status: int | None = None) -> JSONResponse:
    status = status or error.http
    body = Problem(
        title=(type(error).__doc__ or "").strip().splitlines()[0],
        status=status,
        code=error.code,
        detail=error.text,
        hint=error.hint,
        problems=[
            ProblemItem(path=item.path, text=item.text, line=item.line, hint=item.hint) for item in error.problems
        ],
    )
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse(body.model_dump(), status, headers=headers, media_type="application/problem+json")


def install(app: FastAPI) -> None:
    @app.exception_handler(WhistleError)
    async def ours(_request: Request, error: WhistleError) -> JSONResponse:
        return problem_response(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        items = [Mistake(".".join(str(part) for part in item["loc"]), str(item["msg"])) for item in error.errors()[:50]]
        said = "; ".join(f"{item.path}: {item.text}" for item in items[:3])
        return problem_response(BadRequest(f"the request has mistakes: {said}", problems=items), 422)

    @app.exception_handler(HTTPException)
    async def plain(_request: Request, error: HTTPException) -> JSONResponse:
        kind = PLAIN.get(error.status_code, BadRequest)
        response = problem_response(kind(str(error.detail)), error.status_code)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def ours_to_mend(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem_response(WhistleError("the server met an error of its own; its log has the details"))
