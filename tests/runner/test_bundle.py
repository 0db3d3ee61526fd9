"""Laying out code: hostile tars write nothing outside, and the program's own files stay."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from whistlestop.runner.bundle import BundleRefused, lay_out


def tar_of(path: Path, *members: tarfile.TarInfo, **files: str) -> Path:
    bundle = path / "bundle.tar"
    with tarfile.open(bundle, "w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_py", ".py"))
            info.size, info.mtime = len(text), 1_700_000_000
            tar.addfile(info, io.BytesIO(text.encode()))
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return bundle


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, 1 if kind == tarfile.REGTYPE else 0
    return info


HOSTILE = [
    member("../out"),
    member("a/../../out"),
    member("/out"),
    member("link", tarfile.SYMTYPE, "/etc"),
    member("link", tarfile.SYMTYPE, "../.."),
    member("a/link", tarfile.SYMTYPE, "../../out"),
    member("hard", tarfile.LNKTYPE, "/etc/passwd"),
    member("null", tarfile.CHRTYPE),
    member("disk", tarfile.BLKTYPE),
    member("pipe", tarfile.FIFOTYPE),
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda info: f"{info.name}->{info.linkname}")
def test_a_hostile_member_is_refused_before_anything_is_written(tmp_path: Path, hostile: tarfile.TarInfo) -> None:
    work = tmp_path / "deep" / "work"
    with pytest.raises(BundleRefused):
        lay_out(tar_of(tmp_path, hostile, good_py="pass"), work)
    assert list(work.iterdir()) == []
    assert sorted(os.listdir(tmp_path)) == ["bundle.tar", "deep"]


def test_a_link_that_the_program_left_does_not_lead_our_writing_outside(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    outside.mkdir()
    (work / "pkg").symlink_to(outside)
    with pytest.raises(BundleRefused):
        lay_out(tar_of(tmp_path, pkg__main_py="pass"), work)
    assert list(outside.iterdir()) == []


def test_a_link_in_place_of_a_file_is_replaced_not_followed(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "precious"
    work.mkdir()
    outside.write_text("precious")
    (work / "main.py").symlink_to(outside)
    lay_out(tar_of(tmp_path, main_py="pass"), work)
    assert outside.read_text() == "precious"
    assert (work / "main.py").read_text() == "pass"


def test_the_bundle_wins_over_changed_code_and_outputs_stay(tmp_path: Path) -> None:
    work = tmp_path / "work"
    bundle = tar_of(tmp_path, member("here", tarfile.SYMTYPE, "pkg/main.py"), pkg__main_py="original")
    assert lay_out(bundle, work) == 2
    (work / "output.bin").write_text("made by the program")
    (work / "pkg/main.py").write_text("changed by the program")
    lay_out(bundle, work)
    assert (work / "here").read_text() == "original"
    assert (work / "output.bin").read_text() == "made by the program"


def test_what_is_identical_is_not_written_again(tmp_path: Path) -> None:
    work = tmp_path / "work"
    bundle = tar_of(tmp_path, main_py="pass")
    lay_out(bundle, work)
    inode = (work / "main.py").stat().st_ino
    assert lay_out(bundle, work) == 0
    assert (work / "main.py").stat().st_ino == inode


def test_a_broken_bundle_is_refused_with_words(tmp_path: Path) -> None:
    (tmp_path / "bundle.tar").write_bytes(b"this is no tar" * 100)
    with pytest.raises(BundleRefused, match="can't be read"):
        lay_out(tmp_path / "bundle.tar", tmp_path / "work")
