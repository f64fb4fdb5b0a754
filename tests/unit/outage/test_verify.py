"""What a drain asks the cluster's own scheduler, and what it makes of the answer."""

from __future__ import annotations

from roles.drain import verify
from roles.engine.kube.fields import name_of, spec_of
from roles.engine.outage import DrainConsents, places, plan_drain
from roles.engine.shadow import PlacedPod, Verdict
from tests.unit.disruption.world import NOW, deployment, pod, world
from tests.unit.outage.world import NODES, single

PENDING = PlacedPod("shop/db-0", "pending", why="0/3 nodes are available: 3 Insufficient cpu")
VERDICT = Verdict((PlacedPod("shop/web-1", "placed", "w2"), PENDING, PlacedPod("shop/gpu", "not judged", why="it has resource claims")))


def test_a_pod_without_a_node_refuses_the_drain_unless_it_may_wait() -> None:
    (found,) = verify.refusals(VERDICT, DrainConsents())
    assert "shop/db-0" in found and "3 Insufficient cpu" in found and "allow_pending=true" in found
    assert verify.refusals(VERDICT, DrainConsents(allow_pending=True)) == []
    assert verify.refusals(Verdict(VERDICT.pods[:1]), DrainConsents()) == []


def test_the_answer_in_the_plan() -> None:
    text = " ".join(verify.text(VERDICT).split())
    assert "kube-scheduler does not agree: 1 pod placed" in text and "shop/web-1" not in text
    assert "WARNING: verify=scheduler: shop/db-0: pending: 0/3 nodes" in text and "shop/gpu: not judged: it has resource claims" in text
    assert verify.text(Verdict(VERDICT.pods[:1])).strip() == "kube-scheduler agrees: 1 pod placed"


def test_each_pod_that_is_recreated_is_asked_about_as_its_controller_creates_it() -> None:
    live = world(*deployment(2, 2), pod("bare"), *NODES)
    plan = plan_drain(live, ["w1"], DrainConsents(allow_unmanaged=True), NOW)
    found = {one.name: new for wave in places.replacements(plan, live) for one, new in wave}
    assert {*found} == {"shop/web-1-0", "shop/web-1-1", "shop/bare"} and found["shop/bare"] is None
    new = found["shop/web-1-0"]
    assert new is not None and name_of(new) == "web-1-0" and "nodeName" not in spec_of(new)


def test_a_pod_that_is_replaced_first_is_in_the_first_wave() -> None:
    live = world(*single(), *deployment(2, 2, "other"), *NODES)
    plan = plan_drain(live, ["w1"], DrainConsents(surge=True), NOW)
    first, *_ = places.replacements(plan, live)
    assert [(one.fate, one.name) for one, _ in first] == [("surged", "shop/web-1-0")]
