"""Which files stay out of a bundle: .gitignore and .whistleignore at every level, and what is never code."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec

NEVER = frozenset({".git", "__pycache__", ".venv", "node_modules", "whistle-checkpoints"})
FILES = (".gitignore", ".whistleignore")  # the second one has the last word


@dataclass(frozen=True)
class _Rules:
    base: PurePosixPath  # the directory that holds them, seen from the bundle's root; may begin with ..
    spec: GitIgnoreSpec


@dataclass(frozen=True)
class Ignore:
    """The rules that hold in one directory, the outermost first."""

    rules: tuple[_Rules, ...] = ()

    def enter(self, directory: Path, relative: PurePosixPath) -> "Ignore":
        lines = [line for name in FILES for line in _lines(directory / name)]
        return Ignore((*self.rules, _Rules(relative, GitIgnoreSpec.from_lines(lines)))) if lines else self

    def hides(self, relative: PurePosixPath, *, is_directory: bool) -> bool:
        if relative.name in NEVER:
            return True
        for rules in reversed(self.rules):
            path = _inside(relative, rules.base) + ("/" if is_directory else "")
            verdict = rules.spec.check_file(path).include
            if verdict is not None:
                return verdict
        return False


def around(root: Path) -> Ignore:
    """The rules of the directories above, when `root` is a part of a repository."""
    above = _up_to_repository(root)
    ignore = Ignore()
    for count in range(len(above), 0, -1):
        directory = above[count - 1]
        base = PurePosixPath(*root.parts[len(directory.parts) :])
        ignore = _entered_from_above(ignore, directory, base)
    return ignore


def _entered_from_above(ignore: Ignore, directory: Path, below: PurePosixPath) -> Ignore:
    lines = [line for name in (".git/info/exclude", *FILES) for line in _lines(directory / name)]
    if not lines:
        return ignore
    # `base` is negative here: the bundle's root lies `below` the directory of the rules.
    return Ignore((*ignore.rules, _Rules(PurePosixPath("..") / below, GitIgnoreSpec.from_lines(lines))))


def _inside(relative: PurePosixPath, base: PurePosixPath) -> str:
    """`relative` as the rules at `base` see it."""
    if base.parts[:1] == ("..",):
        return str(PurePosixPath(*base.parts[1:]) / relative)
    return str(relative.relative_to(base))


def _up_to_repository(root: Path) -> list[Path]:
    """The directories above `root` up to the one that holds .git, the nearest first; none outside a repository."""
    if (root / ".git").exists():
        return []
    above: list[Path] = []
    for directory in root.parents:
        above.append(directory)
        if (directory / ".git").exists():
            return above
    return []


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
