"""What a browser sends to sign in."""

from pydantic import Field

from whistlestop.wire.api import Asked


class SignIn(Asked):
    token: str | None = Field(None, min_length=1, max_length=500)
    code: str | None = Field(None, min_length=1, max_length=500, description="of a one-time link; instead of a token")
    replace: bool = Field(False, description="also if the browser is signed in as somebody else than the link is for")
