"""The grammar of eviction settings against a real kubelet: what it refuses daytwo refuses, and what daytwo takes it starts with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

from roles.engine.kubelet.thresholds import effective
from roles.engine.transaction import Refusal
from roles.eviction import model, wanted
from roles.eviction.wanted import GRACE, HARD, RECLAIM, SOFT
from tests.integration.operator import wait_for
from tests.lab import Lab

pytestmark = pytest.mark.lab

NODE = "w2"
CONFIG = "/etc/kubernetes-node/kubelet.yaml"
KEYS = {HARD: "eviction_hard", SOFT: "eviction_soft", GRACE: "eviction_soft_grace_period", RECLAIM: "eviction_minimum_reclaim"}

# What a hard or soft threshold may look like. None evicts where it is taken, but for those that daytwo refuses.
TEXTS = (
    *("50Mi", "0.5Gi", "1e6", "+7Mi", "1000", "1%", "0.5%", "+1%", "0%", "100%", "0.0%", "1e-2%", "512Ki", "20M", "0.5", "500m"),
    *("0", "-1", "-1Gi", "101%", "-1%", "ten%", "%", "10%%", "500mb", "1GiB", "", "1 Gi", "0x10", "Mi", "1.2.3", "1_000", "8Mi "),
)
GRACES = ("1m30s", "90s", "1h", "1500ms", "1.5h", "-1m", "90", "1d", "", "s", "1m 30s", "0")
RECLAIMS = ("0", "50Mi", "5%", "100%", "150%", "1e3", "-1", "0%", "-5%", "ten", "")

CASES: list[dict[str, dict[str, str]]] = [
    *({HARD: {signal: text}} for text in TEXTS for signal in ("memory.available", "nodefs.inodesFree")),
    *({HARD: {signal: "1%"}} for signal in ("imagefs.available", "pid.available", "containerfs.available", "allocatableMemory.available")),
    *({HARD: {signal: "1%"}} for signal in ("memory.free", "NodeFS.Available", "nodefs.inodesfree", "pods")),
    {SOFT: {"memory.available": "60Mi"}},
    {SOFT: {"memory.available": "0%"}},
    {GRACE: {"memory.available": "1m"}},
    *({SOFT: {"memory.available": "60Mi"}, GRACE: {"memory.available": text}} for text in GRACES),
    *({SOFT: {"memory.available": text}, GRACE: {"memory.available": "1m"}} for text in ("60Mi", "1%", "101%", "-1", "x", "0%")),
    {SOFT: {"memory.free": "60Mi"}, GRACE: {"memory.free": "1m"}},
    {SOFT: {"memory.available": "60Mi"}, GRACE: {"memory.available": "1m", "memory.free": "1m"}},
    *({HARD: {"memory.available": "50Mi"}, RECLAIM: {"memory.available": text}} for text in RECLAIMS),
    {RECLAIM: {"memory.free": "1Mi"}},
]


class Kubelet:
    """The kubelet of a node that has no pods, started with one configuration after the other."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.pristine = lab.run(NODE, f"cat {CONFIG}").stdout
        self.base = {key: value for key, value in YAML(typ="safe").load(self.pristine).items() if not key.startswith("eviction")}

    def start(self, content: str) -> bool:
        """Whether it starts with this configuration: it serves, or systemd waits to start it again."""
        self.lab.run(NODE, f"cat >{CONFIG}; systemctl reset-failed kubelet; systemctl restart kubelet", input=content)
        look = "systemctl show -P SubState kubelet; curl -fs http://127.0.0.1:10248/healthz"
        told: list[str] = []

        def came_to_an_end() -> bool:
            told[:] = self.lab.run(NODE, look, check=False).stdout.split()
            return "auto-restart" in told or "failed" in told or "ok" in told

        wait_for(came_to_an_end, f"the kubelet of {NODE} to start or to end")
        return "ok" in told

    def why(self) -> str:
        return self.lab.run(NODE, "journalctl -u kubelet -n 40 -o cat --no-pager | grep -E '^E|err=|rror' | tail -n 3", check=False).stdout


@pytest.fixture
def kubelet(lab: Lab) -> Iterator[Kubelet]:
    made = Kubelet(lab)
    assert made.start(json.dumps(made.base)), made.why()
    yield made
    assert made.start(made.pristine), made.why()


def takes(case: dict[str, dict[str, str]], defaults: dict[str, Any]) -> str:
    """What daytwo has against these settings; "" where it takes them."""
    try:
        desired = model.read_thresholds(NODE, {KEYS[field]: signals for field, signals in case.items()}.get)
    except Refusal as refusal:
        return str(refusal)
    assert desired is not None
    return "; ".join(str(refusal) for refusal in wanted.problems(NODE, desired, defaults, {}))


def starts(configuration: dict[str, Any]) -> bool:
    """Whether a kubelet would start with it, by roles.engine.kubelet.thresholds."""
    try:
        effective(configuration)
    except ValueError:
        return False
    return True


@pytest.mark.slow
def test_the_kubelet_and_daytwo_agree(kubelet: Kubelet) -> None:
    wrong, both = [], {True: 0, False: 0}
    for number, case in enumerate(CASES, 1):
        real = kubelet.start(json.dumps({**kubelet.base, **case}))
        both[real] += 1
        against = takes(case, {})
        print(
            f"{number:3}/{len(CASES)} {json.dumps(case)}: the kubelet {'starts' if real else 'does not start'}; daytwo: {against or 'takes it'}"
        )
        if not against and not real:
            wrong.append(f"{case}: daytwo takes it, and the kubelet does not start: {kubelet.why()}")
        if real != starts(case):
            wrong.append(
                f"{case}: the kubelet {'starts' if real else 'does not start'}, and its arithmetic here says otherwise: {kubelet.why()}"
            )
    assert not wrong, "\n".join(wrong)
    assert both[True] > 20 and both[False] > 20, both
