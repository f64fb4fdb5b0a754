"""The README's quickstart, done as somebody new does it: from a clean clone, as a user with a sudo password, through a jump host.

The one thing not done anew is the virtual environment, which comes from a package registry: the clone is lent this one's.
"""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import operator
from tests.integration.operator import ROOT, pyinfra
from tests.lab import Lab
from tests.runbooks import Command, File, Words, differs, parse

pytestmark = pytest.mark.lab

HEADING = "## Your own cluster"
PASSWORD = b"ops\n"
TIMEOUT = 900


# Of one lab and one run: versions, numbers, times, positions in a diff, names of runs and users.
OWN = re.compile(r"v1\.\d+\.\d+|(?<=\s)\(?\d+[smhd]?\b|r\d{8}-\d{6}-[0-9a-f]{4}|@@ .* @@|\S+@\S+(?=:$)", re.MULTILINE)


def quickstart(text: str) -> str:
    """That section of the README, as a runbook; what is of the lab that printed its samples may be anything."""
    section = text.partition(f"\n{HEADING}\n")[2].partition("\n## ")[0]
    assert section, f"README.md has no section {HEADING}"
    samples = re.sub(r"(?ms)(?<=^```console\n).*?(?=^```$)", lambda block: OWN.sub("...", block[0]), section)
    return f"# Quickstart\n{HEADING}\n{samples}\n"


def ssh_config(text: str, lab: Lab) -> str:
    """The README's example of an ssh configuration, with the lab's addresses and key; w2 is the bastion."""
    example = re.search(r"(?m)^    Host bastion\n(?:    .*\n)+", text)
    assert example, "README.md has no example with a bastion"
    made = re.sub(r"(?m)^    ", "", example.group(0)).replace("bastion.example.net", lab.address("w2"))
    identity, known = (re.findall(rf"{key} (\S+)", lab.ssh_config.read_text())[0] for key in ("IdentityFile", "UserKnownHostsFile"))
    addresses = "".join(f"Host {name}\n    HostName {lab.address(name)}\n" for name in lab.nodes)
    return f"{made}{addresses}Host *\n    IdentityFile {identity}\n    UserKnownHostsFile {known}\n    StrictHostKeyChecking yes\n"


@pytest.fixture
def clone(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """A clone of what is committed, and with it what is not yet: a test in a working copy tests that copy."""
    folder = tmp_path / "daytwo"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(folder)], check=True)
    told = subprocess.run(["git", "ls-files", "-z", "-m"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, told.split("\0")):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    home = tmp_path / "home/.ssh"
    home.mkdir(parents=True, mode=0o700)
    (home / "config").write_text(ssh_config((folder / "README.md").read_text(), lab))
    before = operator.files(lab, "w1")
    yield folder
    pyinfra("uninstall", "-y").ended(0)
    assert operator.files(lab, "w1") == before


def on_a_terminal(folder: Path, command: str) -> tuple[int, str, int]:
    """Exit status, output, and how often a password was asked for and given."""
    environment = {
        # Records lie where a new user's do. Which lab is meant need not be said: the addresses are in ~/.ssh/config.
        **{key: value for key, value in os.environ.items() if key not in ("SSH_AUTH_SOCK", "DAYTWO_LAB", "XDG_STATE_HOME")},
        "HOME": str(folder.parent / "home"),
        "PATH": f"{folder}/.venv/bin:{os.environ['PATH']}",
        "PYINFRA_PROGRESS": "off",
        "TERM": "dumb",
        # As wide as the samples of the README.
        "COLUMNS": "100",
    }
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execvpe("bash", ["bash", "-c", command], environment)
    output, asked, end = b"", 0, time.monotonic() + TIMEOUT
    try:
        while True:
            if not select.select([terminal], [], [], max(0.0, end - time.monotonic()))[0]:
                os.kill(child, signal.SIGKILL)
                raise AssertionError(f"not over after {TIMEOUT} s: {command}\n{output.decode(errors='replace')}")
            try:
                got = os.read(terminal, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not got:
                break
            output += got
            if output.count(b"sudo password: ") > asked:
                asked += 1
                os.write(terminal, PASSWORD)
    finally:
        status = os.waitpid(child, 0)[1]
    text = output.decode("utf-8", "replace").replace("\r\n", "\n")
    return os.waitstatus_to_exitcode(status), text, asked


def test_from_a_clone_to_a_proven_change_and_back(lab: Lab, clone: Path) -> None:
    text = (clone / "README.md").read_text()
    words, cursor, commands = Words(), operator.journal_cursor(lab, "cp1"), 0
    for item in parse("README", quickstart(text)).items:
        if isinstance(item, File):
            (clone / item.path).write_text(item.text)
            continue
        assert isinstance(item, Command)
        status, output, asked = on_a_terminal(clone, words.put_in(item.text))
        print(f"{item.text}: exit status {status}, {asked} password asked for")
        why = differs(item.expected, output, words)
        assert status == item.status and not why, f"README.md: {item.text}\n{why}\nand what was printed is:\n{output}"
        assert asked == 1, "the password is to be asked for, once"
        assert PASSWORD.decode().strip() not in re.findall(r"password: (.*)", output), "the password was shown"
        commands += 1
    assert commands >= 4
    logins = lab.run("cp1", f"journalctl -t sshd -t sshd-session --after-cursor '{cursor}' --output cat --no-pager | grep Accepted").stdout
    came = set(re.findall(r"Accepted publickey for (\S+) from (\S+)", logins)) - {("root", lab.address("cp1"))}
    assert ("ops", lab.address("w2")) in came, f"not through the jump host: {logins}"
    assert {user for user, address in came if address == lab.address("w2")} == {"ops"}
