"""The running kube-controller-manager as autoscalers see it: its leader, version, flags and gates, from its own process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from roles.engine.api import Api, ApiError, find_object
from roles.engine.autoscaling.model import Controller, time_of
from roles.engine.bridge import RemoteError
from roles.engine.control_plane import Component
from roles.engine.editing import flags
from roles.engine.kubelet import parse_duration
from roles.engine.node import minor_of
from roles.engine.proof import Cluster, NoApi

NAME = "kube-controller-manager"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{NAME}"
_PREFIX = "horizontal-pod-autoscaler"
_DURATIONS = {
    "downscale-stabilization": "downscale_stabilization",
    "cpu-initialization-period": "cpu_initialization",
    "initial-readiness-delay": "readiness_delay",
    "sync-period": "sync_period",
}
#: The lease is renewed every 2 s (leaderelection, RetryPeriod): a clock that is further off than this is not used.
SKEW_SECONDS = 15.0


def tuned(controller: Controller, argv: tuple[str, ...]) -> Controller:
    """The controller with the flags of its process. Raises ValueError for a value that it cannot have started with. Pure."""
    found: dict[str, Any] = {}
    for flag, field in _DURATIONS.items():
        value = flags.last_flag(argv, f"{_PREFIX}-{flag}")
        # 0 is the default of the configuration, not of the flag: it stays 0.
        if value is not None:
            found[field] = float(parse_duration(value))
    tolerance = flags.last_flag(argv, f"{_PREFIX}-tolerance")
    if tolerance is not None:
        found["tolerance"] = float(tolerance)
    return replace(controller, **found)


def leader(lease: Mapping[str, Any] | None) -> tuple[str, datetime | None, datetime | None]:
    """The node name of the leader, since when, and when it last said so; "" and None if that is not known. Pure. Raises ValueError."""
    spec = (lease or {}).get("spec") or {}
    # The name of the host, and a random part (cmd/kube-controller-manager/app: id).
    return str(spec.get("holderIdentity") or "").rpartition("_")[0], time_of(spec.get("acquireTime")), time_of(spec.get("renewTime"))


def clock(now: datetime, lease: Mapping[str, Any] | None) -> datetime:
    """The time of the control plane: `now`, unless the leader's last word shows that this machine's clock is off. Pure."""
    try:
        renewed = leader(lease)[2]
    except ValueError:
        return now
    return renewed if renewed is not None and abs((now - renewed).total_seconds()) > SKEW_SECONDS else now


def read_lease(api: Api) -> dict[str, Any] | None:
    """The lease of the leader; None if it cannot be read."""
    try:
        return find_object(api, LEASE)
    except ApiError:
        return None


def read_controller(cluster: Cluster, components: Mapping[str, Component], lease: Mapping[str, Any] | None, api_version: str) -> Controller:
    """The controller. `components`: kube-controller-manager by host, of the nodes that were read; `api_version`: of the API server, which
    stands for what cannot be read. Raises nothing: what is not known is in `assumed`."""
    assumed = []
    try:
        holder, since, _ = leader(lease)
    except ValueError:
        holder, since = "", None
    if since is None:
        assumed.append("the leader of kube-controller-manager is not known, so nothing is known of its memory")
    own = [one for host, one in components.items() if holder in (one.node_name, host)] or (
        list(components.values()) if len(components) == 1 else []
    )
    minor = minor_of(api_version) or 0
    if not own:
        text = "the flags and gates of the leading kube-controller-manager are not known, so defaults stand for them"
        return Controller(minor, leads_since=since, assumed=(*assumed, text))
    one = own[0]
    controller = Controller(one.process.minor or minor, leads_since=since)
    try:
        controller = tuned(controller, tuple(one.process.argv))
    except ValueError as error:
        assumed.append(f"a flag of {NAME} cannot be read ({error}), so defaults stand for them")
    try:
        gates = cluster.effective(one.host, NAME, one.node_name)
        controller = replace(controller, gates={name: gate.enabled for name, gate in gates.items()})
    except (ApiError, NoApi, RemoteError) as error:
        controller = replace(controller, gates=one.running_gates)
        assumed.append(f"the effective gates of {NAME} are not known ({error}), so its flags and defaults stand for them")
    return replace(controller, assumed=tuple(assumed))
