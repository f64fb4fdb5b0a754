"""Reading the node's answer, and the real script that prints it."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from roles.checks import judge
from roles.checks.evidence import KUBELET, Health, _unclaimed, of_node, of_observation, parse, with_api
from roles.desired import NodeDesired
from roles.engine.api import NoApi
from roles.engine.api.errors import Unreachable
from roles.engine.node import ObservationError
from roles.engine.remote import Answer
from roles.engine.scripts import templates
from tests.unit.checks.world import APISERVER, evidence
from tests.unit.node import node
from tests.unit.node.node import parse as observe


def answer(*lines: str) -> list[str]:
    return [*lines, "end"]


def test_moments_and_health() -> None:
    properties = node.b64("ActiveState=active\nMainPID=7\nNRestarts=0\n")
    moments, health = parse("w1", answer(f"moment 10.5 77 {properties}", f"health kubelet 200 {node.b64('ok')}=", "health x 000 ="))
    assert moments[0].identity == ("7", 77, "0") and moments[0].uptime == 10.5
    assert health == {"kubelet": Health("200", "ok"), "x": Health("000", "")}


@pytest.mark.parametrize(
    "lines", [[], ["end"], ["health x 200 =", "end"], ["moment 1 2 ="], ["moment x 2 =", "end"], ["health kubelet 200", "end"]]
)
def test_an_incomplete_or_invalid_answer_is_refused(lines: list[str]) -> None:
    with pytest.raises(ObservationError, match="w1: "):
        parse("w1", lines)


def test_the_script_asks_and_answers_on_any_posix_shell() -> None:
    endpoints = [("kubelet", "http://127.0.0.1:1/healthz", "", ""), ("a'b", "http://127.0.0.1:1/it's", "/no/such", "/no/such")]
    script = templates().get_template("checks.sh.j2").render(unit="no-such.service", seconds=1, endpoints=endpoints)
    done = subprocess.run(["sh", "-s"], input=script, text=True, capture_output=True, check=True)
    moments, health = parse("w1", done.stdout.splitlines())
    assert len(moments) == 2 and moments[0].start_ticks == 0
    assert {name: found.status for name, found in health.items()} == {"kubelet": "000", "a'b": "000"}


def test_root_is_needed() -> None:
    assert "daytwo needs root on the node and runs as uid 1000" in of_observation(observe("w1", node.answer(uid=1000))).why_not


class Cluster:
    """A cluster that counts its questions."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[str] = []
        self._error = error

    def _answer(self, what: str) -> dict[str, Any]:
        self.asked.append(what)
        if self._error:
            raise self._error
        return {}

    def effective(self, host: str, component: str, node_name: str) -> dict[str, Any]:
        return self._answer(f"gates of {component}")

    def configuration(self, node_name: str) -> dict[str, Any]:
        return self._answer("configz")

    def node(self, node_name: str) -> dict[str, Any]:
        return self._answer("node")


def test_only_healthy_processes_are_asked_through_the_api() -> None:
    found = evidence(components={"kube-apiserver": APISERVER, "kube-scheduler": ("kube-scheduler",)})
    cluster = Cluster()
    made = with_api(replace(found, health={**found.health, "kube-scheduler": Health("000", "")}), cluster, "")
    assert cluster.asked == ["gates of kubelet", "gates of kube-apiserver", "configz", "node"]
    assert made.effective["kube-scheduler"] == "it is not healthy, so it was not asked" and made.effective[KUBELET] == {}
    assert made.node == {}
    cluster = Cluster()
    made = with_api(replace(found, health={**found.health, KUBELET: Health("500", "")}), cluster, "")
    assert made.configuration == made.node == "its kubelet is not healthy, so it was not asked"
    assert cluster.asked == ["gates of kube-apiserver", "gates of kube-scheduler"]


@pytest.mark.parametrize("error", [NoApi("all are away"), Unreachable("cp1", "/", "no answer", "look")])
def test_an_api_that_does_not_answer_is_reported_and_raises_nothing(error: Exception) -> None:
    made = with_api(evidence(), Cluster(error), "")
    assert made.configuration == made.node == made.effective[KUBELET] == str(error)


@pytest.mark.parametrize("in_group", [True, False])
def test_a_control_plane_that_the_inventory_does_not_know_fails(in_group: bool) -> None:
    remote: Any = SimpleNamespace(name="w1", is_control_plane=in_group)
    found = _unclaimed(remote, evidence(components={"kube-apiserver": APISERVER}))
    result = next(one for one in judge.node(found, NodeDesired()) if one.check == "control-plane-runs")
    assert result.outcome == ("pass" if in_group else "fail")
    assert in_group or "it runs kube-apiserver as static pods, and the inventory does not have it in the group control_plane" in result.why


def test_without_an_api_none_is_asked() -> None:
    cluster = Cluster()
    assert with_api(evidence(), cluster, "there is none").configuration == "there is none" and cluster.asked == []


def test_a_node_that_is_read_without_root_is_reported_and_not_asked_more() -> None:
    class Remote:
        name = "w1"
        asked = 0

        def run(self, script: str, **more: object) -> Answer:
            self.asked += 1
            return Answer(0, node.answer(uid=1000), [])

    remote: Any = Remote()
    assert "needs root" in of_node(remote).why_not and remote.asked == 1
