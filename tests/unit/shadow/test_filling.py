"""What is copied into a shadow control plane, and what never is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roles.engine.shadow import KINDS_OF_SHADOW, filling

SECRET = "hunter2"


def pod(**spec: Any) -> dict[str, Any]:
    container = {
        "name": "c", "image": "web:1", "resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80, "containerPort": 80}],
        "env": [{"name": "PASSWORD", "value": SECRET}], "command": ["run", SECRET], "args": [SECRET],
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}},
        "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
    }  # fmt: skip
    return {
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7", "labels": {"app": "web"},
            "annotations": {"token": SECRET}, "managedFields": [{"manager": SECRET}],
        },
        "spec": {
            "nodeName": "w1", "schedulerName": "default-scheduler", "priority": 5, "tolerations": [{"operator": "Exists"}],
            "containers": [container], "initContainers": [{**container, "name": "i", "restartPolicy": "Always"}],
            "imagePullSecrets": [{"name": SECRET}], "serviceAccountName": SECRET,
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
                {"name": "s", "secret": {"secretName": SECRET}},
                {"name": "c", "csi": {"driver": "d", "volumeAttributes": {"password": SECRET}, "nodePublishSecretRef": {"name": SECRET}}},
            ],
            **spec,
        },
        "status": {"phase": "Running", "podIP": SECRET, "message": SECRET, "containerStatuses": [{"name": "c", "state": {"x": SECRET}}]},
    }  # fmt: skip


def test_of_a_pod_is_copied_what_a_scheduler_reads() -> None:
    copy = filling.contents({"Pod": [pod()]})["/registry/pods/shop/web"]
    assert SECRET not in json.dumps(copy)
    one = {"image": "web:1", "ports": [{"containerPort": 80, "hostPort": 80}], "resources": {"requests": {"cpu": "1"}}}
    assert copy["metadata"] == {"name": "web", "namespace": "shop", "uid": "u1", "labels": {"app": "web"}}
    assert copy["spec"] == {
        "nodeName": "w1", "schedulerName": "default-scheduler", "priority": 5, "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", **one}], "initContainers": [{"name": "i", "restartPolicy": "Always", **one}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "d"}}, {"name": "s", "emptyDir": {}}, {"name": "c", "csi": {"driver": "d"}},
        ],
    }  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in KINDS_OF_SHADOW if kind != "Pod"])
def test_of_no_other_kind_is_anything_copied_that_is_not_named(kind: str) -> None:
    item = {
        "metadata": {"name": "x", "annotations": {"a": SECRET}, "finalizers": [SECRET]},
        "spec": {"other": SECRET, "template": {"spec": {"containers": [{"env": SECRET}]}}, "clusterIP": SECRET, "csi": {"volumeAttributes": SECRET},
                 "nfs": {"server": SECRET}},
        "status": {"other": SECRET, "addresses": [SECRET]},
        "parameters": {"password": SECRET}, "data": SECRET, "mountOptions": [SECRET],
    }  # fmt: skip
    (copy,) = filling.contents({kind: [item]}).values()
    assert SECRET not in json.dumps(copy) and copy["kind"] == kind and copy["apiVersion"]


def test_the_annotations_by_which_a_claim_counts_as_bound_are_copied() -> None:
    item = {
        "metadata": {"name": "d", "namespace": "shop", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "v"},
    }
    (copy,) = filling.contents({"PersistentVolumeClaim": [item]}).values()
    assert copy["metadata"]["annotations"] == {"pv.kubernetes.io/bind-completed": "yes"}


@pytest.mark.parametrize("name", ["..", "a/../../b", "a/b", "", "a\nb"])
def test_a_name_cannot_lead_to_another_key(name: str) -> None:
    item = pod()
    item["metadata"]["name"] = name
    with pytest.raises(ValueError, match="no object can have"):
        filling.contents({"Pod": [{**item, "metadata": {**item["metadata"], "namespace": ""}}] if not name else [item]})


def test_a_pod_that_is_over_is_left_out() -> None:
    assert filling.contents({"Pod": [{**pod(), "status": {"phase": "Succeeded"}}]}) == {}


def test_a_new_pod_has_no_node_and_never_preempts() -> None:
    made = filling.as_new(pod(preemptionPolicy="PreemptLowerPriority"), "web-2", "u2", "2026-01-01T00:00:00Z")
    assert "nodeName" not in made["spec"] and made["spec"]["preemptionPolicy"] == "Never"
    assert (made["metadata"]["name"], made["metadata"]["uid"], made["status"]) == ("web-2", "u2", {"phase": "Pending"})
    assert SECRET not in json.dumps(made)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, ""),
        ({"schedulerName": "mine"}, "mine"),
        ({"resourceClaims": [{"name": "gpu"}]}, "resource claims"),
        ({"schedulingGates": [{"name": "g"}]}, "gates"),
        ({"volumes": [{"name": "t", "ephemeral": {}}]}, "t would be provisioned"),
        ({"volumes": [{"name": "t", "persistentVolumeClaim": {"claimName": "free"}}]}, "free has no volume"),
        ({"volumes": [{"name": "t", "persistentVolumeClaim": {"claimName": "gone"}}]}, "gone has no volume"),
    ],
)
def test_what_the_shadow_cannot_tell(spec: dict[str, Any], words: str) -> None:
    claims = {"shop/d": {"metadata": {"name": "d"}, "spec": {"volumeName": "v"}}, "shop/free": {"metadata": {"name": "free"}, "spec": {}}}
    found = filling.unjudged(pod(**spec), ["default-scheduler"], claims)
    assert words in found and bool(words) == bool(found)


def test_a_cordon_keeps_other_taints_and_comes_once() -> None:
    other = {"key": "a", "effect": "NoExecute"}
    once = filling.cordoned({"metadata": {"name": "w1"}, "spec": {"taints": [other]}})
    assert filling.cordoned(once) == once and once["spec"]["unschedulable"] and other in once["spec"]["taints"]
