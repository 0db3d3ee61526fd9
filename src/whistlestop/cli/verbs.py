"""What stop, pause and resume have in common: one request, one sentence."""

from typing import TYPE_CHECKING

from whistlestop.cli.output import print_json, say
from whistlestop.cli.words import with_times

if TYPE_CHECKING:
    from whistlestop.wire.api import Done, RunView
    from whistlestop.wire.pools import HostDone


def tell(done: "Done | HostDone", *, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    say(sentence(done.text))


def tell_new(run: "RunView", *, as_json: bool, how: str) -> None:
    from whistlestop.cli import words

    if as_json:
        print_json(run)
        return
    say(f"Run {words.name(run)} {how} and is {words.status(run)}. Watch it with: whistle watch {run.number}")


def sentence(text: str) -> str:
    return with_times(text[:1].upper() + text[1:]) + ("" if text.endswith((".", "!", "?")) else ".")
