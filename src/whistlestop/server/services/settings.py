"""The server's settings: one frozen value, made once at start."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    data: Path  # everything the server keeps; one server per directory
    host: str = "127.0.0.1"
    port: int = 7333
    slots: int | None = None  # None: as it was, at first start a slot per GPU or core
    price: float = 1.0  # credits per slot-hour of the local pool
    db: str | None = None  # database URL; default: SQLite in `data`
    allowed_hosts: tuple[str, ...] = ()  # names under which people reach this server, besides host and loopback
    bundle_limit: int = 200 * 1024 * 1024  # bytes
    log_limit: int = 256 * 1024 * 1024  # bytes of log kept per attempt
    tick: float = 5.0  # seconds between two full checks; everything else is woken by events
    kill_watch: float = 15.0  # seconds beyond its grace after which a kill goes past the runner
    unreachable_after: float = 30.0  # seconds of silence after which a runner is shown as unreachable
    storage: str | None = None  # where new runs keep their checkpoints: a directory, s3://…; default: in `data`
    storage_options: Mapping[str, str] = field(default_factory=dict)  # endpoint and region; never a secret

    @property
    def database_url(self) -> str:
        return self.db or f"sqlite:///{self.data / 'whistlestop.db'}"

    @property
    def attempts(self) -> Path:
        return self.data / "attempts"

    @property
    def bundles(self) -> Path:
        return self.data / "bundles"

    @property
    def server_file(self) -> Path:
        return self.data / "server.json"

    @property
    def token_file(self) -> Path:
        return self.data / "token"

    def run_directory(self, run_id: str) -> Path:
        return self.data / "runs" / run_id

    def checkpoints(self, run_id: str) -> Path:
        """On this machine. Where the storage is elsewhere: for what is not there yet."""
        return self.run_directory(run_id) / "checkpoints"

    def work(self, run_id: str) -> Path:
        return self.run_directory(run_id) / "work"


def default_slots() -> int:
    """A slot per GPU where there are any, else one per core."""
    try:
        import pynvml

        pynvml.nvmlInit()
        gpus: int = pynvml.nvmlDeviceGetCount()
        pynvml.nvmlShutdown()
        if gpus:
            return gpus
    except Exception:  # no driver, no library: a CPU host
        pass
    return os.cpu_count() or 1
