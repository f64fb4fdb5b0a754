"""Graceful shutdown: whether the function of a kubelet that ends pods at a shutdown can start on a node. Pure.

A kubelet accepts the fields, shows them in /configz, and runs on without the function if it cannot start it. It needs a lock of logind that
delays a shutdown for as long as it asks for. If logind allows less, the kubelet writes /etc/systemd/logind.conf.d/99-kubelet.conf and
reloads logind; a drop-in whose name sorts later still wins.

Sources (Kubernetes 1.32 to 1.36): pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go (start), nodeshutdown_manager.go (newPodManager,
migrateConfig), systemd/inhibit_linux.go (OverrideInhibitDelay); pkg/kubelet/kubelet.go (initializeRuntimeDependentModules);
kubernetes#102818, kubernetes#107043; logind.conf(5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.engine.harmless import one_line
from roles.engine.kubelet import KubeletState
from roles.engine.kubelet.thresholds import shutdown_seconds
from roles.engine.transaction import Refusal

FIELD = "shutdownGracePeriod"
OVERRIDE = "/etc/systemd/logind.conf.d/99-kubelet.conf"


def notes(state: KubeletState, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Warnings about a change of these fields. Raises Refusal if it asks for a graceful shutdown that would not start on this node."""
    wanted, logind = shutdown_seconds(after), state.kubelet.seen.logind
    if wanted <= 0 or wanted == shutdown_seconds(before) or logind is None:
        return []
    what = f"{FIELD} {wanted:g} s: the kubelet would accept it and not end pods at a shutdown"
    if logind.problem:
        raise Refusal(
            state.host, f"{what}: {logind.problem}, and it needs a lock of logind", "install dbus and systemd-logind, and start them"
        )
    now = logind.delay()
    if now.seconds >= wanted:
        return []
    then = logind.delay({OVERRIDE: wanted})
    if then.seconds < wanted:
        file = one_line(then.file)
        raise Refusal(
            state.host,
            f"{what}: {file}: InhibitDelayMaxSec={then.seconds:g} wins over the kubelet's own {OVERRIDE}",
            f"on the node write {_beating(file)} with [Login] and InhibitDelayMaxSec={wanted:g}, and `systemctl restart systemd-logind`",
        )
    return [f"{FIELD}: the kubelet itself writes {OVERRIDE} (InhibitDelayMaxSec={wanted:g}) and reloads logind; an undo leaves that file"]


def _beating(file: str) -> str:
    """A drop-in that wins over a file: the same name in /etc, or a name that sorts after it."""
    folder, _, name = file.rpartition("/")
    own = OVERRIDE.rpartition("/")[0]
    return f"{own}/{name}" if folder != own else f"{own}/zz-{name}"
