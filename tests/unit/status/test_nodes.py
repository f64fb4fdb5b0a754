"""The nodes at a glance: who has cordoned them, and since when, and what needs attention."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.node_changes import cordoned_for_change
from roles.engine.outage import node_fate
from roles.status.nodes import HEADERS, NodeGlance

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z
MARK = "daytwo.dev/outage"


def node(
    *, ready: str = "True", manager: str = "", mark: str = "", time: str | None = "2025-12-31T21:00:00Z", **pressures: str
) -> dict[str, Any]:
    """`manager` has cordoned it, with a mark or without."""
    conditions = [{"type": "Ready", "status": ready, "reason": "KubeletReady", "message": "x\x1b[2Jy"}]
    conditions += [{"type": name, "status": status} for name, status in pressures.items()]
    entry = {"manager": manager, "operation": "Apply", "time": time, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    return {
        "metadata": {"name": "node-1", "annotations": {MARK: mark} if mark else {}, "managedFields": [entry] if manager else []},
        "spec": {"unschedulable": True} if manager else {},
        "status": {"conditions": conditions, "nodeInfo": {"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://2.0"}},
    }


def glance(item: dict[str, Any] | None, *in_flight: str) -> NodeGlance:
    fate = node_fate(item) if item is not None else None
    return NodeGlance("w1", item, fate, cordoned_for_change(fate) if fate is not None else "", in_flight)


def test_a_node_that_is_well_needs_nothing() -> None:
    one = glance(node(MemoryPressure="False"))
    assert dict(zip(HEADERS, one.row(NOW), strict=True)) == {
        "node": "w1", "ready": "yes", "cordoned": "-", "pressure": "-", "in flight": "-", "kubelet": "v1.36.3", "runtime": "containerd://2.0",
    }  # fmt: skip
    assert [*one.attention(NOW)] == []


def test_what_the_api_does_not_tell_is_not_known() -> None:
    one = glance(None, "a change is being applied")
    assert one.row(NOW) == ["w1", "not known", "not known", "not known", "1", "not known", "not known"]
    assert [*one.attention(NOW)] == []


RUN = "r20260101-000000-aaaa"


@pytest.mark.parametrize(
    ("item", "in_flight", "cell", "sentence"),
    [
        (node(manager="kubectl"), (), "by kubectl, for 3h", "w1: cordoned by kubectl, for 3h; if nobody works on it: pyinfra INVENTORY deploys/uncordon.py --data nodes=node-1 --data force=true"),
        (node(manager="kubectl", time=None), (), "by kubectl", "w1: cordoned by kubectl; if nobody works on it: "),
        (node(manager="daytwo", mark=f'{{"run": "{RUN}", "purpose": "drain"}}'), (), f"by run {RUN}, for 3h", "when the work on it is done: pyinfra INVENTORY deploys/uncordon.py --data nodes=node-1"),
        (node(manager="daytwo", mark=f'{{"run": "{RUN}", "purpose": "change"}}'), ("it is applied",), f"by run {RUN} (change), for 3h", "its change is in flight"),
        (node(manager="daytwo", mark=f'{{"run": "{RUN}", "purpose": "change"}}'), (), f"by run {RUN} (change), for 3h", "or only uncordon: pyinfra"),
    ],
)  # fmt: skip
def test_a_cordon_says_whose_it_is_since_when_and_what_ends_it(
    item: dict[str, Any], in_flight: tuple[str, ...], cell: str, sentence: str
) -> None:
    one = glance(item, *in_flight)
    assert one.row(NOW)[HEADERS.index("cordoned")] == cell
    (said,) = one.attention(NOW)
    assert sentence in said


def test_a_condition_of_somebody_else_is_no_pressure() -> None:
    """A distribution's own may be True where all is well."""
    one = glance(node(EtcdIsVoter="True"))
    assert one.row(NOW)[3] == "-" and [*one.attention(NOW)] == []


def test_a_message_of_any_length_does_not_fill_the_screen() -> None:
    item = node(ready="False")
    item["status"]["conditions"][0]["message"] = "x" * 10_000
    (said,) = glance(item).attention(NOW)
    assert len(said) < 400


def test_what_is_not_well_is_said_with_the_deploy_that_shows_more() -> None:
    one = glance(node(ready="False", DiskPressure="True"))
    assert one.row(NOW)[1] == "NO (KubeletReady)" and one.row(NOW)[3] == "DiskPressure"
    not_ready, pressure = one.attention(NOW)
    assert "w1 is not Ready (KubeletReady: " in not_ready and "deploys/checks.py" in not_ready
    assert "w1 has DiskPressure" in pressure and "deploys/eviction_order.py" in pressure
