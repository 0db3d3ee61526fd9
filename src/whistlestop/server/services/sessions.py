"""Browser sessions: a token or a one-time link in, a cookie out; and who a request comes from, by token or by cookie.

The cookie's value and the link's code are random and long; the database has their hashes alone, as it has of tokens.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from whistlestop.domain.errors import Forbidden, Unauthenticated
from whistlestop.server.services.accounts import Doorkeeper, fingerprint
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.store import sessions as store

COOKIE = "whistle_session"
CSRF = "x-whistle-csrf"
SESSION_LASTS = 30 * 86400.0  # seconds
LINK_LASTS = 600.0
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Entrance:
    """Somebody who was let in."""

    actor: Actor
    session: str | None = None  # the cookie's value; None: came with a token

    @property
    def csrf(self) -> str | None:
        return None if self.session is None else csrf_of(self.session)


def csrf_of(session: str) -> str:
    """Follows from the cookie's value, which no page can read, and can't be turned back into it."""
    return hashlib.sha256(f"csrf of {session}".encode()).hexdigest()


class Sessions:
    """Knows every session by heart, as the doorkeeper knows every token: a request costs no query."""

    def __init__(self, context: Context, doorkeeper: Doorkeeper) -> None:
        self._context, self._doorkeeper = context, doorkeeper
        with context.database.read() as connection:
            self._known = {row.hash: (row.token_id, row.expires_at) for row in store.all_sessions(connection)}

    def begin(self, actor: Actor) -> str:
        """The value of a new cookie."""
        value, now = secrets.token_urlsafe(32), self._context.clock()
        expires = now + SESSION_LASTS
        with self._context.database.write() as connection:
            store.remove_expired(connection, now)
            store.add_session(
                connection, hash=fingerprint(value), token_id=actor.token_id, created_at=now, expires_at=expires
            )
        kept = {hash: known for hash, known in self._known.items() if known[1] > now}
        self._known = {**kept, fingerprint(value): (actor.token_id, expires)}
        return value

    def begin_by_link(self, code: str) -> str:
        with self._context.database.write() as connection:
            token_id = store.take_link(connection, fingerprint(code), self._context.clock())
        actor = self._doorkeeper.by_id(token_id) if token_id else None
        if actor is None:
            raise Unauthenticated(
                "this link has been used already, or it is older than 10 minutes",
                hint="whistle open prints a new one",
            )
        return self.begin(actor)

    def end(self, session: str) -> None:
        with self._context.database.write() as connection:
            store.remove_session(connection, fingerprint(session))
        self._known = {hash: known for hash, known in self._known.items() if hash != fingerprint(session)}

    def admit(self, method: str, headers: Mapping[str, str]) -> Entrance:
        """Header names in lower case. A token, if there is one, decides; else the cookie."""
        if "authorization" in headers or COOKIE not in headers.get("cookie", ""):
            return Entrance(self._doorkeeper.admit(bearer(headers.get("authorization"))))
        session = _cookie(headers["cookie"])
        token_id, expires = self._known.get(fingerprint(session), ("", 0.0))
        actor = self._doorkeeper.by_id(token_id)
        if actor is None or expires <= self._context.clock():
            raise Unauthenticated("this session has ended", hint="sign in again")
        # Another port of this machine is "same site" to a browser, and its pages get our cookie sent.
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Forbidden("a page from elsewhere may not use this session")
        told = headers.get(CSRF, "")
        if method not in SAFE and not hmac.compare_digest(told.encode(), csrf_of(session).encode()):
            raise Forbidden(
                "this request changes something and does not say that it comes from the dashboard's own page",
                hint="reload the page; a script uses a token instead of a session",
            )
        return Entrance(actor, session)

    def still_good(self, entrance: Entrance) -> bool:
        """Whether who came in this way would be let in again now. Costs no query: streams ask it before they send."""
        if self._doorkeeper.by_id(entrance.actor.token_id) is None:
            return False
        if entrance.session is None:
            return True
        known = self._known.get(fingerprint(entrance.session))
        return known is not None and known[1] > self._context.clock()


def new_link(context: Context, actor: Actor) -> tuple[str, float]:
    """The address of a page that signs in once as this actor, and until when."""
    code, now = secrets.token_urlsafe(32), context.clock()
    with context.database.write() as connection:
        store.remove_expired(connection, now)
        store.add_link(connection, hash=fingerprint(code), token_id=actor.token_id, expires_at=now + LINK_LASTS)
    return f"/sign-in#code={code}", now + LINK_LASTS


def bearer(authorization: str | None) -> str | None:
    if not authorization:
        return None
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""
