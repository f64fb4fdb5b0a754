"""What tests of autoscalers plant and ask: workloads of one pod, autoscalers by hand, the two deploys."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.operator import Outcome, data, pyinfra
from tests.lab import Lab, images

Item = dict[str, Any]
CPU: Item = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}


def container(name: str, cpu: str | None, **more: Any) -> Item:
    """With a request of CPU, or without any."""
    made: Item = {"name": name, "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never", **more}
    if cpu is not None:
        made["resources"] = {"requests": {"cpu": cpu, "memory": "8Mi"}}
    return made


def workload(namespace: str, name: str, *containers: Item, pod: Item | None = None, kind: str = "Deployment", **more: Any) -> Item:
    """`pod`: further fields of the pod's spec; `more`: of the workload's."""
    labels = {"app": name}
    spec = {"terminationGracePeriodSeconds": 1, "containers": list(containers), **(pod or {})}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}, **more},
    }


def hpa(namespace: str, name: str, target: str, *metrics: Item, kind: str = "Deployment", api: str = "apps/v1", **more: Any) -> Item:
    """`more`: further fields of its spec."""
    spec = {
        "scaleTargetRef": {"apiVersion": api, "kind": kind, "name": target},
        "maxReplicas": 4,
        "metrics": list(metrics or [CPU]),
        **more,
    }
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


def kind(name: str, group: str, version: str, plural: str, **more: Any) -> Item:
    """The definition of a kind; `more`: further fields of its version."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    one = {"name": version, "served": True, "storage": True, "schema": schema, **more}
    names = {"plural": plural, "singular": name.lower(), "kind": name}
    metadata = {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"}}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [one]}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec}


def apply(lab: Lab, *items: Item) -> None:
    lab.kubectl("apply", "--server-side", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))


def autoscalers(entries: Item, *arguments: str) -> Outcome:
    """The deploy, with these entries of its data."""
    return pyinfra("autoscalers", *data(autoscalers=json.dumps(entries)), *arguments, "-y")


def document(*namespaces: str) -> tuple[int, Item]:
    """The exit status of the status deploy, and its JSON."""
    done = pyinfra("autoscaler_status", *data(format="json", namespaces=",".join(namespaces)), "-y")
    assert "{" in done.out, done.all
    found: Item = json.loads(done.out[done.out.index("{") : done.out.rindex("}") + 1])
    return done.code, found


def status(*namespaces: str) -> tuple[int, dict[str, Item]]:
    """The exit status, and the autoscalers by name."""
    code, found = document(*namespaces)
    return code, {one["name"]: one for one in found["autoscalers"]}


def problems(found: Item) -> dict[str, Item]:
    """Of one autoscaler, by rule."""
    return {one["rule"]: one for one in found["problems"]}
