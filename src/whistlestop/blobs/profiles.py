"""How to reach S3: what we were told, then the usual environment, then the files that `aws configure` writes."""

import configparser
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

# Any of these, and the library finds its way itself.
_FROM_ENVIRONMENT: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_KEYS: Final = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}


def s3_config(options: Mapping[str, str]) -> dict[str, Any]:
    """For obstore. `options`: "endpoint", "region"."""
    environment = os.environ
    profile = _profile(environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default")
    found = {
        "endpoint": options.get("endpoint")
        or environment.get("AWS_ENDPOINT_URL_S3")
        or environment.get("AWS_ENDPOINT_URL")
        or environment.get("AWS_ENDPOINT")
        or profile.get("endpoint_url"),
        "region": options.get("region")
        or environment.get("AWS_REGION")
        or environment.get("AWS_DEFAULT_REGION")
        or profile.get("region"),
    }
    if not any(environment.get(name) for name in _FROM_ENVIRONMENT):
        found |= {ours: profile.get(theirs) for theirs, ours in _KEYS.items()}
    return {name: value for name, value in found.items() if value}


def _profile(name: str) -> Mapping[str, str]:
    """Of both files; the one for credentials wins."""
    home = Path.home() / ".aws"
    config = _read(Path(os.environ.get("AWS_CONFIG_FILE") or home / "config"))
    credentials = _read(Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials"))
    section = name if name == "default" else f"profile {name}"
    return {**config.get(section, {}), **credentials.get(name, {})}


def _read(path: Path) -> Mapping[str, Mapping[str, str]]:
    parser = configparser.RawConfigParser(default_section="\0", strict=False)  # values may hold a percent sign
    try:
        parser.read_string(path.expanduser().read_text())
    except (OSError, ValueError, configparser.Error):
        return {}
    return {section: dict(parser[section]) for section in parser.sections()}
