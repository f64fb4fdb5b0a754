"""A tree like /proc, with the node's own processes and others, and the real scripts run on it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roles.observe import Observation, parse
from roles.scripts import templates
from tests.unit.observe import node

STATIC = "0123456789abcdef0123456789abcdef"
OTHER_STATIC = "f" * 32
POD = "11111111-2222-3333-4444-555555555555"
# As systemd and the kubelet's two drivers name them.
SERVICE = "0::/system.slice/kubelet.service"
STATIC_POD = f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice/cri-containerd-{'a' * 64}.scope"
ORDINARY_POD = (
    f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{POD.replace('-', '_')}.slice/cri-containerd-{'b' * 64}.scope"
)
# pytest's own folders belong to who runs it.
AS_ROOT = "" if os.getuid() == 0 else f"stat() {{ command stat \"$@\" | sed 's/^{os.getuid()} /0 /'; }}\n"


@dataclass
class Fake:
    """One machine. `programs` that are run leave a trace each."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("proc/1/ns", "bin", "pods", "manifests", "traces"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "proc/1/ns/mnt").symlink_to("mnt:[1]")
        self.config = self.folder / "config.yaml"
        self.config.write_bytes(
            node.CONFIG.replace(b"/etc/kubernetes/manifests", str(self.folder / "manifests").encode())
            + f"podLogsDir: {self.folder / 'pods'}\n".encode()
        )
        self.units = {"kubelet.service": 100}

    @property
    def proc(self) -> str:
        return str(self.folder / "proc")

    def program(self, name: str, says: str = "Kubernetes v1.36.3") -> Path:
        """A program that leaves a trace when it runs: its arguments."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "$@" >>"{self.folder}/traces/{name}"\necho {says}\n')
        path.chmod(0o755)
        return path

    @property
    def ran(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in (self.folder / "traces").iterdir()}

    def process(
        self,
        pid: int,
        name: str,
        cgroup: str,
        *,
        uid: int = 0,
        exe: Path | None = None,
        mounts: str = "mnt:[1]",
        argv: Sequence[str] = (),
        start: int = 5000,
    ) -> None:
        place = self.folder / "proc" / str(pid)
        (place / "ns").mkdir(parents=True)
        (place / "comm").write_bytes(name.encode()[:15] + b"\n")
        (place / "stat").write_text(f"{pid} ({name[:15]}) S {' '.join(str(number) for number in range(1, 19))} {start} 7 8\n")
        (place / "status").write_text(f"Name:\t{name[:15]}\nUmask:\t0022\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t0\t0\t0\t0\n")
        (place / "cgroup").write_text(f"{cgroup}\n")
        program = exe or self.program(name)
        (place / "exe").symlink_to(program)
        (place / "ns/mnt").symlink_to(mounts)
        (place / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in (argv or (str(program),))))

    def kubelet(self, **changes: object) -> None:
        """The node's own."""
        given = {"cgroup": SERVICE, "argv": (str(self.folder / "bin/kubelet"), f"--config={self.config}"), **changes}
        self.process(100, "kubelet", **given)  # type: ignore[arg-type]

    def component(self, pid: int = 200, name: str = "kube-scheduler", uid: str = STATIC, **changes: object) -> None:
        """One of the control plane, with its pod's log directory."""
        (self.folder / "pods" / f"kube-system_{name}-w1_{uid}").mkdir()
        (self.folder / "manifests" / f"{name}.yaml").write_bytes(node.manifest(name))
        self.process(pid, name, **{"cgroup": STATIC_POD.replace(STATIC, uid), **changes})  # type: ignore[arg-type]

    def shims(self) -> str:
        """systemd, as it would answer on this machine."""
        cases = "".join(f"{unit}) echo {pid};; " for unit, pid in self.units.items())
        return (
            f'{AS_ROOT}systemctl() {{ echo "$@" >>{self.folder}/systemctl.log; case $*:$2 in *MainPID*--value:*) case $2 in {cases}esac;; '
            f"*ExecStart*) echo '{{ path={self.folder}/bin/kubelet ; argv[]={self.folder}/bin/kubelet --config={self.config} ; ignore_errors=no }}';; "
            "*) echo ActiveState=active; echo MainPID=100;; esac; }\n"
        )

    def run(self, script: str, shell: str = "sh") -> list[str]:
        done = subprocess.run([shell, "-s"], input=self.shims() + script, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def look(self, shell: str = "sh") -> Observation:
        script = templates().get_template("observe.sh.j2").render(more_files=[], more_directories=[], proc=self.proc)
        return parse("n1", self.run(script, shell))


SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]
