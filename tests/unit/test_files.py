"""Files on the operator's own machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roles.files import write_whole


def test_a_file_is_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_whole(path, "one")
    assert path.stat().st_mode & 0o777 == 0o666 & ~_mask()
    path.chmod(0o640)
    write_whole(path, "two")
    assert path.read_text() == "two" and path.stat().st_mode & 0o777 == 0o640, "it keeps its mode"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_what_somebody_put_under_a_guessed_name_is_not_followed(tmp_path: Path) -> None:
    """In a folder that others can write to, such as /tmp."""
    path, theirs = tmp_path / "report.html", tmp_path / "theirs"
    theirs.write_text("theirs")
    for name in (f".report.html.{os.getpid()}", ".report.html", f"report.html.{os.getpid()}"):
        (tmp_path / name).symlink_to(theirs)
    write_whole(path, "mine")
    assert path.read_text() == "mine" and theirs.read_text() == "theirs"


def test_a_file_that_cannot_be_put_in_place_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/x").touch()
    with pytest.raises(OSError):
        write_whole(tmp_path / "folder", "text")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
