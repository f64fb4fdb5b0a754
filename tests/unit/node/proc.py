"""A /proc in a folder, so that a look meets any process there may be; and what systemd and the kubelet say of them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from roles.engine.node import Observation
from roles.engine.node.look import rendered
from tests.unit.node.node import parse

HOST_MOUNTS = "mnt:[4026531841]"
STATIC = "0123456789abcdef0123456789abcdef"
DASHED = "01234567-89ab-cdef-0123-456789abcdef"


class Proc:
    """Processes, main processes of units, and directories of pods; `rendered` scripts see them in the place of the node's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("proc/sys/kernel/random", "bin", "units", "pods", "files"):
            (root / name).mkdir(parents=True)
        (root / "proc/sys/kernel/hostname").write_text("node\n")
        (root / "proc/sys/kernel/random/boot_id").write_text("b00t\n")
        (root / "proc/uptime").write_text("1000.5 1\n")
        systemctl = root / "bin/systemctl"
        systemctl.write_text(
            '#!/bin/sh\nfor unit; do :; done\ncase "$* " in\n'
            f'*"MainPID --value "*) cat "{root}/units/$unit" 2>/dev/null || echo 0 ;;\n'
            f'*MainPID*) echo "MainPID=$(cat "{root}/units/$2" 2>/dev/null)" ;;\nesac\n'
        )
        systemctl.chmod(0o755)
        self.add(1, "systemd", cgroup="/init.scope")

    def add(
        self,
        pid: int,
        name: str,
        *,
        cgroup: str = "/user.slice",
        uid: int = 0,
        mounts: str = HOST_MOUNTS,
        mode: int = 0o755,
        owner: int = 0,
        more_cgroups: tuple[str, ...] = (),
        unit: str = "",
        argv: tuple[str, ...] = (),
        program: Path | None = None,
    ) -> None:
        """`cgroup` is its path in the one hierarchy of cgroup v2, `more_cgroups` are whole lines of others; `unit` has it as main process.
        `program` is a file of this machine that it runs from."""
        folder = self.root / f"proc/{pid}"
        (folder / "ns").mkdir(parents=True)
        (folder / "comm").write_text(f"{name}\n")
        (folder / "stat").write_text(f"{pid} ({name}) S " + " ".join(["0"] * 18) + f" {pid}00 0\n")
        (folder / "status").write_text(f"Name:\t{name}\nUmask:\t0022\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t0\t0\t0\t0\n")
        (folder / "cgroup").write_text("".join(f"{line}\n" for line in (*more_cgroups, f"0::{cgroup}")))
        (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv or (name,)))
        (folder / "ns/mnt").symlink_to(mounts)
        if program is None:
            program = self.root / f"files/{pid}"
            program.write_bytes(b"\x7fELF")
            program.chmod(mode)
            os.chown(program, owner, owner)
        (folder / "exe").symlink_to(program)
        if unit:
            (self.root / "units" / unit).write_text(f"{pid}\n")

    def pod(self, name: str, uid: str) -> None:
        """The kubelet's directory of a pod, NAMESPACE_NAME."""
        (self.root / "pods" / f"{name}_{uid}").mkdir()

    def here(self, script: str) -> str:
        """The script, with this folder's processes in the place of the machine's."""
        script = re.sub(r"(?<![\w/])/proc/(?!self/)", f"{self.root}/proc/", script)
        script = script.replace("/var/log/pods", f"{self.root}/pods").replace("/var/lib/daytwo", f"{self.root}/daytwo")
        return script.replace("PATH=/usr/local/sbin", f"PATH={self.root}/bin:/usr/local/sbin")

    def run(self, script: str) -> str:
        done = subprocess.run(["sh", "-s"], input=self.here(script), text=True, capture_output=True, check=True)
        assert done.stderr == ""
        return done.stdout

    def look(self) -> Observation:
        return parse("n1", self.run(rendered()).splitlines())
