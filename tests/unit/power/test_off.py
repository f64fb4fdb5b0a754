"""A node turned off, with an API that may be away at any moment: nothing is shut down before its pods have left and its volumes are
detached."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from roles.engine.api import NoApi
from roles.engine.certificates import CertificateError
from roles.engine.outage import Mark, read_mark
from roles.power import turning
from roles.power.model import PowerData, PowerOptions
from roles.power.turning import POWER_OFF, Turning
from roles.power.witnesses import Seen
from roles.reboot import Booted
from roles.sleeping import Ends
from tests.context import context
from tests.unit.disruption.world import deployment
from tests.unit.outage.cluster import LiveCluster
from tests.unit.outage.world import cordon, node

RUN, BOOT = "r20260102-000000-bbbb", "00000000-53a4-4b4b-9f4f-0123456789ab"
ATTACHED = "/apis/storage.k8s.io/v1/volumeattachments"
ENDS = Ends(datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC))
DETACHED_AFTER = 25


class World(LiveCluster):
    """Two pods on w1, and a volume that is detached some time after they have left. From request number `away` on no API answers."""

    def __init__(self, patch: pytest.MonkeyPatch, away: int = 10**6) -> None:
        super().__init__(patch, node("w1"), node("w2"), *deployment(2, 2))
        self.asked, self.away, self.ordered_at, self.left_at = 0, away, 0.0, 0.0
        self.at_order: dict[str, Any] = {}
        patch.setattr(turning.facts, "order", self._order)
        for name in ("check_running", "_check_taken"):
            patch.setattr(turning, name, lambda *_: None)

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        self.asked += 1
        if self.asked >= self.away:
            raise NoApi("the API is away")
        if path.partition("?")[0] == ATTACHED:
            return {"metadata": {}, "items": self.attachments()}
        return super().get_json(path, timeout, wait=wait)

    def attachments(self) -> list[dict[str, Any]]:
        on = [pod for pod in self.pods() if pod["spec"].get("nodeName") == "w1"]
        self.left_at = self.left_at or (0.0 if on else self.clock.now)
        gone = self.left_at and self.clock.now >= self.left_at + DETACHED_AFTER
        return [] if gone else [{"metadata": {"name": "va"}, "spec": {"nodeName": "w1"}}]

    def _order(self, *_: Any) -> bool:
        self.ordered_at = self.clock.now
        self.at_order = {"pods": [one for one in self.pods() if one["spec"].get("nodeName") == "w1"], "volumes": self.attachments()}
        return True


def turned(world: World, ends: Any = lambda host: ENDS) -> Turning:
    off = Seen(bmc="off", quiet=True, silent=True, lease=60.0)
    witnesses = SimpleNamespace(look=lambda **_: off)
    driver = SimpleNamespace(poll=1)
    machine: Any = SimpleNamespace(host="w1", remote=None, driver=driver, witnesses=lambda *_: witnesses, reaches=lambda: False)
    proof: Any = SimpleNamespace(pods=lambda one: [pod for pod in world.pods() if pod["spec"].get("nodeName") == one.name])
    options = PowerOptions(power_off=("w1",), reason="for the night", drain_timeout=60)
    return Turning(world.session, {"w1": machine}, options, proof, lambda host: [], allow_unproven=False, ends=ends)


def planned(world: World) -> Any:
    item = world.node("w1")
    candidate = SimpleNamespace(node=item, facts=SimpleNamespace(boot=SimpleNamespace(id=BOOT)))
    booted = Booted("w1", "w1", item["metadata"]["uid"])
    return SimpleNamespace(host="w1", name="w1", path="/api/v1/nodes/w1", uid=item["metadata"]["uid"], candidate=candidate, booted=booted)


@pytest.mark.parametrize("drained_by", ["", "r20251224-080000-01d0"])
def test_it_goes_off_when_its_pods_have_left_and_its_volumes_are_detached(monkeypatch: pytest.MonkeyPatch, drained_by: str) -> None:
    """Also one that an earlier run has cordoned, whose cordon it keeps."""
    world = World(monkeypatch)
    if drained_by:
        world.node("w1").update(node("w1", manager="daytwo", mark=drained_by))
    said = turned(world)._off(planned(world), context(run=RUN))
    assert world.ordered_at >= world.left_at + DETACHED_AFTER and world.at_order == {"pods": [], "volumes": []}
    assert "no volume attached, only pods of DaemonSets and static pods left; it stays cordoned" in said
    assert read_mark(world.node("w1")) == ENDS.into(Mark(RUN, POWER_OFF.name, BOOT, drained_by, "for the night"))


def test_an_api_that_is_away_shuts_nothing_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever request is the first without an answer, until the order has been given."""
    whole = World(monkeypatch)
    turned(whole)._off(planned(whole), context(run=RUN))
    assert whole.asked > 10
    for away in range(1, whole.asked + 1):
        world = World(monkeypatch, away)
        plan = planned(world)
        with pytest.raises(Exception, match=r"the API is away"):
            turned(world)._off(plan, context(run=RUN))
        assert not world.ordered_at, away


@pytest.mark.parametrize(("manager", "words"), [("kubectl-cordon", "has cordoned it"), ("", "someone has uncordoned")])
@pytest.mark.parametrize("at", ["before its turn", "while its volumes are detached"])
def test_an_administrators_hand_in_between_keeps_it_on(monkeypatch: pytest.MonkeyPatch, manager: str, words: str, at: str) -> None:
    """Their cordon stays, and that they have uncordoned it, too; an uncordoned node may go off."""
    world = World(monkeypatch)
    plan, there = planned(world), world.node("w1")

    def meddle() -> None:
        other = node("w1", manager=manager)
        there["spec"], there["metadata"]["managedFields"] = other["spec"], other["metadata"].get("managedFields", [])

    if at == "before its turn":
        meddle()
    else:
        listed = world.attachments

        def attachments() -> list[dict[str, Any]]:
            meddle()
            return listed()

        monkeypatch.setattr(world, "attachments", attachments)
    if at == "before its turn" and not manager:
        turned(world)._off(plan, context(run=RUN))
        return
    with pytest.raises(turning.NotDone if at == "before its turn" else Exception, match=words):
        turned(world)._off(plan, context(run=RUN))
    assert not world.ordered_at and cordon(world.node("w1")) == (bool(manager), "")
    assert bool(world.evictions) == (at != "before its turn")


@pytest.mark.parametrize("error", [turning.RemoteError("w1: no answer"), CertificateError("it is not a certificate")])
def test_without_its_dates_it_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(host: str) -> Ends:
        raise error

    world = World(monkeypatch)
    with pytest.raises(turning.NotDone, match=f"its certificates cannot be read.*{error}"):
        turned(world, fails)._off(planned(world), context(run=RUN))
    assert cordon(world.node("w1")) == (False, "") and not world.evictions and not world.ordered_at


def test_a_document_is_of_the_table_only() -> None:
    assert PowerData(format="json").reads_only
    with pytest.raises(ValueError, match="format=json shows the power of all hosts"):
        PowerData(format="json", power_off="w1")
