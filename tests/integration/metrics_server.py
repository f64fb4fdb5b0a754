"""metrics-server as tests install it: what comes before, the deploy, its undo, and the nodes that have metrics."""

from __future__ import annotations

import json
import re

from tests.integration.operator import Outcome, data, pyinfra
from tests.lab import Lab

IMAGE = "registry.local/metrics-server:v0.9.0"
API = "v1beta1.metrics.k8s.io"


def serve(*arguments: str, image: str = IMAGE, **more: str) -> Outcome:
    return pyinfra("metrics_server", *data(metrics_server=image, **more), *arguments)


def undo(found: Outcome) -> None:
    named = re.search(r"Plan of run (\S+):", found.out)
    assert named, found.all
    pyinfra("rollback", *data(run=named[1]), "-y").ended(0)


def listed(lab: Lab) -> set[str]:
    """The nodes that have metrics."""
    items = json.loads(lab.kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes"))["items"]
    return {one["metadata"]["name"] for one in items}


def prepare() -> None:
    pyinfra("control_plane_flags", *data(control_plane_flags="kube-apiserver:enable-aggregator-routing=true"), "-y").ended(0)
    pyinfra("kubelet_certificates", "-y").ended(0)
