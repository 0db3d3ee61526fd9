"""How one alert gets to one receiver: a signed webhook, or whatever apprise knows. What goes wrong comes back in words.

Both libraries are imported when the first alert goes out: they take longer than the server's whole start.
"""

import base64
import hashlib
import hmac
import json
import logging
import threading
import warnings

from whistlestop.domain.errors import BadRequest

WEBHOOK, APPRISE = "webhook", "apprise"
TIMEOUT = 10.0  # seconds for a receiver to say a word


def send(kind: str, address: str, secret: str | None, *, delivery: str, title: str, body: str, at: float) -> str | None:
    """None: it was taken. Else why not."""
    if kind == WEBHOOK:
        return _post(address, secret or "", delivery, body, at)
    return _notify(address, title, body)


def sign(secret: str, delivery: str, at: int, body: str) -> str:
    """By the rules of Standard Webhooks: over id, time and body, so that none of them can be exchanged."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    made = hmac.new(key, f"{delivery}.{at}.{body}".encode(), hashlib.sha256).digest()
    return "v1," + base64.b64encode(made).decode()


def check_apprise(address: str) -> None:
    if _service(address) is None:
        raise BadRequest(
            "apprise knows no service by this address, or something is missing in it",
            hint="its forms: https://github.com/caronc/apprise#supported-notifications; a webhook begins with https://",
        )


def _post(address: str, secret: str, delivery: str, body: str, at: float) -> str | None:
    import httpx2

    headers = {
        "content-type": "application/json",
        "user-agent": "whistlestop",
        "webhook-id": delivery,
        "webhook-timestamp": str(int(at)),
        "webhook-signature": sign(secret, delivery, int(at), body),
    }
    try:
        # No redirects: an alert goes where an admin said, and nowhere else. The answer's body is nobody's business.
        with (
            httpx2.Client(timeout=TIMEOUT, follow_redirects=False) as client,
            client.stream("POST", address, content=body.encode(), headers=headers) as answer,
        ):
            if 200 <= answer.status_code < 300:
                return None
            if answer.is_redirect:
                return f"it answered {answer.status_code}, to go elsewhere: add the address that it moved to"
            return f"it answered {answer.status_code} {answer.reason_phrase}".strip()
    except httpx2.TimeoutException:
        return f"it did not answer within {TIMEOUT:g} s"
    except httpx2.ConnectError as error:
        return f"it can't be reached: {_plain(error, address)}"
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        return f"the connection broke: {_plain(error, address)}"


def _notify(address: str, title: str, body: str) -> str | None:
    service = _service(address)
    if service is None:
        return "apprise can't use its address any more"
    heard = _Heard(threading.get_ident())
    logger = logging.getLogger("apprise")
    logger.addHandler(heard)
    try:
        # A program's words are text, not HTML. What is too long for a service is cut: it would refuse it for ever, and
        # all that waits behind it would wait.
        taken = service.notify(
            body=json.loads(body)["text"], title=title, notify_type="info", body_format="text", overflow="truncate"
        )
    except Exception as error:  # a plugin's own trouble
        return _plain(error, address)
    finally:
        logger.removeHandler(heard)
    return None if taken else _plain(heard.last or "apprise could not send it", address)


def _service(address: str):  # type: ignore[no-untyped-def]  # apprise's own, which nobody else needs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it loads all its services at once, old ones as well
        import apprise

        # Nothing is kept on the disk beside our data, and nobody is sent elsewhere.
        asset = apprise.AppriseAsset(
            app_id="Whistlestop", async_mode=False, storage_mode="memory", http_redirects=False
        )
        return apprise.Apprise.instantiate(address, asset=asset)


def _plain(error: object, address: str) -> str:
    """In one line, without the address: an error is shown to more people than that is."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words.replace(address, "its address")[:300]


class _Heard(logging.Handler):
    """What apprise says of a failure, it says in its log. Of this thread alone: others send to others."""

    def __init__(self, thread: int) -> None:
        super().__init__(logging.WARNING)
        self._thread, self.last = thread, ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.last = record.getMessage()
