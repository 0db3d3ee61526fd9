"""The shapes of asking where a program is: its stacks come as events of kind `stacks`, one from each node."""

from pydantic import Field

from whistlestop.wire.api import Asked, Shape


class StacksBody(Asked):
    phase: str | None = Field(None, max_length=200, description="default: the one that runs now")


class StacksAsked(Shape):
    """The runners were asked. Each answers with an event of kind `stacks` whose data holds the same `asked`."""

    run: str
    phase: str
    attempt: int
    asked: str
    nodes: int  # so many answers
    after: int  # seq of the newest event before the answers
    text: str  # a sentence
