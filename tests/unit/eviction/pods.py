"""Pods, nodes and summaries as the API returns them, for tests."""

from __future__ import annotations

from typing import Any

MI = 2**20
GI = 2**30


def uid_of(name: str) -> str:
    return f"{sum(ord(c) * 31**i for i, c in enumerate(name)) % 16**8:08x}-0000-4000-8000-000000000000"


def pod(
    name: str,
    *,
    priority: int | None = 0,
    qos: str = "Burstable",
    requests: dict[str, str] | None = None,
    limits: dict[str, str] | None = None,
    volumes: tuple[dict[str, Any], ...] = (),
    phase: str = "Running",
    mirror: str = "",
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A pod with one container `app`. `mirror` is the hash of the static pod that it mirrors."""
    annotations = {"kubernetes.io/config.mirror": mirror, "kubernetes.io/config.hash": mirror} if mirror else {}
    container = {"name": "app", "resources": {"requests": requests or {}, "limits": limits or {}}}
    return {
        "metadata": {"namespace": "default", "name": name, "uid": uid_of(name), "annotations": annotations},
        "spec": {
            "containers": [container],
            "volumes": list(volumes),
            **({"priority": priority} if priority is not None else {}),
            **(spec or {}),
        },
        "status": {
            "phase": phase,
            "qosClass": qos,
            "containerStatuses": [{"name": "app", "containerID": "containerd://" + uid_of(name)[:8] * 8}],
            **(status or {}),
        },
    }


def stats(
    name: str,
    *,
    memory: int = 0,
    rootfs: int = 0,
    logs: int = 0,
    volumes: dict[str, int] | None = None,
    inodes: int = 0,
    processes: int = 1,
    uid: str = "",
    ephemeral: int | None = None,
) -> dict[str, Any]:
    """The summary's entry of the pod of that name; bytes, `inodes` in the root file system."""
    return {
        "podRef": {"name": name, "namespace": "default", "uid": uid or uid_of(name)},
        "containers": [{"name": "app", "rootfs": {"usedBytes": rootfs, "inodesUsed": inodes}, "logs": {"usedBytes": logs}}],
        "memory": {"workingSetBytes": memory},
        "volume": [{"name": key, "usedBytes": value, "inodesUsed": 1} for key, value in (volumes or {}).items()],
        "process_stats": {"process_count": processes},
        **({"ephemeral-storage": {"usedBytes": ephemeral}} if ephemeral is not None else {}),
    }


def filesystem(available: int = 50 * GI, capacity: int = 100 * GI, inodes: int = 10**6, free: int = 9 * 10**5) -> dict[str, int]:
    return {"availableBytes": available, "capacityBytes": capacity, "inodes": inodes, "inodesFree": free}


def summary(
    *pods: dict[str, Any],
    memory: tuple[int, int] = (4 * GI, 4 * GI),
    nodefs: dict[str, int] | None = None,
    imagefs: dict[str, int] | None = None,
    containerfs: dict[str, int] | None = None,
    all_pods: tuple[int, int] | None = (6 * GI, 2 * GI),
    processes: int = 1000,
) -> dict[str, Any]:
    """`memory` and `all_pods`: available and working set in bytes. One file system for all unless others are passed."""
    nodefs = nodefs or filesystem()
    images = imagefs or nodefs
    systems: list[dict[str, Any]] = [{"name": "kubelet"}]
    if all_pods:
        systems.append({"name": "pods", "memory": {"availableBytes": all_pods[0], "workingSetBytes": all_pods[1]}})
    return {
        "node": {
            "nodeName": "n1",
            "systemContainers": systems,
            "memory": {"time": "2026-11-21T12:00:00Z", "availableBytes": memory[0], "workingSetBytes": memory[1]},
            "fs": nodefs,
            "runtime": {"imageFs": images, "containerFs": containerfs or images},
            "rlimit": {"maxpid": 32768, "curproc": processes},
        },
        "pods": list(pods),
    }


def node(version: str = "v1.36.3", memory: str = "8Gi") -> dict[str, Any]:
    return {"metadata": {"name": "n1"}, "status": {"nodeInfo": {"kubeletVersion": version}, "capacity": {"memory": memory}}}
