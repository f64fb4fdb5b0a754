"""inventories/vagrant.py as pyinfra loads it, with a stand-in for the vagrant command."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from roles.engine.runs import Options

ROOT = Path(__file__).resolve().parents[3]
# Like Vagrant's own: comma separated, with lines that are no state, and one machine that does not run.
STAND_IN = r"""#!/bin/sh
[ "$VAGRANT_CWD" = "@FOLDER@" ] || { echo "wrong folder: $VAGRANT_CWD" >&2; exit 1; }
case $* in
"status --machine-readable")
    for name in cp1 w1; do printf '1,%s,metadata,provider,libvirt\n1,%s,provider-name,libvirt\n1,%s,state,running\n' $name $name $name; done
    printf '1,w2,state,poweroff\n1,,ui,info,Current machine states: (libvirt)\n' ;;
"ssh-config cp1") printf 'Host cp1\n  HostName 192.168.121.5\n  User vagrant\n  Port 22\n  IdentityFile /keys/own\n  LogLevel FATAL\n\n' ;;
"ssh-config w1") printf 'Host w1\n  HostName 127.0.0.1\n  User vagrant\n  Port 2200\n  IdentityFile /keys/own\n\n' ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with machines, as far as the inventory sees."""
    shutil.copytree(ROOT / "inventories", tmp_path / "inventories", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "tests/vagrant"
    (folder / ".vagrant").mkdir(parents=True)
    (folder / ".vagrant/daytwo.json").write_text(json.dumps({"version": "1.36.3", "patience": 8.0}))
    program = tmp_path / "bin/vagrant"
    program.parent.mkdir()
    program.write_text(STAND_IN.replace("@FOLDER@", str(folder)))
    program.chmod(0o755)
    return tmp_path


def listed(project: Path) -> subprocess.CompletedProcess[str]:
    """`pyinfra inventories/vagrant.py debug-inventory`, as its own process: it replaces what Python's threads are before all else."""
    environment = {**os.environ, "PATH": f"{project / 'bin'}:{os.environ['PATH']}", "VAGRANT_CWD": "/elsewhere", "PYINFRA_PROGRESS": "off"}
    pyinfra = Path(sys.executable).with_name("pyinfra")
    return subprocess.run(
        [pyinfra, "inventories/vagrant.py", "debug-inventory"],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_machines_that_run_are_in_their_groups_with_what_vagrant_tells(project: Path) -> None:
    done = listed(project)
    found = re.findall(r"^\[(\w+)\] *\n--> Groups: (\w+)[^\n]*\n--> Data:\n(\{.*?^\})", done.stdout + done.stderr, re.MULTILINE | re.DOTALL)
    assert [(name, group) for name, group, _ in found] == [("cp1", "control_plane"), ("w1", "workers")]
    data = json.loads(found[1][2])
    assert data["_sudo"] is True
    assert (data["ssh_hostname"], data["ssh_port"], data["ssh_user"], data["ssh_key"]) == ("127.0.0.1", 2200, "vagrant", "/keys/own")
    # Machines that were made anew have other keys at the same addresses.
    assert data["ssh_known_hosts_file"] == str(project / "tests/vagrant/.vagrant/known_hosts")
    # As patient as their processor needs it.
    assert Options(patience=data["patience"]).patience == 8
    assert data["ssh_paramiko_connect_kwargs"]["banner_timeout"] == 120


def test_without_machines_it_says_how_to_make_them(project: Path) -> None:
    (project / "tests/vagrant/.vagrant/daytwo.json").unlink()
    done = listed(project)
    assert done.returncode != 0
    assert "run `make vagrant-up` first" in done.stdout + done.stderr
