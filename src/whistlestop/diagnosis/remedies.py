"""What to do about a failure, as exactly as its own words allow: the package, the path, the flag."""

import re
from collections.abc import Sequence

from whistlestop.diagnosis.evidence import Line
from whistlestop.diagnosis.findings import Cause

# Where the package is not called what is imported.
_PACKAGES = {
    "cv2": "opencv-python",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "bs4": "beautifulsoup4",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "gitpython",
    "attr": "attrs",
    "MPI": "mpi4py",
    "Crypto": "pycryptodome",
    "google.protobuf": "protobuf",
    "flash_attn": "flash-attn",
    "pytorch_lightning": "pytorch-lightning",
    "sentence_transformers": "sentence-transformers",
    "torch_geometric": "torch-geometric",
    "faiss": "faiss-cpu",
    "tensorboardX": "tensorboardX",
    "hydra": "hydra-core",
    "ruamel": "ruamel.yaml",
    "umap": "umap-learn",
}
_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_QUOTED = re.compile(r"""['"<]((?:[^'"<>\n]|(?<=\w)'(?=\w))+)['">]""")
_PATH = re.compile(
    r"(?<![\w.])(?:[a-z0-9]+:/)?(?:/[\w.@%+=-]+){2,}/?|(?<!\w)[\w-]+(?:/[\w.-]+)+|\b[\w-]+\.(?:\w{2,9})\b"
)
_LIKE_A_PATH = re.compile(r"/|\.\w{1,9}$")
_HOST = re.compile(r"(?:host=|://|to |for |resolve )['\"]?([\w-]+(?:\.[\w-]+)+(?::\d+)?)")
_BATCH = re.compile(r"(?i)((?:--)?(?:per[_-]device[_-])?(?:train[_-])?batch[_-]?size)[\"']?\s*[=: ]\s*(\d+)")
_WANTED = re.compile(
    r"[Tt]ried to allocate ([\d.]+ ?[KMGT]?i?B)|allocat\w* (?:tensor of )?([\d.]+ ?(?:[KMGT]?i?B|bytes))"
)
_NAME = re.compile(r"^'?([\w.\-]+)'?$")
_UNKNOWN = re.compile(r"unrecognized arguments?: (.+)|[Nn]o such option:? (\S+)|required: (.+)|argument (\S+?):")


def remedy(cause: Cause, text: str, lines: Sequence[Line] = ()) -> str:
    """`text`: the error. Empty: nothing is known better than the table of causes does."""
    match cause:
        case Cause.MISSING_MODULE:
            return _module(text)
        case Cause.MISSING_FILE:
            path = _path(text)
            return f"Check the path {path}: is it there on the run's host, and is it in the bundle?" if path else ""
        case Cause.NOT_ALLOWED:
            path = _path(text)
            return f"Give the run's user the right to {path}, or the run a token that has it." if path else ""
        case Cause.DISK_FULL:
            path = _path(text)
            return f"Make room where {path} is, then resume." if path else ""
        case Cause.NETWORK:
            host = _HOST.search(text)
            return f"Check that {host[1]} can be reached from the run's host, then retry." if host else ""
        case Cause.DEVICE_MEMORY | Cause.HOST_MEMORY:
            return _memory(cause, text, lines)
        case Cause.WRONG_CONFIG:
            return _config(text)
        case Cause.BAD_DATA:
            path = _path(text)
            return f"Repair or remove {path}, or let the program skip what it can't read." if path else ""
    return ""


def _module(text: str) -> str:
    found = _MODULE.search(text)
    if not found:
        return ""
    module = found[1]
    package = _PACKAGES.get(module) or _PACKAGES.get(module.split(".")[0]) or module.split(".")[0]
    return f"Install it in the run's environment (pip install {package}); if {module} is yours, put it in the bundle."


def _memory(cause: Cause, text: str, lines: Sequence[Line]) -> str:
    wanted = _WANTED.search(text)
    amount = f" It wanted another {wanted[1] or wanted[2]}." if wanted else ""
    for line in lines:
        seen = _BATCH.search(line.text)
        if seen and int(seen[2]) > 1:
            half = f"Use a smaller batch: it ran with {seen[1]} {seen[2]}, try {int(seen[2]) // 2}"
            rest = ", with gradient accumulation." if cause is Cause.DEVICE_MEMORY else ", or fewer loader workers."
            return half + rest + amount
    if not amount:
        return ""
    if cause is Cause.DEVICE_MEMORY:
        return "Use a smaller batch, gradient accumulation or checkpointed activations." + amount
    return "Use a smaller batch or fewer loader workers, or a host with more memory." + amount


def _config(text: str) -> str:
    unknown = _UNKNOWN.search(text)
    if unknown:
        return f"Correct the command's {next(part for part in unknown.groups() if part).strip()}, then run it again."
    kind, _, message = text.partition(": ")
    name = _NAME.match(message.strip())
    if kind.endswith("KeyError") and name:
        return f"Set {name[1]} in its configuration or environment, then run it again."
    return ""


def _path(text: str) -> str:
    """What is quoted and looks like a path, else what looks like one."""
    quoted: list[str] = [part for part in _QUOTED.findall(text) if len(part) > 3 and _LIKE_A_PATH.search(part)]
    if quoted:
        return quoted[-1]
    plain: list[str] = [part for part in _PATH.findall(text) if "/" in part]
    return plain[-1].rstrip(".,") if plain else ""
