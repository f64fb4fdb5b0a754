"""Which Node a host is. The host itself says its node's name, so it is held against what others say. Pure.

Root on a host can give its kubelet any --hostname-override. What is done to `its` Node would then be done to another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from roles.engine.harmless import one_line
from roles.engine.kube import is_ready
from roles.engine.kube.fields import node_info
from roles.engine.node import Observation


def claimed_names(by_host: Mapping[str, str], inventory: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """The hosts whose node's name is not theirs alone, and why. `by_host`: the names of their nodes; `inventory`: all hosts; a node
    named as one of them is that host's, whoever else claims it."""
    hosts: dict[str, list[str]] = {}
    for host, name in by_host.items():
        hosts.setdefault(name, []).append(host)
    for host, name in by_host.items():
        if name == host and name in inventory:
            continue
        if others := [other for other in hosts[name] if other != host]:
            yield host, f"its node's name is {one_line(name)}, and so is that of {', '.join(others)}: one of them claims another's"
        elif name in inventory:
            yield host, f"its node's name is {one_line(name)}, and that is another host of the inventory"


def other_machine(seen: Observation, node: Mapping[str, Any]) -> str:
    """Why a Node object is not of this machine; "" if it is, or if nothing is known. `machineID` is /etc/machine-id, and `bootID` the
    kernel's (pkg/kubelet/nodestatus/setters.go, MachineInfo), as the kubelet reports them when it starts."""
    info = node_info(node)
    machine, boot = str(info.get("machineID") or ""), str(info.get("bootID") or "")
    if machine and seen.machine_id and machine != seen.machine_id:
        return f"the API has the machine ID {one_line(machine)} for this node, and the host has {one_line(seen.machine_id)}"
    # Right after a boot, and while its kubelet does not run, the API still has the boot before.
    age = 0.0 if seen.kubelet is None else seen.epoch - seen.started_at(seen.kubelet)
    if boot and seen.boot_id and boot != seen.boot_id and age > REPORT_SECONDS and is_ready(node):
        return f"the API has the boot ID {one_line(boot)} for this node, whose kubelet is Ready, and the host has {one_line(seen.boot_id)}"
    return ""


#: The time from a kubelet's start until when the API may have what the one before it has reported: a node stays Ready for up to 50 s after
#: its kubelet has stopped (kube-controller-manager: --node-monitor-grace-period).
REPORT_SECONDS = 120
