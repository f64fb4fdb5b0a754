"""The cgroup files of all processes of a node, however many a pod has."""

import re
import subprocess
from pathlib import Path

import pytest

TEMPLATES = Path(__file__).resolve().parents[3] / "templates"


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 3500])
def test_each_file_is_read_once_whatever_one_command_line_has_room_for(tmp_path: Path, count: int) -> None:
    for pid in range(1, count + 1):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/kubepods/{pid}\n")
    script = (TEMPLATES / "all_cgroups.sh.j2").read_text().replace("/proc/", f"{tmp_path}/")
    # The kernel allows a quarter of the stack for arguments, and 128 KiB at least.
    done = subprocess.run(
        ["sh", "-c", f"ulimit -s 512; {script}\nin_all_cgroups grep -h kubepods"], capture_output=True, text=True, check=False
    )
    assert sorted(done.stdout.split()) == sorted(f"0::/kubepods/{pid}" for pid in range(1, count + 1))


def test_no_command_gets_all_processes_at_once() -> None:
    for template in TEMPLATES.glob("*.j2"):
        for line in template.read_text().splitlines():
            if "/proc/[0-9]*" in line:
                assert re.search(r"for (directory|file) in /proc/\[0-9\]\*", line), f"{template.name}: {line.strip()}"
