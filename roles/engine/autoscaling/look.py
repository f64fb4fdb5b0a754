"""One look at the autoscalers of a cluster: what the controller reads is read, and all of it is judged."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from roles.engine.api import Api, NotFound, list_objects
from roles.engine.autoscaling.controller import NAME, Effective, read_controller, see_leader
from roles.engine.autoscaling.judge import JudgedAutoscaler, judge
from roles.engine.autoscaling.model import ScalingController
from roles.engine.autoscaling.read import HPAS_PATH, VPAS_PATH, ScalingWorld, read_autoscalers
from roles.engine.autoscaling.vertical_problems import JudgedVertical, judge_vertical
from roles.engine.autoscaling.vertical_read import VerticalWorld, read_verticals
from roles.engine.control_plane import Component
from roles.engine.kube import Object
from roles.engine.placement import ClusterView


@dataclass(frozen=True)
class AutoscalerLook:
    """`now`: the time of the control plane; `not_known`: what could not be read, with the reason."""

    now: datetime
    controller: ScalingController
    world: ScalingWorld
    judged: tuple[JudgedAutoscaler, ...]
    verticals: tuple[JudgedVertical, ...] = ()
    vertical_world: VerticalWorld = field(default_factory=VerticalWorld)

    @property
    def not_known(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.controller.assumed, *self.world.not_known, *self.vertical_world.not_known)))

    @property
    def all(self) -> tuple[JudgedAutoscaler | JudgedVertical, ...]:
        return (*self.judged, *self.verticals)


def managers_of(components: Mapping[str, Mapping[str, Component]]) -> dict[str, Component]:
    """kube-controller-manager by host. `components`: by host and name."""
    return {host: found[NAME] for host, found in components.items() if NAME in found}


def see_controller(api: Api, effective: Effective, managers: Mapping[str, Component]) -> tuple[ScalingController, datetime]:
    """The leading kube-controller-manager, and the time by which it decides. Raises ApiError."""
    seen = see_leader(api)
    version = str(api.get_json("/version").get("gitVersion") or "")
    return replace(read_controller(effective, managers, seen.lease, version), stopped=seen.stopped), seen.now


def look_at(
    api: Api,
    effective: Effective,
    managers: Mapping[str, Component],
    namespaces: Collection[str] | None = None,
    pods: Sequence[Object] | None = None,
) -> AutoscalerLook:
    """All autoscalers, also vertical ones, or those of some namespaces. `managers`: kube-controller-manager by host; `pods`: all of the
    cluster, if the caller has read them. Raises ApiError, ValueError."""
    controller, now = see_controller(api, effective, managers)
    world = read_autoscalers(api, controller, now, namespaces)
    view = None
    if world.scenes:
        view = ClusterView(list_objects(api, "/api/v1/nodes"), list_objects(api, "/api/v1/pods") if pods is None else pods)
    verticals = read_verticals(api, controller.minor, namespaces)
    found = tuple(judge_vertical(scene, now) for scene in verticals.scenes)
    return AutoscalerLook(now, controller, world, tuple(judge(world, controller, now, view)), found, verticals)


def any_autoscaler(api: Api) -> bool:
    """There is at least one, horizontal or vertical. Raises ApiError."""
    for path in (HPAS_PATH, VPAS_PATH):
        try:
            if api.get_json(f"{path}?limit=1").get("items"):
                return True
        except NotFound:
            continue
    return False
