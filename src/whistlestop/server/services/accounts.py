"""Who may do what: tokens and their roles. Only hashes are kept; a token is shown once, when it is made."""

import hashlib
import secrets
import threading

from whistlestop.domain.clock import iso
from whistlestop.domain.errors import Forbidden, NotFound, Refused, Unauthenticated, WhistleError
from whistlestop.domain.ids import new_id
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.services.vault import read_or_create
from whistlestop.server.store import admin
from whistlestop.wire.api import Role, SecretView, TokenView

ROLES = ("viewer", "member", "admin")


def new_token() -> str:
    return "whs_" + secrets.token_urlsafe(32)


def fingerprint(token: str) -> str:
    """Tokens are long and random: a plain hash can't be guessed back, and it can be looked up."""
    return hashlib.sha256(token.encode()).hexdigest()


def first_token(context: Context) -> str:
    """The admin token of the data directory: made at first start, kept with mode 0600 where the CLI finds it."""
    token = read_or_create(context.settings.token_file, lambda: new_token().encode()).decode()
    with context.database.write() as connection:
        if not any(row.hash == fingerprint(token) for row in admin.all_tokens(connection)):
            admin.add_token(
                connection,
                id=new_id("t"),
                name="local",
                role="admin",
                hash=fingerprint(token),
                created_at=context.clock(),
            )
    return token


class Doorkeeper:
    """Knows every token's hash by heart: authentication costs no query."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[str, Actor] = {}
        self._by_id: dict[str, Actor] = {}
        self._reading = threading.Lock()
        self.reload()

    def reload(self) -> None:
        with self._reading:  # of two at once the older look could win, and let a revoked token in again
            with self._context.database.read() as connection:
                rows = admin.all_tokens(connection)
            self._known = {row.hash: Actor(row.name, row.role, row.id) for row in rows}
            self._by_id = {actor.token_id: actor for actor in self._known.values()}

    def by_id(self, token_id: str) -> Actor | None:
        """None: it was revoked."""
        return self._by_id.get(token_id)

    def admit(self, token: str | None) -> Actor:
        actor = self._known.get(fingerprint(token)) if token else None
        if actor is None:
            raise Unauthenticated(
                "no token was given" if not token else "this server does not know the token",
                hint="the server keeps one in its data directory (file `token`); give it as WHISTLE_TOKEN",
            )
        return actor


def require(actor: Actor, role: Role) -> None:
    if ROLES.index(actor.role) < ROLES.index(role):
        raise Forbidden(
            f"{actor.name} is {_one(actor.role)}; this takes {_one(role)}",
            hint="ask an admin for a token: whistle token create",
        )


def _one(role: str) -> str:
    return f"an {role}" if role == "admin" else f"a {role}"


def create_token(context: Context, name: str, role: Role) -> TokenView:
    token, now, token_id = new_token(), context.clock(), new_id("t")
    with context.database.write() as connection:
        if any(row.name == name for row in admin.all_tokens(connection)):
            raise Refused(f"there is a token called {name} already", hint="choose another name, or revoke that one")
        admin.add_token(connection, id=token_id, name=name, role=role, hash=fingerprint(token), created_at=now)
    return TokenView(id=token_id, name=name, role=role, created_at=iso(now), token=token)


def list_tokens(context: Context) -> list[TokenView]:
    with context.database.read() as connection:
        rows = admin.all_tokens(connection)
    return [TokenView(id=row.id, name=row.name, role=row.role, created_at=iso(row.created_at)) for row in rows]


def revoke_token(context: Context, reference: str, actor: Actor) -> TokenView:
    """By id or name. One's own can't be revoked: nobody would be left to undo it."""
    found = next((view for view in list_tokens(context) if reference in (view.id, view.name)), None)
    if found is None:
        raise NotFound(f"there is no token {reference}", hint="whistle token ls shows them")
    if found.id == actor.token_id:
        raise Refused("this is the token you are using", hint="revoke it with another admin's token")
    with context.database.write() as connection:
        admin.remove_token(connection, found.id)
        known = {row.hash for row in admin.all_tokens(connection)}
    kept = context.settings.token_file
    try:
        if kept.exists() and fingerprint(kept.read_text().strip()) not in known:
            kept.unlink()  # or the next start would let it in again; it makes a new one instead
    except OSError as error:
        raise WhistleError(
            f"the token {found.name} is revoked, but the file {kept} can't be read or removed: {error.strerror}",
            hint="remove it by hand: the next start lets in the token that it holds",
        ) from error
    return found


def set_secret(context: Context, name: str, value: str) -> SecretView:
    now = context.clock()
    with context.database.write() as connection:
        admin.put_secret(connection, name, context.vault.seal(value), now)
    return SecretView(name=name, updated_at=iso(now))


def list_secrets(context: Context) -> list[SecretView]:
    with context.database.read() as connection:
        rows = admin.all_secrets(connection)
    return [SecretView(name=row.name, updated_at=iso(row.updated_at)) for row in rows]


def remove_secret(context: Context, name: str) -> None:
    with context.database.write() as connection:
        if not admin.remove_secret(connection, name):
            raise NotFound(f"there is no secret {name}", hint="whistle secret ls shows them")
