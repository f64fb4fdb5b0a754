"""Reads VerticalPodAutoscalers, and what decides about them besides: workloads, pods, horizontal autoscalers, LimitRanges."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from roles.engine.api import Api, ApiConnectionLost, ApiError, NotFound, find_object, list_objects
from roles.engine.autoscaling.model import HPA, Autoscaler
from roles.engine.autoscaling.read import HPAS_PATH, VPAS_PATH, Noting
from roles.engine.autoscaling.vertical import VPA, Vertical, VerticalScene
from roles.engine.kube import Object
from roles.engine.kube.fields import created_of, spec_of
from roles.engine.kube.names import RESOURCES_OF_KINDS
from roles.engine.kube.pods import is_alive
from roles.engine.kube.selectors import query_of
from roles.engine.kube.times import time_of
from roles.engine.kube.workloads import COLLECTIONS, namespaced, object_path

LEASES_PATH = "/apis/coordination.k8s.io/v1/leases"
#: The lease by which the admission controller shows the updater that it runs (pkg/utils/status).
ADMISSION = "vpa-admission-controller"


@dataclass(frozen=True)
class VerticalWorld:
    """`scenes`: sorted by name; `installed`: the cluster has the kind; `not_known`: what could not be read, with the reason."""

    scenes: tuple[VerticalScene, ...] = ()
    installed: bool = False
    not_known: tuple[str, ...] = ()


class _Reading(Noting):
    def lease(self) -> datetime | None:
        """The last word of an admission controller, in whichever namespace it runs."""

        def read() -> datetime | None:
            found = list_objects(self._api, LEASES_PATH, fields=f"metadata.name={ADMISSION}")
            words = [time_of(spec_of(one).get("renewTime") or created_of(one)) for one in found]
            return max((one for one in words if one is not None), default=None)

        return self.known(f"the lease {ADMISSION}", read)

    def workload(self, item: Vertical) -> tuple[Object | None, str, Sequence[Object]]:
        """The object, why it cannot be read, and its living pods. Raises ApiConnectionLost."""
        resource = RESOURCES_OF_KINDS.get(item.target.kind)
        if resource is None:
            self.not_known.append(f"{item}: the pods of a {item.target.kind} are not looked at")
            return None, "", ()
        try:
            found = find_object(self._api, object_path(f"/apis/apps/v1/{resource}", item.namespace, item.target.name))
            if found is None:
                return None, "it does not exist", ()
            selector = query_of(spec_of(found).get("selector"))
            pods = list_objects(self._api, namespaced(COLLECTIONS["Pod"], item.namespace), labels=selector) if selector else []
        except ApiConnectionLost:
            raise
        except (ApiError, ValueError) as error:
            return None, str(error), ()
        return found, "", [pod for pod in pods if is_alive(pod)]


def read_verticals(
    api: Api,
    minor: int,
    namespaces: Collection[str] | None = None,
    known: Sequence[Object] | None = None,
    horizontal: Sequence[Object] | None = None,
) -> VerticalWorld:
    """All VerticalPodAutoscalers, or those of some namespaces; none if the cluster does not have the kind. `known`, `horizontal`: those
    that are read already or planned, instead of the cluster's; `minor`: of the cluster's version. Raises ApiConnectionLost."""
    reading = _Reading(api)
    try:
        listed = list_objects(api, VPAS_PATH, namespaces) if known is None else known
    except NotFound:
        return VerticalWorld()
    except ApiConnectionLost:
        raise
    except ApiError as error:
        return VerticalWorld((), True, (f"verticalpodautoscalers: {error}",))
    verticals = list(reading.parsed(VPA, Vertical.of, listed))
    if not verticals:
        return VerticalWorld((), True, tuple(reading.not_known))
    if horizontal is None:
        horizontal = reading.optional(HPAS_PATH, namespaces) or ()
    # Those that cannot be read are named where they are judged themselves.
    autoscalers = list(Noting(api).parsed(HPA, Autoscaler.of, horizontal))
    ranges, lease = reading.optional("/api/v1/limitranges", namespaces) or (), reading.lease()
    scenes = []
    for one in verticals:
        item, problem, pods = reading.workload(one)
        others = tuple(other for other in verticals if other is not one and other.workload == one.workload)
        same = tuple(auto for auto in autoscalers if f"{auto.target.kind} {auto.namespace}/{auto.target.name}" == one.workload)
        scenes.append(VerticalScene(one, item, problem, pods, others, same, ranges, minor, lease))
    return VerticalWorld(tuple(scenes), True, tuple(reading.not_known))
