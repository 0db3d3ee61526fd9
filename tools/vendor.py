"""Fetches the dashboard's libraries: exact versions, known hashes. `--check` only compares files and record.

Nobody needs this to run or to change Whistlestop, only to take a newer library: change PACKAGES, run it, commit.
"""

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

VENDOR = Path(__file__).parent.parent / "src/whistlestop/server/web/static/vendor"
RECORD = VENDOR / "VENDORED.toml"


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    licence: str
    sha256: str  # of the tarball: the registry's answer has to be this one
    files: dict[str, str]  # path in the tarball -> name here


PACKAGES = (
    Package(
        "preact",
        "11.2.0",
        "MIT",
        "3c4456766bd32b6b534d52bf4e9c2a29b33e7eedf6e96ed479300ba1a7888ebf",
        {
            "dist/preact.mjs": "preact.js",
            "hooks/dist/hooks.mjs": "preact-hooks.js",
            "LICENSE": "preact.LICENSE",
        },
    ),
    Package(
        "htm",
        "3.1.1",
        "Apache-2.0",
        "2425b9bee11409177bcabc7f32e319926fc6690c1701c0b257c88bdff2d5ba90",
        {"dist/htm.mjs": "htm.js", "LICENSE": "htm.LICENSE"},
    ),
    Package(
        "uplot",
        "1.6.32",
        "MIT",
        "4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d",
        {"dist/uPlot.esm.js": "uplot.js", "dist/uPlot.min.css": "uplot.css", "LICENSE": "uplot.LICENSE"},
    ),
)
# A browser resolves no bare names without an import map, and an import map is an inline script.
NEIGHBOURS = {"preact": "./preact.js"}


def fetch() -> None:
    VENDOR.mkdir(parents=True, exist_ok=True)
    lines = ["# Written by tools/vendor.py; a test compares the hashes with the files."]
    for package in PACKAGES:
        found = _unpack(package)
        lines += ["", "[[package]]", f'name = "{package.name}"', f'version = "{package.version}"']
        lines += [f'licence = "{package.licence}"', f'tarball_sha256 = "{package.sha256}"', "[package.files]"]
        for name, content in found.items():
            (VENDOR / name).write_bytes(content)
            lines.append(f'"{name}" = "{hashlib.sha256(content).hexdigest()}"')
    RECORD.write_text("\n".join(lines) + "\n")


def differences() -> list[str]:
    """Files that are not what the record says, and files it does not know."""
    recorded: dict[str, str] = {}
    for package in tomllib.loads(RECORD.read_text())["package"]:
        recorded |= package["files"]
    there = {path.name: path for path in VENDOR.iterdir() if path != RECORD}
    wrong = [
        name
        for name, digest in recorded.items()
        if name not in there or hashlib.sha256(there[name].read_bytes()).hexdigest() != digest
    ]
    return sorted({*wrong, *(there.keys() - recorded.keys())})


def _unpack(package: Package) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(
            ["npm", "pack", "--silent", f"{package.name}@{package.version}"], cwd=directory, check=True, text=True
        )
        (tarball,) = Path(directory).glob("*.tgz")
        digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
        if digest != package.sha256:
            sys.exit(
                f"{package.name}@{package.version} has the hash {digest}, not {package.sha256}: nothing was written"
            )
        with tarfile.open(tarball) as archive:
            found = {}
            for path, name in package.files.items():
                member = archive.extractfile(f"package/{path}")
                assert member is not None
                found[name] = _adapted(name, member.read())
            return found


def _adapted(name: str, content: bytes) -> bytes:
    if not name.endswith(".js"):
        return content
    text = content.decode()
    text = re.sub(r"\n?//# sourceMappingURL=\S+\s*$", "\n", text)  # the maps are not shipped
    for bare, path in NEIGHBOURS.items():
        text = re.sub(rf'(from\s*)"{bare}"', rf'\1"{path}"', text)
    return text.encode()


if __name__ == "__main__":
    if "--check" in sys.argv:
        wrong = differences()
        sys.exit(f"not as recorded: {', '.join(wrong)}" if wrong else 0)
    fetch()
