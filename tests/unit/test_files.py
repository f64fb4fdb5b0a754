"""Reports are written whole or not at all, and through nothing that somebody else has laid there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from roles.engine.files import keep_newest, write_whole


def test_a_file_is_there_whole_with_the_mode_of_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "audit.html"
    before = os.umask(0o027)
    try:
        write_whole(path, "first\n")
        write_whole(path, "grüße\n")
    finally:
        os.umask(before)
    assert path.read_text("utf-8") == "grüße\n" and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["audit.html"]


def test_what_somebody_laid_there_is_not_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    monkeypatch.setattr("secrets.token_hex", lambda size: "foreseen")
    for name in (".audit.html.foreseen", f".audit.html.{os.getpid()}"):
        (tmp_path / name).symlink_to(theirs)
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "audit.html", "ours")
    assert theirs.read_text() == "theirs" and not (tmp_path / "audit.html").exists()
    assert (tmp_path / ".audit.html.foreseen").is_symlink(), "it is not ours to delete"


def test_names_cannot_be_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_file = os.open
    monkeypatch.setattr(os, "open", lambda path, *more: opened.append(str(path)) or open_file(path, *more))
    for _ in range(2):
        write_whole(tmp_path / "a", "x")
    unfinished = [path for path in opened if path != str(tmp_path)]
    assert len(set(unfinished)) == 2


def test_data_and_folder_are_synced_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    replace = Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"))
    monkeypatch.setattr(Path, "replace", lambda self, to: done.append("rename") or replace(self, to))
    write_whole(tmp_path / "a", "x")
    assert done == ["file", "rename", "folder"]


def test_nothing_is_left_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path / "a", "x")
    assert os.listdir(tmp_path) == ["a"]
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "b", "\udc80")
    assert os.listdir(tmp_path) == ["a"]


def test_of_many_files_the_newest_stay(tmp_path: Path) -> None:
    for number in range(9):
        path = tmp_path / f"r{number}.jsonl"
        path.touch()
        os.utime(path, (number, number))
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "nothing")
    (tmp_path / "other.txt").touch()
    keep_newest(tmp_path, "*.jsonl", 3)
    keep_newest(tmp_path, "*.jsonl", 3)
    keep_newest(tmp_path / "none", "*", 3)
    assert sorted(os.listdir(tmp_path)) == ["dangling.jsonl", "other.txt", "r6.jsonl", "r7.jsonl", "r8.jsonl"]
