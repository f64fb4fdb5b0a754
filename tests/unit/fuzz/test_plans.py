"""No answer of an API, no answer of a node and no value of data crashes a plan: it is refused as data, or it counts.

Each example is a valid world with a few values that the API's schema allows, and nobody expects. Whatever is beyond the schema meets
the boundary of the bridge (tests/unit/bridge/test_unforeseen.py).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roles.engine import control_plane, kubelet
from roles.engine.disruption.budgets import read_status
from roles.engine.draining import DrainConsents, plan_drain
from roles.engine.inputs import read_host
from roles.engine.inputs.registry import every_model
from roles.engine.node import ObservationError
from roles.engine.transaction import Refusal
from roles.engine.transaction.record import parse_events
from roles.reboot.plan import read_mark
from roles.right_size.workloads import containers
from tests.unit.disruption.world import NOW, budget, deployment, of_status, pod, states, world
from tests.unit.draining.test_plan import NODES
from tests.unit.fuzz.mutation import TEXTS, mutated, mutated_line
from tests.unit.node import node
from tests.unit.right_size.world import REPLICA_SET
from tests.unit.right_size.world import pod as sized_pod

MODEST, MANY = 60, 3400
SEEDS = st.integers(0, 2**32)


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
    read_mark({"metadata": {"annotations": {"daytwo.dev/reboot": odd}}})
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


PLANS = (drain, sizes, marks, nodes, files, values)


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
