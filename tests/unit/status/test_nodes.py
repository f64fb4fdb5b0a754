"""The nodes at a glance: who has cordoned them, and since when, and what needs attention."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.node import Observation
from roles.engine.node.glance import Glance, NewestChange
from roles.engine.node_changes import cordoned_for_change
from roles.engine.outage import node_fate
from roles.status.nodes import HEADERS, NodeGlance, row

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


def glance(item: dict[str, Any] | None, changing: str = "", at_glance: Glance | None = None) -> NodeGlance:
    """`changing`: the run of a change in flight."""
    seen = Observation(
        "w1", 0, epoch=1000, changes={f"{changing}-w1-kubelet": {"run": changing, "state": "applied"}} if changing else {}, glance=at_glance
    )
    fate = node_fate(item) if item is not None else None
    return NodeGlance("w1", seen, item, fate, cordoned_for_change(fate) if fate is not None else "")


def cells(one: NodeGlance) -> dict[str, str]:
    return dict(zip(HEADERS, row(one.report(), NOW), strict=True))


def sentences(one: NodeGlance) -> list[str]:
    return [*one.attention(one.report(), NOW)]


def test_a_node_that_is_well_needs_nothing() -> None:
    one = glance(node(MemoryPressure="False"), at_glance=Glance(signs={"zypper": False}))
    assert cells(one) == {
        "node": "w1", "ready": "yes", "cordoned": "-", "pressure": "-", "reboot": "no", "last run": "-", "run in flight": "-",
        "kubelet": "v1.36.3", "runtime": "containerd://2.0",
    }  # fmt: skip
    assert sentences(one) == []


def test_what_the_api_does_not_say_is_not_known() -> None:
    one = glance(None, RUN)
    assert [*cells(one).values()] == ["w1", *["not known"] * 4, "-", RUN, *["not known"] * 2]
    assert sentences(one) == []


@pytest.mark.parametrize(
    ("seen", "reboot", "last", "sentence"),
    [
        (Glance(), "not known", "-", ""),
        (Glance(signs={"reboot-required": True}, packages=("libc6",)), "NEEDED", "-", "w1 needs a reboot (it has /run/reboot-required (libc6)); its plan: pyinfra INVENTORY deploys/reboot.py --data nodes=w1 --dry"),
        (Glance("6.1.0-18-amd64", "debian", ("6.1.0-20-amd64",)), "NEEDED", "-", "kernel 6.1.0-20-amd64 is installed, 6.1.0-18-amd64 runs"),
        (Glance(newest=NewestChange("r1-w1-kubelet", 400, {"run": "r1", "state": "confirmed"})), "not known", "confirmed, 10m ago", ""),
        (Glance(newest=NewestChange("r1-w1-kubelet", None, {})), "not known", "lost", ""),
        (Glance(newest=NewestChange("r1-w1-kubelet", 5000, {"state": "\x1b[2J"})), "not known", "\\x1b[2J, 0s ago", ""),
    ],
)  # fmt: skip
def test_a_reboot_that_is_needed_and_the_last_run(seen: Glance, reboot: str, last: str, sentence: str) -> None:
    one = glance(node(), at_glance=seen)
    assert (cells(one)["reboot"], cells(one)["last run"]) == (reboot, last)
    assert sentence in " ".join(sentences(one)) and bool(sentences(one)) == bool(sentence)


def test_of_a_machine_that_is_off_the_api_still_speaks() -> None:
    item = node(ready="Unknown", manager="daytwo", mark=f'{{"run": "{RUN}", "purpose": "drain"}}')
    one = NodeGlance("w1", None, item, node_fate(item), "")
    assert [*cells(one).values()] == [
        "w1", "NO (KubeletReady)", f"by run {RUN}, for 3h", "-", "not known", "not known", "not known", "v1.36.3", "containerd://2.0",
    ]  # fmt: skip
    assert ["not Ready" in sentences(one)[0], "uncordon.py --data nodes=node-1" in sentences(one)[1]] == [True, True]
    assert not one.report().answers
    still = node()
    assert cells(NodeGlance("w1", None, still, node_fate(still), ""))["ready"] == "yes, says the API, but it does not answer"


def test_a_machine_that_daytwo_turned_off_has_a_due_date_and_nothing_else_is_wrong() -> None:
    """And its kubelet, too old for the API server, does not hide the date."""
    item = node(ready="Unknown", manager="daytwo", mark=f'{{"run": "{RUN}", "purpose": "power-off", "why": "for the night"}}')
    one = NodeGlance("w1", None, item, node_fate(item), "")
    (said,) = sentences(one)
    assert (
        said.startswith(f"w1: off since 2025-12-31 21:00Z by run {RUN}: for the night; nobody has read")
        and "wake it before 2026-02-05" in said
    )
    assert said.endswith("pyinfra INVENTORY deploys/power.py --data power_on=w1") and one.report().wake_by == "2026-02-05T21:00:00+00:00"


RUN = "r20260101-000000-aaaa"


@pytest.mark.parametrize(
    ("item", "in_flight", "cell", "sentence"),
    [
        (node(manager="kubectl"), "", "by kubectl, for 3h", "w1: cordoned by kubectl, for 3h; if nobody works on it: pyinfra INVENTORY deploys/uncordon.py --data nodes=node-1 --data force=true"),
        (node(manager="kubectl", time=None), "", "by kubectl", "w1: cordoned by kubectl; if nobody works on it: "),
        (node(manager="daytwo", mark=f'{{"run": "{RUN}", "purpose": "drain"}}'), (), f"by run {RUN}, for 3h", "when the work on it is done: pyinfra INVENTORY deploys/uncordon.py --data nodes=node-1"),
        (node(manager="daytwo", mark=f'{{"run": "{RUN}", "purpose": "change"}}'), RUN, f"by run {RUN} (change), for 3h", "its change is in flight"),
        (node(manager="daytwo", mark=f'{{"run": "{RUN}", "purpose": "change"}}'), (), f"by run {RUN} (change), for 3h", "or only uncordon: pyinfra"),
    ],
)  # fmt: skip
def test_a_cordon_says_whose_it_is_since_when_and_what_ends_it(item: dict[str, Any], in_flight: str, cell: str, sentence: str) -> None:
    one = glance(item, in_flight)
    assert cells(one)["cordoned"] == cell
    (said,) = sentences(one)
    assert sentence in said


def test_a_condition_of_somebody_else_is_no_pressure() -> None:
    """A distribution's own may be True where all is well."""
    one = glance(node(EtcdIsVoter="True"))
    assert cells(one)["pressure"] == "-" and sentences(one) == []


def test_a_message_of_any_length_does_not_fill_the_screen() -> None:
    item = node(ready="False")
    item["status"]["conditions"][0]["message"] = "x" * 10_000
    (said,) = sentences(glance(item))
    assert len(said) < 400


def test_what_is_not_well_is_said_with_the_deploy_that_shows_more() -> None:
    one = glance(node(ready="False", DiskPressure="True"))
    assert cells(one)["ready"] == "NO (KubeletReady)" and cells(one)["pressure"] == "DiskPressure"
    not_ready, pressure = sentences(one)
    assert "w1 is not Ready (KubeletReady: " in not_ready and "deploys/checks.py" in not_ready
    assert "w1 has DiskPressure" in pressure and "deploys/eviction_order.py" in pressure
