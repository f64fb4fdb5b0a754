"""Whose a pod is: one answer, for a drain, for a budget, for what a pod uses and for the users of a PriorityClass."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.disruption import DisruptionObjects
from roles.engine.outage.workloads import Workloads
from roles.right_size.workloads import workload_of


def owned(kind: str, name: str, uid: str, owner: dict[str, Any] | None = None) -> dict[str, Any]:
    refs = [{**owner, "controller": True}] if owner else []
    return {"metadata": {"namespace": "shop", "name": name, "uid": uid, "ownerReferences": refs}, "spec": {"containers": []}}


def ref(**changed: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs", **changed}


def live(pod: dict[str, Any]) -> DisruptionObjects:
    of_deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "dep"}
    sets = [owned("ReplicaSet", "web-1", "rs", of_deployment)]
    return DisruptionObjects({"Pod": [pod], "ReplicaSet": sets, "Deployment": [owned("Deployment", "web", "dep")]})


def test_a_pod_of_a_replica_set_is_its_deployments() -> None:
    pod = owned("Pod", "web-1-x", "p", ref())
    there = live(pod)
    found, controller = Workloads(there).of(pod), there.controller_of(pod)
    assert (there.top(pod), str(found), str(controller)) == ("dep", "Deployment shop/web", "Deployment shop/web")
    assert str(workload_of(pod, there)) == "Deployment shop/web"


@pytest.mark.parametrize(
    "changed",
    [{"name": "other"}, {"uid": "other"}, {"kind": "StatefulSet"}, {"apiVersion": "evil.example/v1"}],
    ids=lambda one: next(iter(one)),
)
def test_an_owner_counts_only_if_group_kind_name_and_uid_agree(changed: dict[str, str]) -> None:
    """Whoever may create a pod writes its owners."""
    pod = owned("Pod", "web-1-x", "p", ref(**changed))
    there = live(pod)
    assert there.meant(None) is None and there.top(pod) != "dep"
    assert there.pods_of("Deployment", "dep") == []
    found = Workloads(there).of(pod)
    assert found is None or (found.kind, found.found) == (ref(**changed)["kind"], None)
    assert "Deployment" not in str(workload_of(pod, there))
