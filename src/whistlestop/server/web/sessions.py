"""Sign-in and sign-out of browsers. The answer to a sign-in is a cookie that no script can read."""

from fastapi import APIRouter, Request, Response

from whistlestop.domain.errors import BadRequest, Unauthenticated
from whistlestop.server.services.accounts import Doorkeeper
from whistlestop.server.services.sessions import SESSION_LASTS, Sessions, bearer
from whistlestop.wire.sessions import SignIn

router = APIRouter(include_in_schema=False)


@router.post("/session", status_code=204)
def sign_in(body: SignIn, request: Request) -> Response:
    """By `token`, or by the `code` of a one-time link."""
    sessions: Sessions = request.app.state.sessions
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    if (body.token is None) == (body.code is None):
        raise BadRequest("a sign-in takes a token, or the code of a link")
    before = sessions.session_in(request.headers)
    if body.code:
        value = sessions.begin_by_link(body.code, instead_of=before, replace=body.replace)
    else:
        value = sessions.begin(doorkeeper.admit(body.token), instead_of=before)
    response = Response(status_code=204, headers={"Cache-Control": "no-store"})
    secure = request.url.scheme == "https"
    response.set_cookie(
        sessions.cookie, value, max_age=int(SESSION_LASTS), path="/", secure=secure, httponly=True, samesite="strict"
    )
    return response


@router.delete("/session", status_code=204)
def sign_out(request: Request) -> Response:
    """Here and on the server: a copy of the cookie is worth nothing afterwards."""
    sessions: Sessions = request.app.state.sessions
    by_token = bearer(request.headers.get("authorization")) is not None
    try:
        entrance = sessions.admit(request.method, request.headers)
    except Unauthenticated:
        if by_token:
            raise
        # The session has ended already: the browser has only its cookie to lose.
    else:
        if entrance.session is None:
            raise BadRequest("a token has no session to end", hint="whistle token revoke ends a token")
        sessions.end(entrance.session)
    response = Response(status_code=204, headers={"Cache-Control": "no-store"})
    response.delete_cookie(sessions.cookie, path="/", httponly=True, samesite="strict")
    return response
