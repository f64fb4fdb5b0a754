"""Reads what the controller reads for each autoscaler: its target's scale, the pods, the metrics; and what decides about them besides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from roles.engine.api import Api, ApiConnectionLost, ApiError, NotFound, find_object, list_objects
from roles.engine.api.errors import Invalid
from roles.engine.autoscaling.decide import ScalingScene, shared
from roles.engine.autoscaling.model import HPA, ODD, Autoscaler, LiveScale, MetricSpec, NoReading, Reading, Ref, ScalingController
from roles.engine.autoscaling.parse import (
    API_OF,
    CUSTOM,
    EXTERNAL,
    NOT_REGISTERED,
    RESOURCE,
    custom_samples,
    custom_total,
    external_total,
    no_answer,
    resource_samples,
)
from roles.engine.autoscaling.past import EVENT, history_of
from roles.engine.kube import Object, condition, full_name, holds, namespace_and_name
from roles.engine.kube.fields import spec_of
from roles.engine.kube.selectors import query_of

T = TypeVar("T")
HPAS_PATH = "/apis/autoscaling/v2/horizontalpodautoscalers"
VPAS_PATH = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers"
APISERVICES_PATH = "/apis/apiregistration.k8s.io/v1/apiservices"
# The version of each metrics API that the controller asks for; of the custom one the first that is served.
_VERSIONS = {RESOURCE: ("v1beta1",), CUSTOM: ("v1beta2", "v1beta1"), EXTERNAL: ("v1beta1",)}


@dataclass(frozen=True)
class Target:
    """What an autoscaler scales: the object, as the API has it; None if it was not found or not read."""

    path: str = ""
    item: Object | None = None


@dataclass(frozen=True)
class ScalingWorld:
    """What was read. `scenes`: one for each autoscaler, sorted; `targets`: by the autoscaler's key; `metrics_apis`: why a metrics API does
    not serve, by group, "" if it does; `vpas`, `quotas`, `limit_ranges`: None if they could not be read. `not_known`: what could not be
    read, with the reason."""

    scenes: tuple[ScalingScene, ...] = ()
    targets: Mapping[str, Target] = field(default_factory=dict)
    metrics_apis: Mapping[str, str] = field(default_factory=dict)
    vpas: Sequence[Object] | None = None
    quotas: Sequence[Object] | None = None
    limit_ranges: Sequence[Object] | None = None
    not_known: tuple[str, ...] = ()


def read_autoscalers(
    api: Api, controller: ScalingController, now: datetime, namespaces: Collection[str] | None = None, known: Sequence[Object] | None = None
) -> ScalingWorld:  # fmt: skip
    """All autoscalers, or those of some namespaces, with what the controller would read for them. `known`: autoscalers that are read
    already, or that are planned. Raises ApiError if the autoscalers themselves cannot be read, and ApiConnectionLost."""
    listed = list_objects(api, HPAS_PATH, namespaces) if known is None else known
    reader = _Reader(api, controller, now)
    scenes, targets = [], {}
    for autoscaler in reader.parsed(HPA, Autoscaler.of, listed):
        scene, targets[autoscaler.key] = reader.scene(autoscaler)
        scenes.append(scene)
    by_key = shared({one.autoscaler.key: one.pods for one in scenes})
    scenes = [replace(one, shared_with=by_key[one.autoscaler.key]) for one in scenes]
    spaces = {one.autoscaler.namespace for one in scenes}
    return ScalingWorld(
        tuple(scenes),
        targets,
        reader.metrics_apis({API_OF[metric.type] for one in scenes for metric in one.autoscaler.metrics if metric.type in API_OF}),
        reader.optional(VPAS_PATH, None if namespaces is None else spaces) if scenes else (),
        reader.optional("/api/v1/resourcequotas", spaces),
        reader.optional("/api/v1/limitranges", spaces),
        tuple(reader.not_known),
    )


class Noting:
    """Reads from an API; what cannot be read is in `not_known`, with the reason. A lost connection is raised: the caller asks again."""

    def __init__(self, api: Api) -> None:
        self.not_known: list[str] = []
        self._api = api

    def optional(self, path: str, namespaces: Collection[str] | None) -> list[dict[str, Any]] | None:
        """A collection; none if its kind does not exist; None if it cannot be read."""
        missing: list[dict[str, Any]] = []
        return self.known(path.rpartition("/")[2], lambda: list_objects(self._api, path, namespaces), missing)

    def known(self, what: str, read: Callable[[], T], missing: T | None = None) -> T | None:
        """What `read` returns; `missing` if there is no such thing; None if it cannot be read (`what`, for people; "" if the error says
        it)."""
        try:
            return read()
        except NotFound:
            return missing
        except ApiConnectionLost:
            raise
        except (ApiError, ValueError) as error:
            self.not_known.append(f"{what}: {error}" if what else str(error))
            return None

    def parsed(self, kind: str, of: Callable[[Object], T], items: Iterable[Object]) -> Iterator[T]:
        """By namespace and name; without those that cannot be read."""
        for item in sorted(items, key=namespace_and_name):
            try:
                yield of(item)
            except ODD as error:
                self.not_known.append(f"{kind} {full_name(item)}: it cannot be read: {error}")


class _Reader(Noting):
    def __init__(self, api: Api, controller: ScalingController, now: datetime) -> None:
        super().__init__(api)
        self._controller, self._now = controller, now
        self._resources: dict[str, list[Mapping[str, Any]]] = {}
        self._groups: dict[str, list[str]] = {}

    # ---- the target

    def scene(self, autoscaler: Autoscaler) -> tuple[ScalingScene, Target]:
        try:
            path = self._path(autoscaler.namespace, autoscaler.target)
            raw = self._api.get_json(f"{path}/scale")
            scale = LiveScale.of(raw)
        except ApiConnectionLost:
            raise
        except (ApiError, _Unknown, ValueError) as error:
            return ScalingScene(autoscaler, scale_problem=str(error)), Target()
        pods: list[dict[str, Any]] = []
        problem = ""
        try:
            if scale.selector:
                pods = list_objects(self._api, f"/api/v1/namespaces/{_part(autoscaler.namespace)}/pods", labels=scale.selector)
        except Invalid as error:
            problem = error.rule
        readings = tuple(self._reading(metric, autoscaler, scale) for metric in autoscaler.metrics)
        history = history_of(autoscaler, scale, self._controller, self._rescales(autoscaler))
        target = Target(path, self.known("", lambda: find_object(self._api, path)))
        return ScalingScene(autoscaler, scale, "", pods, readings, (), problem, history), target

    def _path(self, namespace: str, ref: Ref) -> str:
        """The path of an object, as the controller finds it: by group and kind, in whatever version. Raises _Unknown, ApiError."""
        for root in self._roots(ref.group):
            for one in self._of(root):
                if one.get("kind") == ref.kind and "/" not in str(one.get("name")):
                    return f"{root}/namespaces/{_part(namespace)}/{_part(str(one['name']))}/{_part(ref.name)}"
        group = f' in group "{ref.group}"' if ref.group else ' in version ""'
        raise _Unknown(f'no matches for kind "{ref.kind}"{group}')

    def _roots(self, group: str) -> list[str]:
        if not group:
            return ["/api/v1"]
        if group not in self._groups:
            try:
                found = self._api.get_json(f"/apis/{_part(group)}")
                preferred = str((found.get("preferredVersion") or {}).get("version") or "")
                versions = [str(one.get("version")) for one in found.get("versions") or ()]
                self._groups[group] = sorted(versions, key=lambda one: one != preferred)
            except NotFound:
                self._groups[group] = []
        return [f"/apis/{_part(group)}/{_part(version)}" for version in self._groups[group]]

    def _of(self, root: str) -> list[Mapping[str, Any]]:
        if root not in self._resources:
            try:
                self._resources[root] = self._api.get_json(root).get("resources") or []
            except NotFound:
                self._resources[root] = []
        return self._resources[root]

    def _rescales(self, autoscaler: Autoscaler) -> Sequence[Object]:
        """The events of changes of the count. Best effort: they only make more certain what the controller remembers."""
        if autoscaler.status.last_scale is None:
            return ()
        chosen = f"involvedObject.name={autoscaler.name},reason={EVENT}"
        try:
            return list_objects(self._api, f"/api/v1/namespaces/{_part(autoscaler.namespace)}/events", fields=chosen)
        except ApiConnectionLost:
            raise
        except ApiError:
            return ()

    # ---- metrics

    def metrics_apis(self, groups: Collection[str]) -> dict[str, str]:
        """Why each metrics API does not serve, "" if it does."""
        return {group: self._metrics_api(group) for group in sorted(groups)}

    def _metrics_api(self, group: str) -> str:
        why = NOT_REGISTERED
        for version in _VERSIONS[group]:
            try:
                item = find_object(self._api, f"{APISERVICES_PATH}/{version}.{group}")
            except ApiConnectionLost:
                raise
            except ApiError as error:
                return f"its APIService cannot be read: {error}"
            if item is None:
                continue
            if holds(item, "Available"):
                return ""
            found = condition(item, "Available")
            service = spec_of(item).get("service") or {}
            where = f" (Service {service.get('namespace')}/{service.get('name')})" if service else ""
            said = f"{found.get('reason') or 'no condition'}: {found.get('message') or '-'}"
            why = f"APIService {version}.{group} is not available{where}: {said}"
        return why

    def _reading(self, metric: MetricSpec, autoscaler: Autoscaler, scale: LiveScale) -> Reading:
        group = API_OF.get(metric.type)
        if group is None:
            return NoReading("")
        why = ""
        for version in _VERSIONS[group]:
            try:
                return self._asked(f"/apis/{group}/{version}", metric, autoscaler, scale)
            except ApiConnectionLost:
                raise
            except NotFound as error:
                why = why or error.rule
            except (ApiError, _Unknown) as error:
                return no_answer(group, error.rule if isinstance(error, ApiError) else str(error))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                return no_answer(group, f"its answer has another shape ({type(error).__name__}: {error})")
        return no_answer(group, why)

    def _asked(self, root: str, metric: MetricSpec, autoscaler: Autoscaler, scale: LiveScale) -> Reading:
        """Raises _Unknown, ApiError, and what the parsers raise."""
        where, own = f"{root}/namespaces/{_part(autoscaler.namespace)}", query_of(metric.selector)
        match metric.type:
            case "Pods":
                query = _query(labelSelector=scale.selector, metricLabelSelector=own)
                return custom_samples(self._api.get_json(f"{where}/pods/%2A/{_part(metric.name)}{query}"))
            case "Object":
                assert metric.described is not None
                return custom_total(
                    self._api.get_json(f"{where}/{self._described(metric.described)}/{_part(metric.name)}{_query(metricLabelSelector=own)}")
                )
            case "External":
                return external_total(self._api.get_json(f"{where}/{_part(metric.name)}{_query(labelSelector=own)}"))
            case _:
                return resource_samples(
                    metric, self._api.get_json(f"{where}/pods{_query(labelSelector=scale.selector)}"), self._controller.minor
                )

    def _described(self, ref: Ref) -> str:
        if not ref.group and ref.kind == "Namespace":
            return "metrics"
        for root in self._roots(ref.group):
            for one in self._of(root):
                if one.get("kind") == ref.kind and "/" not in str(one.get("name")):
                    resource = f"{one['name']}.{ref.group}" if ref.group else str(one["name"])
                    return f"{_part(resource)}/{_part(ref.name)}"
        raise _Unknown(f'unable to map kind {ref.kind}.{ref.group} to resource: no matches for kind "{ref.kind}" in group "{ref.group}"')


class _Unknown(Exception):
    """The cluster has no such kind."""


def _part(text: str) -> str:
    return quote(text, safe="")


def _query(**values: str) -> str:
    found = {key: value for key, value in values.items() if value}
    return f"?{urlencode(found)}" if found else ""
