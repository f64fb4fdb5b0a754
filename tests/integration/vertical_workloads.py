"""Workloads with vertical autoscalers, and the deploy that makes these."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.operator import Outcome, data, pyinfra
from tests.lab import Lab, images

NAMESPACE = "t-vertical"
BOUNDS = {"min": {"cpu": "150m"}, "max": {"cpu": "300m", "memory": "64Mi"}}
IN_PLACE = {"mode": "InPlaceOrRecreate", **BOUNDS}


def deployment(name: str, replicas: int = 1) -> dict[str, Any]:
    resources = {"requests": {"cpu": "50m", "memory": "32Mi"}}
    container = {"name": "app", "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never", "resources": resources}
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def apply(lab: Lab, *items: dict[str, Any]) -> None:
    lab.kubectl("apply", "--server-side", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))


def vertical(*arguments: str, **entries: Any) -> Outcome:
    """`entries`: by the name of a Deployment."""
    wanted = {f"{NAMESPACE}/deployment/{name}": entry for name, entry in entries.items()}
    return pyinfra("autoscalers", *data(vertical_autoscalers=json.dumps(wanted)), *arguments, "-y")
