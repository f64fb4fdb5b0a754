"""What tests of a kubelet's policies look at: the checkpoints in its root directory, and the configuration that it runs with."""

from __future__ import annotations

import json
from typing import Any

from tests.lab import Lab

CPU, MEMORY = "/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state"
# 500m make one whole CPU that no pod gets for itself.
STATIC = "cpuManagerPolicy=static,systemReserved.cpu=500m"


def configz(lab: Lab, node: str) -> dict[str, Any]:
    """What the kubelet runs with; {} while it does not answer."""
    told = lab.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/configz", check=False)
    return json.loads(told)["kubeletconfig"] if told else {}


def stored(lab: Lab, node: str, path: str = CPU) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.run(node, f"cat {path}").stdout)
    return found


def cpus_of(lab: Lab, node: str, uid: str) -> str:
    """The CPUs that a pod has for itself, by the checkpoint; "" if it has none."""
    return str((stored(lab, node).get("entries") or {}).get(uid, {}).get("app", ""))


def as_it_is(lab: Lab, node: str, path: str = CPU) -> str:
    """The checkpoint's bytes, mode, inode and time."""
    return lab.run(node, f"sha256sum {path}; stat -c '%i %a %u:%g %.Y' {path}").stdout
