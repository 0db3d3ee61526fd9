"""Secrets at rest: sealed with a key that lies beside the data, readable by its owner alone."""

import os
from collections.abc import Callable
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from whistlestop.domain.errors import Refused


class Vault:
    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)

    @classmethod
    def open(cls, path: Path) -> "Vault":
        """The key is made at first use."""
        return cls(read_or_create(path, Fernet.generate_key))

    def seal(self, value: str) -> bytes:
        return self._fernet.encrypt(value.encode())

    def unseal(self, name: str, sealed: bytes) -> str:
        try:
            return self._fernet.decrypt(sealed).decode()
        except InvalidToken as error:
            raise Refused(
                f"secret {name} can't be opened with this server's key",
                hint=f"set it again: whistle secret set {name}",
            ) from error


def read_or_create(path: Path, make: Callable[[], bytes]) -> bytes:
    """The bytes of a private file; made once, complete or not at all, mode 0600 from its first moment."""
    try:
        return path.read_bytes().strip()
    except FileNotFoundError:
        pass
    value = make()
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(value + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return value
