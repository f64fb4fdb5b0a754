"""Pure: whether a scheduler's own configuration (kube-scheduler --config) decides otherwise than a default one about where pods fit.

What only scores nodes does not count: a pod that fits is scheduled, on whichever node. Sources (Kubernetes 1.36):
pkg/scheduler/apis/config/v1/{default_plugins,defaults}.go, pkg/scheduler/apis/config/types.go; cmd/kube-scheduler/app/server.go (configz).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from roles.engine.harmless import one_line

DEFAULT = "default-scheduler"
#: The filters that daytwo models: each profile has to have all of them.
_FILTERS = frozenset((
    "InterPodAffinity", "NodeAffinity", "NodeName", "NodePorts", "NodeResourcesFit", "NodeUnschedulable", "NodeVolumeLimits",
    "PodTopologySpread", "TaintToleration", "VolumeBinding", "VolumeRestrictions", "VolumeZone",
))  # fmt: skip
#: Further plugins of Kubernetes. Those that filter are about pods that daytwo does not judge, or about scores.
_OTHERS = frozenset((
    "AzureDiskLimits", "DefaultBinder", "DefaultPreemption", "DynamicResources", "EBSLimits", "GCEPDLimits", "GangScheduling",
    "ImageLocality", "NodeDeclaredFeatures", "NodeResourcesBalancedAllocation", "PrioritySort", "SchedulingGates",
))  # fmt: skip
#: Extension points (in small letters) that decide whether a pod is placed, and not which node is the best.
_DECIDE = ("multipoint", "preenqueue", "prefilter", "filter", "reserve", "permit", "prebind", "bind")
#: Arguments of plugins (in small letters) that change what fits, if they are set.
_ARGUMENTS = {"NodeAffinity": ("addedaffinity",), "NodeResourcesFit": ("ignoredresources", "ignoredresourcegroups")}
_VERBS = ("filterverb", "preemptverb", "bindverb")


def differs(configuration: Mapping[str, Any]) -> str:
    """Why placement cannot judge pods of the default scheduler; "" if it can. `configuration`: the answer of /configz. Its keys are those
    of Go's fields or of the file, which differ in capitals only."""
    found = _small(configuration)
    found = found.get("componentconfig") or found if isinstance(found, Mapping) else {}
    profiles = [one for one in _listed(found, "profiles") if str(one.get("schedulername") or DEFAULT) == DEFAULT]
    if not profiles:
        return f"no profile {DEFAULT} is in it"
    reasons = [*_extenders(found), *(why for one in profiles for why in _of_profile(one))]
    return one_line(next(iter(reasons), ""))


def _small(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key).lower(): _small(one) for key, one in value.items()}
    return [_small(one) for one in value] if isinstance(value, list) else value


def _listed(of: Any, key: str) -> list[Mapping[str, Any]]:
    found = of.get(key) if isinstance(of, Mapping) else None
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _extenders(found: Mapping[str, Any]) -> Iterator[str]:
    for one in _listed(found, "extenders"):
        if any(one.get(verb) for verb in _VERBS):
            yield f"the extender {one.get('urlprefix')} decides too"


def _of_profile(profile: Mapping[str, Any]) -> Iterator[str]:
    plugins = profile.get("plugins")
    points = plugins if isinstance(plugins, Mapping) else {}
    on = {point: _names(points.get(point), "enabled") for point in _DECIDE}
    off = {point: _names(points.get(point), "disabled") for point in _DECIDE}
    for point in _DECIDE:
        for name in sorted(on[point] - _FILTERS - _OTHERS):
            yield f"the plugin {name} decides too"
    for name in sorted(_FILTERS | {"SchedulingGates"}):
        point = "filter" if name in _FILTERS else "preenqueue"
        if not {name, "*"} & off[point] and name in on["multipoint"] | on[point]:
            continue
        yield f"the plugin {name} is off"
    yield from _arguments(_listed(profile, "pluginconfig"))


def _names(point: Any, key: str) -> set[str]:
    return {str(one.get("name")) for one in _listed(point, key)}


def _arguments(given: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for one in given:
        name, arguments = str(one.get("name")), one.get("args")
        if not isinstance(arguments, Mapping):
            continue
        for field in _ARGUMENTS.get(name, ()):
            if arguments.get(field):
                yield f"{name} has {field}"
        hard = [rule for rule in _listed(arguments, "defaultconstraints") if rule.get("whenunsatisfiable") != "ScheduleAnyway"]
        if name == "PodTopologySpread" and hard:
            yield "PodTopologySpread has default constraints that forbid nodes"
