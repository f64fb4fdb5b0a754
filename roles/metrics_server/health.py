"""Whether the metrics API works: its APIService, fresh metrics of every Ready node, metrics of pods. The judgement is pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from roles.engine.api import ApiError, NoApi
from roles.engine.bounds import EARLIEST, moment
from roles.engine.disruption import cluster_time
from roles.engine.folding import counted, shortened
from roles.engine.harmless import one_line
from roles.engine.kube import Object, condition, holds, is_ready
from roles.engine.kube.fields import containers_of, name_of, pod_template, spec_of
from roles.engine.node.virtual import virtual_mark
from roles.engine.objects import Session
from roles.metrics_server.manifests import API_SERVICE_PATH, RESOLUTION_SECONDS

METRICS = "/apis/metrics.k8s.io/v1beta1"
#: A sample may be as old as the resolution, the scrape before it, and the age of the leases that show the cluster's time.
_SLACK_SECONDS = 30


@dataclass(frozen=True)
class MetricsHealth:
    """`problems`: why the metrics API does not work, each in a sentence; empty: `proof` says how that was seen."""

    problems: tuple[str, ...]
    proof: str = ""


def look(session: Session, resolution: float = RESOLUTION_SECONDS) -> MetricsHealth:
    """Raises ApiFailure if the API itself cannot be asked."""
    service = session.fetch(API_SERVICE_PATH)
    if problem := unavailable(service):
        return MetricsHealth((problem,))
    nodes = session.fetch_all("/api/v1/nodes")
    try:
        metrics = session.asked(lambda api: api.get_json(f"{METRICS}/nodes")).get("items")
        pods = session.asked(lambda api: api.get_json(f"{METRICS}/pods")).get("items")
    except NoApi:
        raise
    except ApiError as error:
        return MetricsHealth((f"the metrics API gives no answer: {error.rule}",))
    return judge(nodes, metrics, pods, session.asked(cluster_time), resolution)


def unavailable(service: Object | None) -> str:
    """Why the APIService is not available; "" if it is."""
    if service is None:
        return "the cluster has no metrics API (APIService v1beta1.metrics.k8s.io)"
    if not (one := condition(service, "Available")):
        return "its APIService has no condition yet"
    if holds(service, "Available"):
        return ""
    return f"its APIService is not available: {one_line(str(one.get('reason')))}: {one_line(str(one.get('message')))}"


def judge(nodes: Sequence[Object], metrics: Any, pods: Any, now: datetime, resolution: float) -> MetricsHealth:
    """Every Ready node with a kubelet must have metrics that are not older than two scrapes. `metrics`, `pods`: the items of the answers,
    of any shape: anybody may have registered what answers."""
    ready = [name_of(node) for node in nodes if is_ready(node) and virtual_mark(node) is None]
    found = {_name(one): one for one in _items(metrics)}
    problems = []
    if missing := [name for name in ready if name not in found]:
        problems.append(f"no metrics of {_names(missing)}, which {'is' if len(missing) == 1 else 'are'} Ready")
    ages = {name: (now - _time(found[name])).total_seconds() for name in ready if name in found}
    if old := [name for name, age in ages.items() if age > 2 * resolution + _SLACK_SECONDS]:
        problems.append(f"the metrics of {_names(old)} are old: {max(ages.values()):.0f} s")
    if ahead := [name for name, age in ages.items() if age < -2 * resolution - _SLACK_SECONDS]:
        problems.append(
            f"the metrics of {_names(ahead)} are dated {-min(ages.values()):.0f} s in the future: check the clocks of the nodes"
        )
    if not _items(pods):
        problems.append("no metrics of any pod")
    if problems:
        return MetricsHealth(tuple(problems))
    windows = sorted(str(found[name].get("window")) for name in ready)
    oldest = max(0.0, max(ages.values(), default=0.0))
    window = one_line(windows[-1]) if windows else "-"
    listed = f"{len(ready)} of {len(ready)} Ready nodes, the oldest sample {oldest:.0f} s old, window up to {window}"
    return MetricsHealth((), f"APIService available; {listed}; {counted(len(_items(pods)), 'pod')}")


def _items(answer: Any) -> list[Mapping[str, Any]]:
    return [one for one in answer if isinstance(one, Mapping)] if isinstance(answer, list) else []


def _name(one: Mapping[str, Any]) -> str:
    metadata = one.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, Mapping) else ""


def _time(one: Mapping[str, Any]) -> datetime:
    return moment(one.get("timestamp")) or EARLIEST


def _names(names: Sequence[str]) -> str:
    return shortened(list(map(one_line, names)))


# ---- an installation of somebody else

#: What to do where the data ask for a metrics-server, and somebody else serves the metrics API.
WAY_TO_OWN = (
    "metrics_server in the data has no effect, also with force=true. To replace that installation: remove it with the tool that made it"
    " (helm uninstall, kubectl delete -f), so that its APIService is gone too, and run this again. Meanwhile nothing serves the metrics"
    " API, and autoscalers that need it do nothing"
)


@dataclass(frozen=True)
class Installed:
    """What serves the metrics API. `owner`: who set the APIService up; `where`: NAMESPACE/SERVICE; `deployment`: None if none is found."""

    owner: str
    where: str
    deployment: Object | None


def remarks(installed: Installed, places: int, has_budget: bool) -> list[str]:
    """What an operator should know about somebody else's installation; nothing of it is changed."""
    if installed.deployment is None:
        return [f"{installed.where} has no Deployment that daytwo can find: its flags are not known"]
    spec = spec_of(installed.deployment)
    containers = containers_of(pod_template(installed.deployment))
    words = [str(word) for one in containers for word in (*(one.get("command") or ()), *(one.get("args") or ()))]
    found = []
    if any(re.fullmatch(r"--kubelet-insecure-tls(=true)?", word) for word in words):
        found.append(
            "it runs with --kubelet-insecure-tls: it trusts whatever answers at a node's port 10250: run"
            " deploys/kubelet_certificates.py, then remove the flag"
        )
    replicas = spec.get("replicas")
    if (1 if replicas is None else int(replicas)) < 2 <= places:
        found.append("it has one replica: while its node is away, no autoscaler works")
    elif not has_budget and places > 1:
        found.append("no PodDisruptionBudget covers its pods: a drain may end all of them at once")
    if not any((one.get("resources") or {}).get("requests") for one in containers):
        found.append("it has no requests: under pressure it is evicted among the first")
    return found


def resolution(deployment: Object | None) -> float:
    """Seconds between two scrapes, from its flags; 60 if they do not say it (cmd/metrics-server/app/options)."""
    containers = containers_of(pod_template(deployment or {}))
    for one in containers:
        for word in (*(one.get("command") or ()), *(one.get("args") or ())):
            if found := re.fullmatch(r"--metric-resolution=([0-9]+)(s|m)", str(word)):
                return float(found[1]) * (60 if found[2] == "m" else 1)
    return 60.0
