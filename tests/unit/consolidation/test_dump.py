"""The cluster without any name, and with the same plan."""

from __future__ import annotations

import json
from typing import Any

from roles.consolidation.dump import as_dump
from roles.consolidation.plan import Consolidation
from roles.engine.bounds import read_json
from roles.engine.packing import plan, read
from tests.unit.consolidation.cluster import keeper, nodes, planned, pod
from tests.unit.disruption.world import budget, of_status
from tests.unit.placement.cluster import affinity, node, spread

SECRETS = ("secret", "acme", "tiger")


def found() -> Consolidation:
    there = [node("acme-w1", zone="acme-a", rack="tiger"), *nodes("acme-w2", "acme-w3", zone="acme-b")]
    there[0]["status"]["images"] = [{"names": ["registry.acme/secret"]}]
    there[0]["status"]["allocatable"]["acme.com/secret"] = "2"
    odd: dict[str, Any] = {
        "nodeSelector": {"rack": "tiger"},
        "tolerations": [{"key": "acme", "value": "tiger", "operator": "Equal", "effect": "NoSchedule"}],
        "topologySpreadConstraints": spread(app="secret"),
        "affinity": affinity("podAntiAffinity", app="tiger"),
        "volumes": [{"name": "acme", "hostPath": {"path": "/srv/secret"}}, {"name": "t", "secret": {"secretName": "tiger"}}],
        "containers": [{"name": "acme", "image": "acme/secret", "env": [{"name": "PASSWORD", "value": "tiger"}],
                        "resources": {"requests": {"cpu": "250m", "acme.com/secret": "1"}}}],
    }  # fmt: skip
    meta = {
        "labels": {"app": "secret", "acme.com/team": "tiger"},
        "annotations": {"acme.com/token": "secret", "karpenter.sh/do-not-disrupt": "tiger"},
    }
    pods = [pod("secret-1", "acme-w1", meta=meta, **odd), *(pod(f"acme-{number}", f"acme-w{1 + number}") for number in (1, 2))]
    protects = budget("secret", selector={"matchLabels": {"app": "secret"}}, minAvailable="50%", status=of_status(3, 1, 3, 2))
    return planned(keeper(*there, *pods, protects), {"acme-w1": 5, "acme-w2": 3, "acme-w3": 1})


def test_no_name_gets_out() -> None:
    text = as_dump(found().problem, b"salt")
    assert not [word for word in SECRETS if word in text.lower()]


def test_what_matched_still_matches() -> None:
    document = read_json(as_dump(found().problem, b"salt"))
    first, *_ = document["pods"]
    labels = first["metadata"]["labels"]
    assert document["pdbs"][0]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert first["spec"]["nodeSelector"].items() <= document["nodes"][0]["metadata"]["labels"].items()
    assert first["spec"]["nodeName"] == document["nodes"][0]["metadata"]["name"] in document["cost"]
    assert first["spec"]["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"
    (extended,) = [name for name in first["spec"]["containers"][0]["resources"]["requests"] if name != "cpu"]
    assert document["nodes"][0]["status"]["allocatable"][extended] == "2"


def test_another_salt_gives_other_names() -> None:
    one, other = (json.loads(as_dump(found().problem, salt))["cost"] for salt in (b"a", b"b"))
    assert not set(one) & set(other) and sorted(one.values()) == sorted(other.values())


def test_the_planner_reads_it_and_finds_the_same() -> None:
    there = [*nodes("w1", "w2", "w3"), *(pod(f"web-{number}", f"w{number}") for number in (1, 2, 3)), pod("a", "w2", owner=None)]
    one = planned(keeper(*there), {"w1": 300, "w2": 200, "w3": 100})
    again = plan(read(read_json(as_dump(one.problem, b"salt"))))
    assert len(again.goes) == len(one.plan.goes) and again.cost == one.plan.cost
