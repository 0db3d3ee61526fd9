"""What one exception means: by the place that raised it, by its type, by its words. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from whistlestop.diagnosis.findings import Cause
from whistlestop.diagnosis.signs import OTHER, STRONG, TYPES, Sign
from whistlestop.diagnosis.tracebacks import Frame, Raised

_CONFIG = re.compile(
    r"(?i)(?<!\*)\b(?:config\w*|cfg|args|hparams|hyper\w*|settings|options?|opts|spec|environ|conf"
    r"|[a-z]+_(?:config|cfg|args))\b"
)
_CONFIG_FILE = re.compile(r"(?i)conf|cfg|settings|hparams|\.ya?ml|\.toml|\.ini|\bspec")
_TABLE = re.compile(r"\b[A-Z][A-Z_]{2,}\[")  # a registry that is looked up by a name that was given
_RECORD = re.compile(r"\b(?:row|line|fields|columns|record|parts|cells|entry|example)\[|\.split\(")
_SHAPES = re.compile(r"shape|dimension|broadcast")
_NET = re.compile(r"/(?:urllib|http|socket|ssl|requests|httpx|aiohttp|asyncio|urllib3)(?:/|\.py)")
# They say that something else went wrong before.
CONSEQUENCES = re.compile(
    r"ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException|BrokenPipeError"
    r"|BrokenProcessPool"
    r"|^EOFError$|Caught \w+(?:\.\w+)* in (?:DataLoader worker|replica|pin memory)"
    r"|DataLoader worker \(pid\(?s?\)?[ \d,)]*\)? exited"
    r"|RayTaskError|TrainingFailedError|^SystemExit|distributed\.elastic\.multiprocessing|WorkerCrashedError"
    r"|TerminatedWorkerError"
    r"|one of the other (?:ranks|processes)|SignalException"
)


@dataclass(frozen=True)
class Read:
    """An exception with what it means."""

    cause: Cause
    confidence: float
    raised: Raised

    @property
    def follows(self) -> bool:
        return CONSEQUENCES.search(self.raised.text) is not None


def of_exception(raised: Raised) -> Read:
    """Never nothing: what no sign fits is the program's own error."""
    found = _by_place(raised) or TYPES.get(raised.name)
    found = found or of_text(raised.text, (*STRONG, *OTHER)) or of_text(raised.whole, STRONG)
    return Read(*found, raised) if found else Read(Cause.CODE_ERROR, 0.9, raised)


def of_text(text: str, signs: Iterable[Sign]) -> tuple[Cause, float] | None:
    for sign in signs:
        if sign.pattern.search(text):
            return sign.cause, sign.confidence
    return None


def _by_place(raised: Raised) -> tuple[Cause, float] | None:
    """Whether it is about the configuration, by the user's line that raised it."""
    frame = raised.own
    if frame is None:
        return None
    match raised.name:
        case "KeyError" if "environ" in frame.code or any(each.file == "<frozen os>" for each in raised.frames):
            return Cause.WRONG_CONFIG, 0.95
        case "KeyError" | "AssertionError" if _CONFIG.search(frame.code):
            return Cause.WRONG_CONFIG, 0.85
        case "KeyError" if _TABLE.search(frame.code):
            return Cause.WRONG_CONFIG, 0.75
        case "AttributeError" if _CONFIG.search(frame.code) and "has no attribute" in raised.message:
            return Cause.WRONG_CONFIG, 0.75
        case "AttributeError" if "getattr(" in frame.code and raised.message.startswith("module "):
            return Cause.WRONG_CONFIG, 0.8
        case "JSONDecodeError" if any(_is_config(each) for each in raised.frames):
            return Cause.WRONG_CONFIG, 0.9
        case "TypeError" if "**" in frame.code and re.search("unexpected keyword|required", raised.message):
            return Cause.WRONG_CONFIG, 0.8
        case "ValueError" if _CONFIG.search(frame.code) and re.search(
            "invalid literal|could not convert", raised.message
        ):
            return Cause.WRONG_CONFIG, 0.85
        case "KeyError" | "IndexError" | "ValueError" if _RECORD.search(frame.code) and not _SHAPES.search(
            raised.message
        ):
            return Cause.BAD_DATA, 0.75
        case "TimeoutError" if any(_NET.search(each.file) for each in raised.frames):
            return Cause.NETWORK, 0.9
    return None


def _is_config(frame: Frame) -> bool:
    return frame.own and bool(_CONFIG_FILE.search(frame.code) or _CONFIG_FILE.search(frame.name))
