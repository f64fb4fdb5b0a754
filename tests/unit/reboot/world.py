"""Nodes that may be rebooted: what is known of one, and one whose files a shell reads."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from roles.engine.outage.mark import OUTAGE
from roles.reboot import BootFacts, Candidate, RebootPlan, plan_node
from roles.reboot.facts import Boot, BootUnit

OLD, NEW = "00000000-53a4-4b4b-9f4f-0123456789ab", "11111111-53a4-4b4b-9f4f-0123456789ab"
RUN = "r20260101-000000-aaaa"
K18, K20 = "6.1.0-18-amd64", "6.1.0-20-amd64"
ASKS = {"reboot-required": True}
AT_BOOT = {
    name: BootUnit(name, "loaded", "enabled", "active", ("multi-user.target",))
    for name in ("kubelet.service", "containerd.service", "ssh.service")
}


def node_object(name: str, mark: str | None = None) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"u-{name}", "annotations": {OUTAGE: mark} if mark else {}}}


def candidate(host: str = "w1", mark: str | None = None, control_plane: bool = False, **changed: Any) -> Candidate:
    facts = BootFacts(host, Boot(OLD, 500, 1000, K18), "debian", {K18: True}, units=AT_BOOT, fstab=(), state="running")
    return Candidate(host, node_object(host, mark), "kubelet.service", replace(facts, **changed), control_plane)


def plan(one: Candidate, *, unneeded: bool = False, allow_unproven: bool = False) -> RebootPlan:
    return plan_node(one, unneeded=unneeded, allow_unproven=allow_unproven)


SYSTEMCTL = """#!/bin/sh
case "$*" in
is-system-running) echo running ;;
*--value*) echo success ;;
*) cat "$UNITS" ;;
esac
"""
UNITS = """Id=kubelet.service
Names=kubelet.service
WantedBy=multi-user.target
RequiredBy=
TriggeredBy=
LoadState=loaded
ActiveState=active
UnitFileState=enabled

Id=ssh.service
Names=ssh.service sshd.service
LoadState=loaded
ActiveState=active
UnitFileState=disabled
TriggeredBy=ssh.socket

Id=crio.service
Names=crio.service
LoadState=not-found
ActiveState=inactive
UnitFileState=
"""
FINDMNT = """#!/bin/sh
printf '%s\\n' / '   [W] non-canonical source path' /srv/data '   [E] unreachable on boot required source: UUID=1' '' '0 parse errors, 1 error, 1 warning'
exit 1
"""


class Node:
    """A node's files in a folder; `run` runs a script that sees them in the place of the node's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("bin", "boot", "run/systemd/shutdown", "run/systemd/inhibit", "lib/modules", "etc"):
            (root / name).mkdir(parents=True)
        self.write("units", UNITS)
        self.write("etc/os-release", 'PRETTY_NAME="x"\nID=debian\n')
        for name, text in (
            ("systemctl", SYSTEMCTL),
            ("findmnt", FINDMNT),
            ("journalctl", "#!/bin/sh\n"),
            ("systemd-analyze", "#!/bin/sh\n"),
        ):
            self.write(f"bin/{name}", text.replace("$UNITS", str(root / "units")))
            (root / "bin" / name).chmod(0o755)

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def run(self, script: str) -> list[str]:
        for path in (
            "/boot/",
            "/lib/modules/",
            "/run/",
            "/usr/lib/sysctl.d/",
            "/etc/sysctl.d/",
            "/etc/modules-load.d/",
            "/etc/fstab",
            "/etc/selinux/",
            "/etc/os-release",
            "/etc/kernel/",
            "/usr/share/update-notifier/",
        ):
            script = script.replace(path, f"{self.root}{path}")
        script = script.replace("PATH=/usr/local/sbin", f"PATH={self.root}/bin:/usr/local/sbin")
        done = subprocess.run(["sh", "-s"], input=script, text=True, capture_output=True, check=True)
        assert not done.stderr
        return done.stdout.splitlines()


PAGE = (Path(__file__).resolve().parents[3] / "docs/disruption.md").read_text()
