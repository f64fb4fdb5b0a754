"""No answer of an API, no answer of a node and no value of data crashes a plan: it is refused as data, or it counts.

Each example is a valid world with a few values that the API's schema allows, and nobody expects. Whatever is beyond the schema meets
the boundary of the bridge (tests/unit/bridge/test_unforeseen.py).
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roles.audit.certificates import waiting
from roles.engine import control_plane, kubelet
from roles.engine.api import ApiError
from roles.engine.api.nodes import kubelet_config, node_usage
from roles.engine.autoscaling import ODD, Autoscaler, ScalingWorld, judge
from roles.engine.autoscaling.decide import ScalingScene
from roles.engine.autoscaling.model import LiveScale
from roles.engine.certificates.approval import claimed_by_others
from roles.engine.disruption.budgets import read_status
from roles.engine.inputs import read_host
from roles.engine.inputs.registry import every_model
from roles.engine.kubelet.thresholds import effective
from roles.engine.node import ObservationError
from roles.engine.outage import DrainConsents, plan_drain, read_mark
from roles.engine.transaction import Refusal
from roles.engine.transaction.record import parse_events
from roles.eviction import predict
from roles.kubelet_certificates.facts import services_claims
from roles.right_size.workloads import containers
from tests.unit.autoscaling.world import IN_ALL, KCM, average, hpa, object_metric, pods_metric, samples, utilization
from tests.unit.autoscaling.world import NOW as SCALED_NOW
from tests.unit.autoscaling.world import pods as scaled_pods
from tests.unit.certificates import requests as certificate
from tests.unit.disruption.world import NOW, budget, deployment, of_status, pod, states, world
from tests.unit.eviction.pods import pod as used_pod
from tests.unit.eviction.pods import stats, summary
from tests.unit.fuzz import objects
from tests.unit.fuzz.mutation import TEXTS, anything, mutated, mutated_line
from tests.unit.node import node
from tests.unit.outage.world import NODES
from tests.unit.right_size.world import REPLICA_SET
from tests.unit.right_size.world import pod as sized_pod

MODEST, MANY = 60, 3400
SEEDS = st.integers(0, 2**32)
CONFIGURATION = {"evictionHard": {"memory.available": "100Mi"}, "featureGates": {"A": True}, "enforceNodeAllocatable": ["pods"],
                 "systemReserved": {"cpu": "100m"}, "memorySwap": {"swapBehavior": "NoSwap"}}  # fmt: skip
SERVICE = {
    "metadata": {"name": "a", "namespace": "shop"},
    "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "externalIPs": ["192.0.2.4"], "loadBalancerIP": "192.0.2.5"},
    "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.5"}, {"hostname": "x.example"}]}},
}
REQUEST = {
    "metadata": {"name": "csr-1", "creationTimestamp": "2026-03-01T11:00:00Z", "uid": "x"},
    "spec": {
        "request": base64.b64encode(certificate.pem()).decode(), "signerName": "kubernetes.io/kubelet-serving",
        "usages": list(certificate.USAGES), "username": "system:node:w1", "groups": ["system:nodes"],
    },
    "status": {"conditions": [{"type": "Approved", "status": "True", "lastUpdateTime": "2026-03-01T11:00:00Z"}]},
}  # fmt: skip


def drain(random: Random) -> None:
    items = [
        *deployment(2, 2), budget(minAvailable=1, status=of_status(2, 1, 2, 1, disruptedPods={"web-0": "2026-03-01T12:00:00Z"})),
        pod("alone", node="w1", meta={"deletionTimestamp": "2026-03-01T11:00:00Z", "finalizers": ["x/y"]}),
    ]  # fmt: skip
    changed = [mutated(random, one) for one in (*NODES, *items)]
    consents = DrainConsents(allow_unmanaged=True, allow_local_data=True) if random.random() < 0.5 else DrainConsents()
    try:
        plan_drain(world(*changed), ("w1",), consents, NOW)
        states(*changed[len(NODES) :])
    except Refusal:
        pass


def sizes(random: Random) -> None:
    state = {
        "lastState": {
            "terminated": {
                "reason": "OOMKilled",
                "finishedAt": "2023-11-14T22:13:20Z",
                "startedAt": "2023-11-14T22:13:20Z",
                "containerID": "a",
            }
        }
    }
    changed = mutated(
        random, sized_pod("p", state=state, resources={"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}})
    )
    with contextlib.suppress(ValueError):  # as its docstring says
        containers([changed], {"ReplicaSet": [mutated(random, REPLICA_SET)]})


def marks(random: Random) -> None:
    text = json.dumps({"run": "r1", "boot": "b", "keep": True})
    place = random.randrange(len(text))
    odd = random.choice((text[:place], text[:place] + random.choice(TEXTS) + text[place:], random.choice(TEXTS), "[" * 200_000, "1e999"))
    for name in ("daytwo.dev/outage", "daytwo.dev/cordoned-by", "daytwo.dev/reboot"):
        read_mark({"metadata": {"annotations": {name: odd}}})
    read_status({"status": {"disruptedPods": {"p": random.choice(TEXTS)}}})
    parse_events(odd.encode() + b"\n" + text.encode())


def nodes(random: Random) -> None:
    lines = list(node.answer(style=random.choice(("kubeadm", "plain"))))
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(lines))
        lines[place] = mutated_line(random, lines[place])
    with contextlib.suppress(Refusal, ObservationError):
        control_plane.look(kubelet.find(node.parse("w1", lines)))


def files(random: Random) -> None:
    data = random.choice(
        (b"[" * 200_000, b"{" * 9000, b"a: &a [*a, *a]\n", b"\x00\xff", b"- " * 9000, b"x: 1e999", random.choice(TEXTS).encode())
    )
    lines = node.answer(files={"/var/lib/kubelet/config.yaml": data})
    with contextlib.suppress(Refusal, ObservationError):
        kubelet.find(node.parse("w1", lines))


def values(random: Random) -> None:
    odd: list[Any] = [
        *TEXTS,
        0,
        -1,
        2**70,
        1e308,
        float("inf"),
        float("nan"),
        None,
        True,
        [],
        {},
        [[[]]],
        {"a": {"b": []}},
        [None],
        {"": ""},
        b"x",
        object(),
    ]
    declared = random.choice([one for one in every_model() if one.fields.model_fields])
    keys = tuple(declared.fields.model_fields)
    given_values = {random.choice(keys): random.choice(odd) for _ in range(2)}
    with contextlib.suppress(Refusal):
        read_host("w1", lambda key, default=None: given_values.get(key, default), declared.fields, keys)


def usage(random: Random) -> None:
    """What a kubelet says of itself: root on its node can make it say any JSON."""
    answers = {
        "stats/summary": anything(random, summary(stats("a", memory=5, rootfs=4, logs=3, volumes={"v": 1}, inodes=4))),
        "configz": anything(random, {"kubeletconfig": CONFIGURATION}),
    }
    api = objects.Kubelet(answers, [mutated(random, used_pod("a", requests={"memory": "1Mi"}))])
    with contextlib.suppress(ApiError):
        configuration = kubelet_config(api, "w1")  # type: ignore[arg-type]
        found = node_usage(api, "w1")  # type: ignore[arg-type]
        with contextlib.suppress(ValueError):  # quantities, as its docstring says
            predict.predict(found.summary, found.pods, found.node, effective(configuration))


def scaled(random: Random) -> None:
    world = ScalingWorld((ScalingScene(Autoscaler.of(hpa()), None, "", scaled_pods(2), []),), {}, {}, (), (), ())
    with contextlib.suppress(*ODD):  # the reader names the autoscaler
        item = Autoscaler.of(mutated(random, hpa(utilization(), average(), pods_metric(), object_metric(IN_ALL))))
        live = LiveScale(3, 3, "app=web")
        readings = [samples(10, 20, None)] * 4
        scene = ScalingScene(item, live, "", [mutated(random, one) for one in scaled_pods(3)], readings)
        world = replace(world, scenes=(scene,))
    judge(world, KCM, SCALED_NOW)


def requests(random: Random) -> None:
    item = mutated(random, REQUEST)
    if random.random() < 0.5:
        item.pop("status", None)
    list(waiting([item, REQUEST], NOW, {}))
    services = [mutated(random, SERVICE)]
    claimed_by_others("w1", [mutated(random, NODES[0])], {}, services_claims(services, ["shop"]))


PLANS = (drain, sizes, marks, nodes, files, values, usage, scaled, requests, *objects.PLANS)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.__name__)
@given(seed=SEEDS)
@settings(max_examples=MODEST, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_plan_crashes(plan: Callable[[Random], None], seed: int) -> None:
    plan(Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.__name__)
def test_no_plan_crashes_of_twenty_thousand(plan: Callable[[Random], None]) -> None:
    for seed in range(MANY):
        try:
            plan(Random(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
