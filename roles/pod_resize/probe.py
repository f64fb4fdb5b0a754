"""The probe pods of a check: their manifests, the stages of their resize, and their image. Pure."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML

from roles.engine.kube import Object, namespace_and_name, uid
from roles.engine.kube.pods import node_of
from roles.engine.scripts import filled
from roles.pod_resize import abilities
from roles.pod_resize.plan import PodStep, ResourceChange
from roles.pod_resize.pod_resources import NO_RESTART, RESTART, Resources

KEEP, RESTARTED = "keep", "restart"
POLICIES = ((KEEP, NO_RESTART), (RESTARTED, RESTART))
PREFIX = "daytwo-resize-"
#: Label of the namespaces of checks, of this run and of runs that could not clean up.
LABEL = "daytwo/resize-check"
# Small enough for any node; a CPU limit under 200m can prevent runc from freezing a starting container (cgroup v1).
SMALL: Resources = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}
LARGE: Resources = {"requests": {"cpu": "40m", "memory": "48Mi"}, "limits": {"cpu": "300m", "memory": "96Mi"}}


def namespace(run: str) -> dict[str, Any]:
    labels = {LABEL: run, "app.kubernetes.io/managed-by": "daytwo", "pod-security.kubernetes.io/enforce": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{PREFIX}{run}", "labels": labels}}


def pod(run: str, node: str, image: str) -> dict[str, Any]:
    """The manifest of a node's probe pod."""
    text = filled(
        "resize_probe_pod.yaml.j2",
        name=pod_name(node),
        namespace=f"{PREFIX}{run}",
        node=node,
        image=image,
        containers=POLICIES,
        resources=SMALL,
    )
    found: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return found


def pod_name(node: str) -> str:
    return f"probe-{node}"


def stages(probe: Object, minor: int) -> list[tuple[str, PodStep]]:
    """Up, then down again, one container after the other, so that no step has both a container that must not restart and one that must.
    1.33 cannot lower a memory limit without a restart: there the limit stays up."""
    found = []
    for container, policy in POLICIES:
        down = SMALL
        if policy == NO_RESTART and minor == abilities.NO_LOWER_MEMORY:
            down = {"requests": SMALL["requests"], "limits": {**SMALL["limits"], "memory": LARGE["limits"]["memory"]}}
        for word, before, after in (("up", SMALL, LARGE), ("down", LARGE, down)):
            found.append((f"{container}, {word}", _step(probe, container, before, after, policy)))
    return found


def _step(probe: Object, container: str, before: Resources, after: Resources, policy: str) -> PodStep:
    change = ResourceChange(before, after, policy == RESTART)
    return PodStep(*namespace_and_name(probe), uid(probe), node_of(probe), {container: change})
