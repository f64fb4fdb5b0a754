"""What a lab is at one moment, as far as tests may change it and must put it back: each node's files, and the cluster's objects. Pure.

A fingerprint is a dictionary: the place ("w1 /etc/default/kubelet", "node w1", "namespace shop") -> what is there, in a few words. What
comes and goes by itself is not in it: states that kubelets keep, taints that the node controller sets, objects that are being deleted.
daytwo's own unit at boot is not in it either: it comes with the first change of a node, and stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

# Folders and files that say how a node's kubelet, containers and units are run. Programs are large: for these the size must do.
PLACES = (
    "/etc/kubernetes /etc/kubernetes-node /etc/default/kubelet /etc/systemd/system /usr/lib/systemd/system/kubelet.service "
    "/usr/lib/systemd/system/kubelet.service.d /etc/containerd /etc/cni /srv /usr/local/bin /usr/local/sbin"
)
# Each entry is "KIND MODE OWNER SIZE LINK<tab>PATH", "mount KIND<tab>PATH", or "SHA256  PATH"; all end with NUL.
_SHOWN = r"-printf '%y %m %U:%G %s %l\t%p\0'"
_SUMS = "-type f -size -256k -exec sha256sum -z -- {} +"
NODE = (
    f"for what in 1 2; do set -- {_SHOWN}; [ $what = 1 ] || set -- {_SUMS}; "
    f"find {PLACES} -name 'daytwo-recover*' -prune -o \"$@\"; find /var/lib/kubelet -maxdepth 1 -type f -not -name '*_state*' \"$@\"; "
    "done 2>/dev/null; while read -r _ place kind _; do "
    r"case $place in /etc/* | /srv/* | /usr/*) printf 'mount %s\t%s\0' "
    '"$kind" "$place" ;; esac; done </proc/self/mounts'
)
CLUSTER = "nodes,namespaces,pods,priorityclasses,poddisruptionbudgets,configmaps"
# Folders here say nothing, only what is in them: an empty one with drop-ins is as good as none.
_DROP_INS = "/etc/systemd/system/"
# What kubeadm keeps of a cluster's configuration.
_KEPT_BY_KUBEADM = ("kubeadm-config", "kubelet-config")
# Set and removed by the node controller.
_OF_CONTROLLERS = "node.kubernetes.io/"
_SHORT = 12


def of_node(node: str, told: str) -> dict[str, str]:
    """From what NODE has printed there."""
    found: dict[str, str] = {}
    for entry in filter(None, told.split("\0")):
        left, tab, path = entry.partition("\t")
        if tab and left.startswith("mount "):
            found[f"{node} {path} (mounted)"] = left.removeprefix("mount ")
        elif tab:
            kind, mode, owner, size, link = left.split(" ", 4)
            if kind == "d" and path.startswith(_DROP_INS):
                continue
            # systemctl enable writes either: /lib is a link itself.
            link = f"/usr{link}" if link.startswith("/lib/") else link
            # How large a folder is says nothing.
            words = {"d": "folder", "l": f"link to {link}", "f": f"file of {size} bytes"}
            found[f"{node} {path}"] = f"{words.get(kind, kind)}, {mode}, {owner}"
        else:
            digest, _, path = entry.partition("  ")
            found[f"{node} {path}"] += f", {digest[:_SHORT]}"
    return found


def of_cluster(items: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """From the items of a list of CLUSTER's kinds."""
    alive = [item for item in items if "deletionTimestamp" not in item["metadata"]]
    spaces = {item["metadata"]["name"] for item in alive if item["kind"] == "Namespace"}
    found: dict[str, str] = {}
    for item in alive:
        kind, meta = item["kind"], item["metadata"]
        name, space = meta["name"], meta.get("namespace", "")
        if space and space not in spaces:
            continue  # it goes with its namespace
        full = f"{space}/{name}" if space else name
        match kind:
            case "Node":
                found[f"node {name}"] = _node(item)
            case "Namespace":
                found[f"namespace {name}"] = "there"
            case "Pod" if space != "kube-system":
                found[f"pod {full}"] = "there"
            case "PriorityClass" | "PodDisruptionBudget":
                kept = {key: value for key, value in item.items() if key not in ("metadata", "status")}
                found[f"{kind} {full}"] = _sum({**kept, "labels": meta.get("labels"), "annotations": meta.get("annotations")})
            case "ConfigMap" if space == "kube-system" and name in _KEPT_BY_KUBEADM:
                found[f"ConfigMap {name}"] = _sum(item.get("data"))
    return found


def _node(item: Mapping[str, Any]) -> str:
    meta, spec = item["metadata"], item.get("spec", {})
    words = [f"{key}={value}" for key, value in sorted(meta.get("labels", {}).items())]
    words += [f"annotation {key}" for key in sorted(meta.get("annotations", {})) if ".kubernetes.io/" not in key]
    words += sorted(
        f"taint {taint['key']}={taint.get('value', '')}:{taint['effect']}"
        for taint in spec.get("taints", ())
        if not taint["key"].startswith(_OF_CONTROLLERS)
    )
    return ", ".join([*words, "cordoned"] if spec.get("unschedulable") else words)


def _sum(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_SHORT]


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is not as before, a line for each place, in the order of places."""
    lines = []
    for place in sorted({*before, *now}):
        was, is_now = before.get(place), now.get(place)
        if was == is_now:
            continue
        if was is None:
            lines.append(f"{place} is new ({is_now})" if is_now != "there" else f"{place} is new")
        elif is_now is None:
            lines.append(f"{place} is gone")
        else:
            lines.append(f"{place} is another: {_change(was, is_now)}")
    return lines


def _change(was: str, is_now: str) -> str:
    """Only the words that differ: a node has many labels."""
    old, new = was.split(", "), is_now.split(", ")
    gone = [word for word in old if word not in new]
    return f"{', '.join(gone) or '-'} -> {', '.join(word for word in new if word not in old) or '-'}"
