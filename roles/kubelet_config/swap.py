"""Swap: what a kubelet's settings of it do, and when it does not start with them. Pure.

Sources (Kubernetes 1.32 to 1.36): pkg/kubelet/cm/container_manager_linux.go (NewContainerManager: failSwapOn, tmpfs noswap),
cmd/kubelet/app/server.go (run: LimitedSwap needs cgroup v2), pkg/kubelet/kuberuntime/kuberuntime_container_linux.go
(checkSwapControllerAvailability, GetContainerSwapBehavior, calcSwapForBurstablePods), pkg/util/kernel/constants.go; KEP-2400.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from roles.engine import starting
from roles.engine.kube.fields import node_info
from roles.engine.kubelet import KubeletState
from roles.engine.kubelet.drained import SWAP, limited_swap
from roles.engine.kubelet.values import in_effect, lookup
from roles.engine.transaction import Refusal

FAIL = "failSwapOn"
# tmpfs knows the option noswap since then; distributions may have it earlier.
_NOSWAP_KERNEL = (6, 4)


def check(state: KubeletState, after: Mapping[str, Any]) -> None:
    """Raises Refusal if the kubelet would not start on this node: by the rule of every start (roles/engine/starting)."""
    seen = state.kubelet.seen
    settings = {FAIL: after.get(FAIL, True), SWAP: "LimitedSwap" if limited_swap(after) else ""}
    for one in starting.swap_obstacles(state.host, settings, seen.swap, seen.cgroup2):
        raise Refusal(state.host, one.why, one.way_out)


def notes(state: KubeletState, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Warnings about a change of these fields; none if it changes neither. Raises Refusal for one without any effect."""
    if all(in_effect(lookup(after, name), lookup(before, name)) for name in (FAIL, SWAP)):
        return []
    seen = state.kubelet.seen
    # With cgroup v1 the kubelet would not even start, which `check` refuses.
    if limited_swap(after) and not limited_swap(before) and seen.cgroup2 is not False and seen.swap_limits is False:
        raise Refusal(
            state.host,
            f"{SWAP} LimitedSwap: the kernel has no limits of swap for cgroups (no memory.swap.max), and a kubelet does the same as with"
            " NoSwap then",
            f"boot the node with swapaccount=1, or leave {SWAP} as it is",
        )
    return list(_notes(state, before, after))


def _notes(state: KubeletState, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    fails, on = after.get(FAIL, True), state.kubelet.seen.swap
    if limited_swap(after) and not on:
        more = f"; and with {FAIL}: true the kubelet does not start then" if fails else ""
        yield f"{SWAP} LimitedSwap: no swap is on, so pods get none until it is and the kubelet is restarted{more}"
    if fails and not before.get(FAIL, True):
        yield f"{FAIL}: true: the kubelet does not start if swap is on after a reboot; check /etc/fstab, swap units and zram"
    if on and _old_kernel(state):
        yield (
            "swap is on, and this kernel may have no tmpfs without swap (noswap, Linux 6.4): Secrets and other volumes in memory may be"
            " written to the disk. Encrypt the swap"
        )


def _old_kernel(state: KubeletState) -> bool:
    found = re.match(r"([0-9]+)\.([0-9]+)", str(node_info(state.node).get("kernelVersion") or ""))
    return found is None or (int(found.group(1)), int(found.group(2))) < _NOSWAP_KERNEL
