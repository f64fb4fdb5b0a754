"""The desired fields of a kubelet, compared with what it runs with."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.kubelet import find
from roles.engine.proof.effective import UnmetField
from roles.engine.transaction import Refusal
from roles.kubelet_config import model, unmet
from tests.unit.node import node
from tests.unit.node.node import parse

RUNNING = {"maxPods": 110, "systemReserved": {"cpu": "100m", "memory": "1Gi"}, "containerLogMaxSize": "10Mi"}


def check(text: Any) -> list[UnmetField]:
    desired = model.read_fields("n1", {"kubelet_config": text}.get)
    assert desired is not None
    return unmet(desired, find(parse("n1", node.answer())), RUNNING)


@pytest.mark.parametrize(
    "text",
    ["maxPods=110", "containerLogMaxSize=10240Ki", "systemReserved.cpu='0.1'", "maxPods=absent", "readOnlyPort=0", "podsPerCore=absent"],
)
def test_no_difference(text: str) -> None:
    assert check(text) == []


def test_differing_fields_and_entries_of_maps() -> None:
    pods, reserved = check("maxPods=200,systemReserved.cpu=200m,systemReserved.memory=absent")
    assert pods == UnmetField("maxPods", 200, 110) and pods.entries == [pods]
    assert str(pods) == "kubelet runs with maxPods=110, wanted 200"
    assert [(one.path, one.wanted, one.found) for one in reserved.entries] == [
        ("systemReserved.cpu", "200m", "100m"),
        ("systemReserved.memory", None, "1Gi"),
    ]
    assert [str(one) for one in reserved.entries][1] == "systemReserved: memory is 1Gi, wanted (not set)"


def test_a_field_that_this_kubelet_cannot_have_is_refused() -> None:
    with pytest.raises(Refusal, match="maxPodz"):
        check("maxPodz=1")
