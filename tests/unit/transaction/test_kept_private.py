"""What is kept on the operator's machine is for its user alone, and has no content of a file and no secret of the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from roles.engine.files import create_private, state_folder
from roles.engine.transaction import new_run_id, record, this_run
from roles.engine.transaction.mask import mask_command
from roles.engine.transaction.record import RunRecord

TOKEN = "31ada4fd-adec-460c-809a-9e56ceb75269"
LINES = f"a\n{TOKEN}"
PATH = "/etc/kubernetes/daytwo/tokens.csv"


@pytest.mark.parametrize(
    "word",
    [
        f"control_plane_files={json.dumps({PATH: {'content': f'{TOKEN},admin,1,system:masters'}})}",
        f"--data=control_plane_files={json.dumps({PATH: {'content': TOKEN, 'mode': '0600'}})}",
        f"control_plane_files={{{PATH}: {{content: '{TOKEN}'}}}}",
        f"some_files={json.dumps([{'text': LINES}])}",
        f"some_key=first line\n{TOKEN}",
    ],
)
def test_contents_of_files_are_not_recorded(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["pyinfra", "inv.py", "deploys/control_plane_flags.py", "--data", word, "-y"])
    record = RunRecord(this_run(new_run_id(), {}))
    record.write({"event": "begin"})
    assert TOKEN not in record.path.read_text() and TOKEN not in " ".join(this_run("r1", {}).holder.lines)
    assert (PATH in record.path.read_text()) == (word.startswith(('control_plane_files={"', "--data")))


def test_other_data_is_recorded_as_it_is() -> None:
    words = ['feature_gates={"A": true,  "B": false}', "only=w1,w2", 'eviction_hard={"memory.available": "500Mi"}', "x=[1,2]", "x={a: b}"]
    assert mask_command(words) == words


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_only_the_user_may_read_it_whatever_the_umask(mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    old = os.umask(mask)
    try:
        (tmp_path / "daytwo").mkdir(mode=0o777)
        RunRecord(this_run(new_run_id(), {})).write({"event": "x"})
        create_private(state_folder("use", "cluster"))
    finally:
        os.umask(old)
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert len(modes) == 5 and all(mode in (0o700, 0o600) for mode in modes.values()), modes


def test_the_records_of_runs_on_the_operators_machine_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(record, "MOST_RUNS", 3)
    made = [RunRecord(this_run(f"r2026010{number}-000000-aaaa", {})) for number in range(5)]
    for number, one in enumerate(made):
        one.write({"event": "begin"})
        os.utime(one.path, (number, number))
    assert [one.path.exists() for one in made] == [False, False, True, True, True]
    assert len(made[-1].path.read_text().splitlines()) == 2
