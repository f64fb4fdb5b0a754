"""Claims, volumes and their attachments, as the API's JSON."""

from __future__ import annotations

from typing import Any

HOST = "kubernetes.io/hostname"


def claim(name: str, *modes: str, volume: str | None = None, namespace: str = "shop") -> dict[str, Any]:
    """Bound to the volume `pv-NAME`, unless `volume` says to which, or "" that it is not."""
    bound = f"pv-{name}" if volume is None else volume
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-claim-{name}"},
        "spec": {"accessModes": list(modes or ("ReadWriteOnce",)), **({"volumeName": bound} if bound else {})},
        "status": {"phase": "Bound" if bound else "Pending"},
    }


def volume(name: str, *modes: str, on: Any = None, **source: Any) -> dict[str, Any]:
    """`on`: its node affinity, (KEY, VALUE...)."""
    terms = [{"matchExpressions": [{"key": on[0], "operator": "In", "values": list(on[1:])}]}] if on else None
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if terms else {}
    spec = {"accessModes": list(modes or ("ReadWriteOnce",)), **affinity, **(source or {"csi": {"driver": "d", "volumeHandle": name}})}
    return {"kind": "PersistentVolume", "metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}


def driver(name: str, attach_required: bool) -> dict[str, Any]:
    return {"kind": "CSIDriver", "metadata": {"name": name, "uid": name}, "spec": {"attachRequired": attach_required}}


def csi_node(name: str, driver: str = "d", most: int | None = None) -> dict[str, Any]:
    limit = {} if most is None else {"allocatable": {"count": most}}
    return {"kind": "CSINode", "metadata": {"name": name, "uid": f"uid-csi-{name}"}, "spec": {"drivers": [{"name": driver, **limit}]}}


def attachment(volume: str, node: str, driver: str = "d", **more: Any) -> dict[str, Any]:
    meta = {"name": f"csi-{volume}-{node}", "uid": f"uid-va-{volume}-{node}", **more.pop("metadata", {})}
    spec = {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return {"kind": "VolumeAttachment", "metadata": meta, "spec": spec, "status": {"attached": True, **more}}


def mounts(*claims: str) -> dict[str, Any]:
    """The `volumes` of a pod's spec."""
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]}
