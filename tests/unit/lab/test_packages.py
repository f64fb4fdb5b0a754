"""Packages of the machine: several labs are made at once, and apt takes one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.lab import tools
from tests.lab.tools import LabError

ROOT = Path(__file__).resolve().parents[3]

# It refuses whoever comes while another one is at work, as apt does, and makes a program of each package.
APT_GET = """#!/bin/sh
here=${0%/*}
echo "$*" >>"$here/asked"
if [ -e "$here/broken" ]; then echo 'E: Unable to locate package' >&2; exit 100; fi
if ! mkdir "$here/held" 2>/dev/null; then
    : >"$here/refused"
    echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)" >&2
    exit 100
fi
sleep 0.2
for word in "$@"; do case $word in tool-*) printf '#!/bin/sh\\n' >"$here/$word" && chmod 755 "$here/$word" ;; esac; done
rmdir "$here/held"
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Its programs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "apt-get").write_text(APT_GET)
    (programs / "apt-get").chmod(0o755)
    monkeypatch.setattr(tools, "STATE", tmp_path / "state")
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return programs


def test_several_labs_at_once(machine: Path) -> None:
    """Each is a process of its own."""
    code = "from tests.lab import tools; tools.need_packages({'tool-a': 'tool-a', 'tool-b': 'tool-b'})"
    environment = {**os.environ, "DAYTWO_LAB_DIR": str(machine.parent / "state")}
    labs = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment) for _ in range(4)]
    assert [lab.wait(timeout=60) for lab in labs] == [0] * 4
    assert (machine / "asked").read_text().splitlines() == ["update -qq", "install -y -qq --no-install-recommends tool-a tool-b"]


def test_somebody_else_s_apt_is_waited_for(machine: Path) -> None:
    (machine / "held").mkdir()

    def end() -> None:
        tools.wait_until("apt to be refused", (machine / "refused").exists, 60)
        (machine / "held").rmdir()

    other = threading.Thread(target=end, daemon=True)
    other.start()
    tools.need_packages({"tool-a": "tool-a"})
    other.join(timeout=60)
    assert (machine / "tool-a").exists()


def test_but_not_for_ever(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "APT_SECONDS", -1)
    (machine / "held").mkdir()
    with pytest.raises(LabError, match="Could not get lock"):
        tools.need_packages({"tool-a": "tool-a"})


def test_what_apt_refuses_is_said_at_once(machine: Path) -> None:
    (machine / "broken").touch()
    with pytest.raises(LabError, match="Unable to locate package"):
        tools.need_packages({"tool-a": "tool-a"})
    assert (machine / "asked").read_text().splitlines() == ["update -qq"]
