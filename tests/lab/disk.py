"""The lab's disk (disk/main.go): a CSI driver with real attach and detach, as systemd units on the nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.lab import binaries
from tests.lab.cluster import Lab
from tests.lab.tools import LabError, parallel

SOURCE = Path(__file__).with_name("disk") / "main.go"
DRIVER = "disk.lab.example"
PORT = 9808
#: The only dependencies: the two interfaces of a CSI driver, and what they are spoken with. Kubernetes' own build has these versions.
REQUIRES = (("github.com/container-storage-interface/spec", "v1.9.0"), ("google.golang.org/grpc", "v1.79.3"), ("k8s.io/kubelet", "v0.36.3"))
_PROGRAM = "/usr/local/bin/lab-disk"
# A file with this name on a node makes each unmount fail there.
BUSY = "/run/disk-busy"


@contextmanager
def disks(lab: Lab, attach: float = 1, detach: float = 2) -> Iterator[None]:
    """The driver on all nodes, as long as the test wants it. `attach`, `detach`: the seconds that they take."""
    program, cp1 = binaries.own("disk", SOURCE, REQUIRES), lab.control_planes[0]
    store = f"{lab.address(cp1)}:{PORT}"
    parallel(*(partial(_install, lab, node, program) for node in lab.nodes))
    start = f"systemctl reset-failed 'lab-disk*' 2>/dev/null; systemd-run --quiet --collect --unit=lab-disk{{unit}} {_PROGRAM} {{words}}"
    lab.run(cp1, start.format(unit="-controller", words=f"controller --listen={store} --attach={attach}s --detach={detach}s"))
    for node in lab.nodes:
        lab.run(node, start.format(unit="", words=f"node --name={node} --store=http://{store}"))
    try:
        yield
    finally:
        for node in lab.nodes:
            left = f"{_PROGRAM} {BUSY} /var/lib/disk /var/lib/kubelet/plugins*/{DRIVER}*"
            lab.run(node, f"systemctl stop 'lab-disk*'; rm -rf {left}", check=False)


def _install(lab: Lab, node: str, program: Path) -> None:
    words = ["ssh", "-F", str(lab.ssh_config), "-o", "LogLevel=ERROR", node, f"cat > {_PROGRAM}; chmod 755 {_PROGRAM}"]
    done = subprocess.run(words, input=program.read_bytes(), capture_output=True, check=False, timeout=300)
    if done.returncode:
        raise LabError(f"{node} does not take the lab's disk: {done.stderr.decode(errors='replace').strip()[-300:]}")


def objects(namespace: str, *names: str, mode: str = "ReadWriteOnce") -> list[dict[str, Any]]:
    """The driver's object, and a volume with its claim for each name."""
    made: list[dict[str, Any]] = [
        {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"attachRequired": True}}
    ]
    for name in names:
        amounts = {"accessModes": [mode], "storageClassName": ""}
        volume = {"capacity": {"storage": "1Mi"}, "csi": {"driver": DRIVER, "volumeHandle": f"{namespace}-{name}"}}
        claim = {"volumeName": f"{namespace}-{name}", "resources": {"requests": {"storage": "1Mi"}}}
        made += [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"{namespace}-{name}"},
                "spec": {**amounts, **volume, "persistentVolumeReclaimPolicy": "Retain"},
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {**amounts, **claim},
            },
        ]
    return made
