"""Browser sessions: a token or a one-time link in, a cookie out; and who a request comes from, by token or by cookie.

The cookie's value and the link's code are random and long; the database has their hashes alone, as it has of tokens.
"""

import hashlib
import hmac
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from whistlestop.domain.errors import Forbidden, SignedIn, Unauthenticated
from whistlestop.server.services.accounts import Doorkeeper, fingerprint
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.store import sessions as store

CSRF = "x-whistle-csrf"
SESSION_LASTS = 30 * 86400.0  # seconds
LINK_LASTS = 600.0
MOST_SESSIONS = 20  # of one token; a new one ends the oldest
MOST_COOKIES = 32 * 1024  # characters of all cookies together; a session among more of them is not looked for
MOST_VALUE = 100  # characters; ours has 43
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
        # Around the database and `_known` together: two changes at once must not end up in them in different order.
        self._changing = threading.Lock()
        with context.database.read() as connection:
            self._known = _all_known(connection)
            # Browsers keep one cookie of a name for all ports of a host: every server there has a name of its own.
            self.cookie = f"whistle_session_{fingerprint(store.owner_id(connection))[:8]}"

    def begin(self, actor: Actor, *, instead_of: str | None = None) -> str:
        """The value of a new cookie; what the same browser had until now is worth nothing afterwards."""
        value, now = secrets.token_urlsafe(32), self._context.clock()
        with self._changing:
            with self._context.database.write() as connection:
                store.remove_expired(connection, now)
                if instead_of is not None:
                    store.remove_session(connection, fingerprint(instead_of))
                store.keep_newest(connection, actor.token_id, MOST_SESSIONS - 1)
                store.add_session(
                    connection,
                    hash=fingerprint(value),
                    token_id=actor.token_id,
                    created_at=now,
                    expires_at=now + SESSION_LASTS,
                )
                known = _all_known(connection)
            self._known = known
        return value

    def begin_by_link(self, code: str, *, instead_of: str | None = None, replace: bool = False) -> str:
        """A link may come from anybody: whoever is signed in does not become somebody else without saying so."""
        hash, now = fingerprint(code), self._context.clock()
        with self._context.database.read() as connection:  # strangers guess without keeping writers waiting
            token_id = store.good_link(connection, hash, now)
        if token_id is not None and not replace:
            self._check_same(instead_of, token_id)
        if token_id is not None:
            with self._context.database.write() as connection:
                token_id = store.take_link(connection, hash, now)
        actor = self._doorkeeper.by_id(token_id) if token_id else None
        if actor is None:
            raise Unauthenticated(
                "this link has been used already, or it is older than 10 minutes",
                hint="whistle open prints a new one",
            )
        return self.begin(actor, instead_of=instead_of)

    def _check_same(self, session: str | None, token_id: str) -> None:
        before, expires = self._known.get(fingerprint(session or ""), ("", 0.0))
        now, then = self._doorkeeper.by_id(before), self._doorkeeper.by_id(token_id)
        if now is None or then is None or expires <= self._context.clock() or now.name == then.name:
            return
        raise SignedIn(
            f"you are signed in as {now.name}, and this link signs in as {then.name}",
            hint=f"use it only if you want to act as {then.name}",
        )

    def end(self, session: str) -> None:
        with self._changing:
            with self._context.database.write() as connection:
                store.remove_session(connection, fingerprint(session))
                known = _all_known(connection)
            self._known = known

    def admit(self, method: str, headers: Mapping[str, str]) -> Entrance:
        """Header names in lower case. A token, if there is one, decides; else the cookie."""
        token = bearer(headers.get("authorization"))
        session = self.session_in(headers) if token is None else None
        if session is None:
            return Entrance(self._doorkeeper.admit(token))
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

    def session_in(self, headers: Mapping[str, str]) -> str | None:
        """The value of our cookie, known or not.

        Not by http.cookies: that takes quadratic time, before anybody is known, on the thread that serves all; and it
        gives up at a foreign cookie that is not as it should be, though browsers send it beside ours.
        """
        header = headers.get("cookie", "")
        if len(header) > MOST_COOKIES:
            return None
        for pair in header.split(";"):
            name, _, value = pair.partition("=")
            if name.strip() == self.cookie:
                return value.strip() if len(value) <= MOST_VALUE else None
        return None

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
    """None also for another scheme: a password there is meant for the proxy in front of us."""
    if not authorization:
        return None
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _all_known(connection: sa.Connection) -> dict[str, tuple[str, float]]:
    """By the hash of the cookie's value: whose it is, and until when."""
    return {row.hash: (row.token_id, row.expires_at) for row in store.all_sessions(connection)}
