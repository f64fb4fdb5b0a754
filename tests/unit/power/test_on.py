"""The cordon of a node while it is turned on and proven, whoever turned it off."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from roles.engine.outage import Mark, read_mark
from roles.power import OffRun
from roles.power.model import PowerOptions
from roles.power.turning import NotOn, OnPlan, Turning
from tests.context import context
from tests.unit.outage.cluster import LiveCluster
from tests.unit.outage.world import cordon, node

RUN, OFF = "r20260102-000000-bbbb", "r20260101-000000-aaaa"
BOOT = "00000000-53a4-4b4b-9f4f-0123456789ab"


class On(Turning):
    """A machine that answers at once. `meanwhile`: its cordon and mark while it is proven."""

    def __init__(self, cluster: LiveCluster, unsettled: list[str]) -> None:
        self.cluster, self.meanwhile = cluster, (False, "")
        proof: Any = SimpleNamespace(prove=lambda *_: self._look())
        super().__init__(cluster.session, {}, PowerOptions(power_on=("w1",)), proof, lambda host: unsettled, allow_unproven=False)

    def _await_boot(self, *_: Any) -> Any:
        return SimpleNamespace(id="another")

    def _look(self) -> str:
        self.meanwhile = cordon(self.cluster.node("w1"))
        return "proven"


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize(
    ("manager", "mark", "purpose", "after"),
    [
        ("", "", "power-on", False),
        ("", Mark(OFF, "power-off", BOOT).text(), "power-off", False),
        ("daytwo", Mark(OFF, "power-off", BOOT).text(), "power-off", False),
        ("daytwo", Mark(OFF, "power-on").text(), "power-on", False),
        ("kubectl-cordon", "", "", True),
        ("daytwo", OFF, "drain", True),
    ],
    ids=["by hand", "off, uncordoned since", "off", "again", "an administrator's", "drained"],
)
def test_it_is_cordoned_until_it_is_proven(
    monkeypatch: pytest.MonkeyPatch, manager: str, mark: str, purpose: str, after: bool, settled: bool
) -> None:
    """A node that nobody had cordoned, or that a run turned off, is uncordoned at the end; any other cordon stays, with its mark."""
    cluster = LiveCluster(monkeypatch, node("w1", manager=manager, mark=mark))
    found = read_mark(cluster.node("w1"))
    machine: Any = SimpleNamespace(host="w1")
    turning = On(cluster, [] if settled else ["gates: MemoryQoS is off"])
    plan = OnPlan(machine, cluster.node("w1"), found if found and found.purpose.startswith("power") else None)
    if settled:
        turning._on(plan, context(run=RUN))
    else:
        with pytest.raises(NotOn, match="MemoryQoS"):
            turning._on(plan, context(run=RUN))
    assert turning.meanwhile[0]
    assert cordon(cluster.node("w1"))[0] is (after or not settled)
    left = read_mark(cluster.node("w1"))
    assert (left.purpose if left else "") == (purpose if after or not settled else "")


def test_the_undo_of_a_power_off_skips_the_machines_that_are_off() -> None:
    run: Any = OffRun.__new__(OffRun)
    run.info = SimpleNamespace(id="r1")
    assert run.undo.endswith("deploys/rollback.py --data run=r1 --data skip_unreachable=true")
