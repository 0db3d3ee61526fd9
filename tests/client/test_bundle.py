"""A bundle holds the code that was submitted, the same bytes for the same files, and refuses what can't travel."""

import os
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest

from whistlestop.client.bundle import make_bundle
from whistlestop.client.git import Commit, commit_of
from whistlestop.domain.errors import BundleInvalid, TooLarge


@pytest.fixture
def code(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    files = {
        "train.py": "print(1)",
        "pkg/__init__.py": "",
        "pkg/__pycache__/x.pyc": "no",
        ".git/config": "no",
        ".venv/bin/python": "no",
        "my-env/pyvenv.cfg": "no",
        "node_modules/a.js": "no",
        "whistle-checkpoints/step-1/data": "no",
    }
    for name, text in files.items():
        write(root, name, text)
    return root


def write(root: Path, name: str, text: str = "x") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(root: Path) -> list[str]:
    with make_bundle(root) as bundle, tarfile.open(bundle.path) as tar:
        return [member.name for member in tar if not member.isdir()]


def test_what_is_never_code_stays_out(code: Path) -> None:
    assert names(code) == ["pkg/__init__.py", "train.py"]


def test_the_same_files_make_the_same_bundle_whatever_their_times(code: Path, tmp_path: Path) -> None:
    with make_bundle(code) as first:
        os.utime(code / "train.py", (1, 1))
        with make_bundle(code) as again:
            assert (first.hash, first.bytes, first.files) == (again.hash, again.bytes, 2)
            assert first.path.read_bytes() == again.path.read_bytes()
        (code / "train.py").chmod(0o755)
        with make_bundle(code) as changed:
            assert changed.hash != first.hash
    assert not first.path.exists()


def test_modes_links_and_empty_directories_are_kept(code: Path, tmp_path: Path) -> None:
    (code / "train.py").chmod(0o755)
    (code / "link.py").symlink_to("train.py")
    (code / "absolute").symlink_to(code / "pkg")
    (code / "empty").mkdir()
    with make_bundle(code) as bundle, tarfile.open(bundle.path) as tar:
        tar.extractall(tmp_path / "out", filter="data")
    out = tmp_path / "out"
    assert os.access(out / "train.py", os.X_OK)
    assert os.readlink(out / "link.py") == "train.py"
    assert os.readlink(out / "absolute") == "pkg"
    assert (out / "empty").is_dir()


def test_ignore_files_hold_at_every_level_and_whistleignore_has_the_last_word(code: Path) -> None:
    write(code, ".gitignore", "*.log\n/data/\n!keep.log\nsecret.txt\n")
    write(code, ".whistleignore", "docs/\n!secret.txt\n")
    write(code, "pkg/.gitignore", "!*.log\nlocal.py\n")
    for name in ("a.log", "keep.log", "data/x", "pkg/data/y", "secret.txt", "docs/a.md", "pkg/b.log", "pkg/local.py"):
        write(code, name)
    assert names(code) == [
        ".gitignore", ".whistleignore", "keep.log", "pkg/.gitignore", "pkg/__init__.py", "pkg/b.log",
        "pkg/data/y", "secret.txt", "train.py",
    ]  # fmt: skip


def test_a_part_of_a_repository_follows_the_rules_of_the_directories_above(code: Path) -> None:
    write(code, ".gitignore", "*.log\n/pkg/data/\n")
    write(code, "pkg/data/big")
    write(code, "pkg/a.log")
    assert names(code / "pkg") == ["__init__.py"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", "../pkg/../../outside", "../loop/../.."])
def test_a_link_that_leaves_the_directory_is_refused_by_name(code: Path, target: str) -> None:
    (code / "loop").symlink_to("pkg")
    (code / "pkg" / "sneaky").symlink_to(target)
    with pytest.raises(BundleInvalid, match="pkg/sneaky") as caught:
        make_bundle(code)
    assert "--in-place" in (caught.value.hint or "")


def test_a_link_that_leaves_may_be_ignored(code: Path) -> None:
    (code / "data").symlink_to("/etc")
    write(code, ".whistleignore", "data\n")
    assert "data" not in names(code)


def test_pipes_and_sockets_are_skipped_and_named(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(code / "pipe")
    monkeypatch.chdir(code)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with make_bundle(code) as bundle:
            assert bundle.skipped == ("pipe", "socket")


def test_files_that_cannot_be_read_are_named(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # By hand: these tests may run as root, who reads everything.
    monkeypatch.setattr("whistlestop.client.bundle.os.access", lambda path, mode: path.name != "train.py")
    with pytest.raises(BundleInvalid, match=r"train\.py"):
        make_bundle(code)


def test_too_much_names_the_largest_places_and_the_way_out(code: Path) -> None:
    write(code, "data/raw/images/a.bin", "x" * 9000)
    write(code, "model.pt", "x" * 3000)
    with pytest.raises(TooLarge) as caught:
        make_bundle(code, limit=10_000)
    assert "Largest: data/raw/images/a.bin (8.8 KiB), model.pt (2.9 KiB)" in caught.value.text
    assert ".whistleignore" in (caught.value.hint or "")
    assert "--in-place" in (caught.value.hint or "")


def test_too_many_files_are_refused_without_reading_them(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whistlestop.client.bundle.MAX_FILES", 5)
    for number in range(10):
        write(code, f"many/{number}")
    with pytest.raises(TooLarge, match="more than 5 files"):
        make_bundle(code)


def test_odd_names_travel(code: Path, tmp_path: Path) -> None:
    odd = [b"caf\xc3\xa9.py", b"bad-\xff.py", b"x" * 200 + b".py", b"new\nline.py"]
    for name in odd:
        Path(os.fsdecode(os.fsencode(code) + b"/" + name)).write_text("x")
    with make_bundle(code) as bundle, tarfile.open(bundle.path, errors="surrogateescape") as tar:
        tar.extractall(tmp_path / "out", filter="data")
    assert set(odd) <= {os.fsencode(name) for name in os.listdir(tmp_path / "out")}


def test_nothing_is_left_behind_when_it_fails(code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())

    def shrinks(found: object, limit: int) -> None:
        write(code, "train.py", "")

    monkeypatch.setattr("whistlestop.client.bundle._judge", shrinks)
    with pytest.raises(BundleInvalid, match="changed while"):
        make_bundle(code)
    assert set(tmp_path.iterdir()) == before


def test_a_file_is_not_a_directory(code: Path) -> None:
    with pytest.raises(BundleInvalid, match="is not a directory"):
        make_bundle(code / "train.py")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


def test_the_commit_and_whether_it_is_dirty_are_told(repository: Path) -> None:

    clean = commit_of(repository)
    assert clean.id
    assert len(clean.id) == 40
    assert clean.dirty is False
    write(repository, "new.py")
    assert commit_of(repository).dirty is True


def test_without_git_or_a_repository_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    assert commit_of(tmp_path) == Commit()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) == Commit()
