"""The number of a run, as the node with the cluster's lock gives it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from roles.engine.runs.lock import RunNumber, number_script, parse_number


def give(home: Path) -> RunNumber:
    done = subprocess.run(["sh", "-c", number_script(str(home))], text=True, capture_output=True, check=True)
    found = parse_number(done.stdout.splitlines())
    assert found is not None and not done.stderr
    return found


def test_each_run_gets_the_next_one(tmp_path: Path) -> None:
    home = tmp_path / "daytwo"
    first, second = give(home), give(home)
    assert (first.number, second.number) == (1, 2) and first.count == second.count
    assert home.stat().st_mode & 0o777 == 0o700 and (home / "runs").stat().st_mode & 0o777 == 0o600


def test_two_at_the_same_moment_get_two_numbers(tmp_path: Path) -> None:
    running = [subprocess.Popen(["sh", "-c", number_script(str(tmp_path))], stdout=subprocess.PIPE, text=True) for _ in range(8)]
    found = [parse_number(one.communicate(timeout=600)[0].splitlines()) for one in running]
    assert sorted(one.number for one in found if one is not None) == list(range(1, 9))


def test_a_new_count_has_another_name(tmp_path: Path) -> None:
    first = give(tmp_path)
    (tmp_path / "runs").unlink()
    again = give(tmp_path)
    assert again.number == 1 and again.count != first.count


@pytest.mark.parametrize("left", ["", "x", "a b", "6dc0be2b-6b01-44f8-9d9a-6c3a5a3b54f2 -3", "; rm -rf / 5x"])
def test_a_count_that_cannot_be_read_starts_again(tmp_path: Path, left: str) -> None:
    (tmp_path / "runs").write_text(left + "\n")
    assert give(tmp_path).number == 1


def test_no_room_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "runs.new").mkdir()
    done = subprocess.run(["sh", "-c", number_script(str(tmp_path))], text=True, capture_output=True, check=False)
    assert done.returncode != 0 and parse_number(done.stdout.splitlines()) is None


@pytest.mark.parametrize("line", ["number x 1", "number 6dc0be2b-6b01-44f8-9d9a-6c3a5a3b54f2 1x", "", "6dc0be2b 1"])
def test_what_is_no_number(line: str) -> None:
    assert parse_number([line]) is None
