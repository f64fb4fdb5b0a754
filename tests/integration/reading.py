"""A reader of runbooks: does what they say, letter for letter, and is content only when it sees what they show.

Its project is the clone, but that `inventories/prod.py` is the lab's and its group_data is its own. `ssh` and `kubectl` are the
operator's, set up for the lab.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration import warm
from tests.integration.operator import ROOT, environment, inventory_of_the_lab
from tests.lab import Lab
from tests.runbooks import Command, File, Runbook, Words, differs, parse

FOLDER = ROOT / "docs/runbooks"
# What a command may take at most: a roll-out over all nodes.
TIMEOUT = 1800


def encoded(path: Path) -> str:
    """A file as text, for a medium that takes only that."""
    return base64.b64encode(path.read_bytes()).decode()


def read(name: str) -> Runbook:
    return parse(name, (FOLDER / f"{name}.md").read_text())


@dataclass(frozen=True)
class Desk:
    """Where an operator sits: a project folder, and a PATH with the tools, of which pyinfra is asked of a file (`server`)."""

    lab: Lab
    project: Path
    tools: Path
    server: int

    @classmethod
    def made(cls, lab: Lab, folder: Path) -> Desk:
        project, tools = folder / "daytwo", folder / "bin"
        (project / "inventories").mkdir(parents=True)
        tools.mkdir()
        for name in ("deploys", "roles", "templates", "tests", "config.py", "pyproject.toml"):
            (project / name).symlink_to(ROOT / name)
        (project / "inventories/prod.py").write_text(inventory_of_the_lab())
        shutil.copytree(ROOT / "inventories/group_data", project / "inventories/group_data", ignore=shutil.ignore_patterns("__pycache__"))
        remote = 'words=; for word do words="$words $(printf %q "$word")"; done\n'
        admin = "kubectl --kubeconfig=/etc/kubernetes/admin.conf"
        plane = lab.control_planes[0]
        server, script = warm.command()
        ssh = f"#!/bin/bash\nexec {server}>&-\n"
        for name, text in {
            "pyinfra": script,
            "ssh": f'{ssh}exec /usr/bin/ssh -F {lab.ssh_config} -o LogLevel=ERROR "$@"\n',
            "scp": f'{ssh}exec /usr/bin/scp -q -F {lab.ssh_config} "$@"\n',
            "kubectl": f'{ssh}{remote}exec /usr/bin/ssh -F {lab.ssh_config} -o LogLevel=ERROR {plane} "{admin}$words"\n',
        }.items():
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        return cls(lab, project, tools, server)

    def environment(self) -> Mapping[str, str]:
        path = f"{self.tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**environment(), "PATH": path, "XDG_STATE_HOME": str(self.project.parent / "state")}

    def run(self, text: str) -> tuple[int, str]:
        """Exit status and output of a command, as a terminal would show it."""
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=self.project,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            check=False,
            pass_fds=(self.server,),
        )
        return done.returncode, done.stdout


@dataclass
class Reading:
    """One runbook, read section by section; `nodes` are the lab's nodes by the names that it has for them."""

    desk: Desk
    book: Runbook
    nodes: Mapping[str, str] = field(default_factory=dict)
    words: Words = field(default_factory=Words)
    done: list[str] = field(default_factory=list)

    def section(self, *names: str) -> None:
        """Do what these sections say, in their order."""
        for name in names:
            assert name not in self.done, f"{self.book.name}: {name!r} is read twice"
            self.done.append(name)
            for item in self.book.sections[name]:
                self._do(item)

    def all(self) -> None:
        """Do all that was not done yet."""
        self.section(*(name for name in self.book.sections if name not in self.done))

    def _do(self, item: Command | File) -> None:
        if isinstance(item, File):
            path = self.desk.project / item.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(item.text)
            return
        text = self.words.put_in(item.text)
        begun = time.monotonic()
        if item.node:
            told = self.desk.lab.run(self.nodes.get(item.node, item.node), f"exec 2>&1; {text}", check=False, timeout=TIMEOUT)
            status, output = told.returncode, told.stdout
        else:
            status, output = self.desk.run(text)
        where = f"docs/runbooks/{self.book.name}.md:{item.line}: {text}"
        print(f"{where} ({time.monotonic() - begun:.0f} s)\n{output}")
        why = differs(item.expected, output, self.words)
        if status != item.status:
            why = f"exit status {status}, and the runbook says {item.status}. {why}"
        assert not why, f"{where}\n{why}\nand what was printed is:\n{output}"
