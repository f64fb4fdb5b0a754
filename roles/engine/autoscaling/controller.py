"""The running kube-controller-manager as autoscalers see it: its leader, version, flags and gates, from its own process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from roles.engine.api import Api, ApiError, ApiFailure, GateMetric, find_object
from roles.engine.autoscaling.model import ODD, Idle, ScalingController
from roles.engine.control_plane import Component
from roles.engine.disruption import cluster_time
from roles.engine.editing import flags
from roles.engine.kube.fields import spec_of
from roles.engine.kube.times import parse_duration, time_of
from roles.engine.node import minor_of
from roles.engine.timeouts import LOOK_AGAIN, Deadline

#: The gates of a running component, of its host, its own name and that of its node. Raises ApiFailure.
Effective = Callable[[str, str, str], Mapping[str, GateMetric]]

NAME = "kube-controller-manager"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{NAME}"
#: Characters of a flag's value in a message.
_LONGEST = 200
_PREFIX = "horizontal-pod-autoscaler"
_DURATIONS = {
    "downscale-stabilization": "downscale_stabilization",
    "cpu-initialization-period": "cpu_initialization",
    "initial-readiness-delay": "readiness_delay",
    "sync-period": "sync_period",
}
#: Its names in --controllers: versions before 1.28 have only the second one (cmd/kube-controller-manager/names, KCMControllerAliases).
_NAMES = ("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling")
#: How much older than its duration a lease is before another process has it for sure: it tries every 2 s, and longer after an error.
GRACE_SECONDS = 10.0
#: A leader renews its lease every 2 s (leaderelection, RetryPeriod).
RENEWAL_SECONDS = 5.0


def tuned(controller: ScalingController, argv: tuple[str, ...]) -> ScalingController:
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
    spec = spec_of(lease or {})
    # The name of the host, and a random part (cmd/kube-controller-manager/app: id).
    return str(spec.get("holderIdentity") or "").rpartition("_")[0], time_of(spec.get("acquireTime")), time_of(spec.get("renewTime"))


def left_out(argv: tuple[str, ...]) -> Idle | None:
    """What keeps a kube-controller-manager with these arguments from handling autoscalers: the first word of --controllers that names the
    controller counts, else `*` (controller-manager/app/helper.go, IsControllerEnabled). Pure."""
    words = [word for value in flags.flag_values(argv, "controllers") for word in value.split(",")]
    named = next((word for word in words if word.removeprefix("-") in _NAMES), "*" if "*" in words or not words else "")
    if named and not named.startswith("-"):
        return None
    why = f"has {named}" if named else "does not name it"
    return Idle(
        f"{NAME} does not handle autoscalers: --controllers={','.join(words)[:_LONGEST]} {why}",
        f"set --controllers with deploys/control_plane_flags.py: {f'without {named}' if named else f'with * or {_NAMES[0]}'}",
    )


@dataclass(frozen=True)
class Leadership:
    """Who leads. `now`: the time by which the leader decides; `age`: seconds since the last renewal of its lease, None if it cannot be
    read; `stopped`: why nobody leads."""

    now: datetime
    lease: Mapping[str, Any] | None = None
    age: float | None = None
    stopped: Idle | None = None


def see_leader(api: Api) -> Leadership:
    """The leader by the API server's clock. A lease that seems to be overdue is looked at for some seconds: if it is renewed, its
    leader has another clock. Raises ApiError if the time cannot be read."""
    now, lease = cluster_time(api), read_lease(api)
    if lease is None:
        return Leadership(now)
    holder, _, renewed = leader(lease)
    age = None if renewed is None else (now - renewed).total_seconds()
    lasts = spec_of(lease).get("leaseDurationSeconds")
    lasts = lasts if isinstance(lasts, int) else 0
    if age is not None and abs(age) <= lasts + GRACE_SECONDS:
        return Leadership(now, lease, max(age, 0.0))
    deadline = Deadline(RENEWAL_SECONDS)
    while not deadline.over:
        deadline.pause(LOOK_AGAIN)
        later = read_lease(api)
        if later is None:
            return Leadership(now)
        if (at := leader(later)[2]) is not None and at != renewed:
            return Leadership(at, later, 0.0)
    last = "never renewed" if renewed is None else f"renewed last at {renewed.isoformat(timespec='seconds')} ({age:.0f} s ago)"
    why = f"no {NAME} leads: its lease{f', of {holder},' if holder else ''} was {last} and is for {lasts} s"
    way_out = f"see why it does not run: on control-plane nodes, crictl ps -a --name {NAME}, and its log; kubectl get pods -n kube-system"
    return Leadership(now, lease, age, Idle(why, way_out))


def read_lease(api: Api) -> dict[str, Any] | None:
    """The lease of the leader; None if it cannot be read."""
    try:
        found = find_object(api, LEASE)
        if found is not None:
            leader(found)
    except (ApiError, *ODD):
        return None
    return found


def read_controller(
    effective: Effective, components: Mapping[str, Component], lease: Mapping[str, Any] | None, api_version: str
) -> ScalingController:
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
        return ScalingController(minor, leads_since=since, assumed=(*assumed, text))
    one = own[0]
    controller = ScalingController(one.process.minor or minor, leads_since=since, left_out=left_out(tuple(one.process.argv)))
    try:
        controller = tuned(controller, tuple(one.process.argv))
    except ValueError as error:
        assumed.append(f"a flag of {NAME} cannot be read ({error}), so defaults stand for them")
    try:
        gates = effective(one.host, NAME, one.node_name)
        controller = replace(controller, gates={name: gate.enabled for name, gate in gates.items()})
    except ApiFailure as error:
        controller = replace(controller, gates=one.running_gates)
        assumed.append(f"the effective gates of {NAME} are not known ({error}), so its flags and defaults stand for them")
    return replace(controller, assumed=tuple(assumed))
