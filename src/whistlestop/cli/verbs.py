"""What stop, pause and resume have in common: one request, one sentence."""

from typing import TYPE_CHECKING

from whistlestop.cli.output import print_json, say

if TYPE_CHECKING:
    from whistlestop.wire.api import Done, RunView


def tell(done: "Done", *, as_json: bool) -> None:
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
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
