"""What every service needs, in one value."""

from dataclasses import dataclass, field

from whistlestop.domain.clock import Clock
from whistlestop.server.services.hub import Hub
from whistlestop.server.services.meters import Meters
from whistlestop.server.services.settings import Settings
from whistlestop.server.services.vault import Vault
from whistlestop.server.store.database import Database


@dataclass(frozen=True)
class Context:
    settings: Settings
    database: Database
    hub: Hub
    vault: Vault
    clock: Clock
    meters: Meters = field(default_factory=Meters)


@dataclass(frozen=True)
class Actor:
    """Who asks. Roles are ordered: each may do what the one before may."""

    name: str
    role: str
    token_id: str = ""
