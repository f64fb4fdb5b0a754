"""What a drain does on the API: what it records before it evicts, when no further eviction begins, and what it reads again and again."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from roles.engine.api import Forbidden
from roles.engine.context import Fields
from roles.engine.objects import NotDone
from roles.engine.outage import DrainConsents, evicting, plan_drain, plan_text, reading
from roles.engine.outage.drainer import CORDON, DELETE, EVICT, PROVE
from tests.context import context
from tests.unit.clock import Clock
from tests.unit.disruption.world import NOW, budget, deployment, of_status, pod, workload
from tests.unit.outage.api import ClusterApi, Write
from tests.unit.outage.driven import INNER, Drain
from tests.unit.outage.world import node


def cluster(*more: Mapping[str, Any]) -> ClusterApi:
    """A Deployment with one pod, on w1; its replacement comes to w2."""
    api = ClusterApi(node("w1"), node("w2"), *deployment(1, 1), *more)

    def replaced(write: Write) -> None:
        if write[1].endswith("web-1-0/eviction"):
            api.add(pod("web-1-1", INNER, node="w2"))

    api.after = replaced
    return api


def late(name: str = "late", **more: Any) -> dict[str, Any]:
    return pod(name, app="late", **more)


def test_what_is_left_on_a_node_is_counted_by_what_it_is_and_not_by_its_name() -> None:
    daemons = workload("DaemonSet", "static-finished")
    drain = Drain(cluster(daemons, pod("logs", daemons)))
    drain.step(CORDON)
    drain.step(EVICT)
    assert drain.step(PROVE).startswith("1 DaemonSet pod; ")


# ---- no eviction begins once the run halts


def test_a_pod_whose_turn_comes_with_the_halt_is_not_evicted() -> None:
    api = cluster()
    with pytest.raises(evicting.NotEvicted, match=r"not evicted \(interrupted by the operator\)"):
        Drain(api).step(EVICT, halts=True)
    assert api.evicted() == []


def test_a_pod_that_arrives_is_recorded_before_it_is_evicted() -> None:
    api = cluster()
    drain = Drain(api, DrainConsents(drain_timeout=60, allow_unmanaged=True))
    drain.step(CORDON)
    drain.step(EVICT)
    api.add(late())
    api.after = lambda write: noted.append(drain.begun[-1])
    noted: list[Any] = []
    assert "1 workload serves elsewhere" in drain.step(PROVE)
    assert api.evicted() == ["web-1-0", "late"] and drain.drainer.moved_late == ["shop/late"]
    assert noted == [(PROVE, [{"path": [EVICT, "shop/late"], "before": "uid-late", "after": None}])]


def test_a_pod_that_somebody_has_deleted_with_a_long_grace_period_ends_sooner_by_consent() -> None:
    api = cluster()
    slow = pod("slow", INNER, spec={"terminationGracePeriodSeconds": 100000})
    slow["metadata"] |= {"deletionTimestamp": "2026-03-02T15:46:40Z", "deletionGracePeriodSeconds": 100000}
    api.add(slow)
    drain = Drain(api, DrainConsents(drain_timeout=60, allow_unmanaged=True, max_grace=30))
    drain.step(CORDON)
    drain.step(EVICT)
    assert "1 workload serves elsewhere" in drain.step(PROVE)
    assert api.deleted() == ["slow"] and api.graces == [30]
    assert drain.begun[-1] == (PROVE, [{"path": [DELETE, "shop/slow"], "before": "uid-slow", "after": None}])


@pytest.mark.parametrize("when", ["before", "while it is recorded"])
def test_a_pod_that_arrives_is_not_evicted_once_the_run_halts(when: str) -> None:
    api = cluster(late())
    drain = Drain(api, DrainConsents(drain_timeout=60, allow_unmanaged=True))
    if when == "before":
        drain.halted = "interrupted by the operator"
    with pytest.raises(NotDone, match=r"shop/late.* came to w1 in mid-drain, and no further eviction begins \(interrupted"):
        drain.step(PROVE, halts=True)
    assert api.evicted() == []


def test_without_a_record_a_pod_that_arrives_is_not_evicted() -> None:
    """Nor once another run has the lock: what records checks that too."""
    api = cluster()
    drain = Drain(api, DrainConsents(drain_timeout=60, allow_unmanaged=True))
    drain.step(EVICT)
    api.add(late())
    (proof,) = (step for step in drain.steps if step.action == PROVE)

    def begin(fields: Fields) -> None:
        if fields:
            raise NotDone("another run has the lock")

    with pytest.raises(NotDone, match="another run has the lock"):
        proof.write(context(begin))
    assert api.evicted() == ["web-1-0"]


# ---- budgets that are ignored by consent


def with_budgets(*names: str) -> ClusterApi:
    """A pod on w1 whose eviction the plan expects to be allowed, and that is refused in its turn, since another one is not Ready."""
    top, inner, first, second = deployment(2, 2)
    second["spec"]["nodeName"] = "w2"
    budgets = [budget(name, maxUnavailable=1, status=of_status(2, 1, 2, 1)) for name in names]
    return ClusterApi(node("w1"), node("w2"), top, inner, first, second, *budgets)


def refuses(api: ClusterApi, *names: str) -> None:
    """Another pod is not Ready any more. A deleted pod is replaced, and all are Ready again."""
    for name in names:
        api.one("PodDisruptionBudget", name)["status"] = of_status(2, 1, 1, 0)
    api.one("Pod", "web-1-1")["status"]["conditions"] = []
    api.refuse = lambda one: "it needs 1 healthy pods and has 1"

    def replaced(write: Write) -> None:
        api.add(pod("new", INNER, node="w2"))
        api.one("Pod", "web-1-1")["status"]["conditions"] = [{"type": "Ready", "status": "True"}]

    api.after = replaced


def test_a_pod_that_its_budget_still_refuses_at_its_time_limit_is_deleted_by_consent(clock: Clock) -> None:
    api = with_budgets("web")
    drain = Drain(api, DrainConsents(drain_timeout=60, ignore_budgets=("shop/web",)))
    refuses(api, "web")
    begun = clock.now
    api.after = lambda write, then=api.after: (then(write), noted.append((drain.begun[-1], clock.now - begun)))  # type: ignore[misc,func-returns-value]
    noted: list[Any] = []
    said = drain.step(EVICT)
    assert "refused its eviction for 60 s: it needs 1 healthy pods and has 1; deleted past its budget, by consent; gone; 2 of" in said
    assert api.deleted() == ["web-1-0"] and api.evicted() == []
    # Recorded before it is done, and not before its budget had its time.
    assert noted == [((EVICT, [{"path": ["delete", "shop/web-1-0"], "before": "uid-web-1-0", "after": None}]), 60.0)]


@pytest.mark.parametrize("ignored", [(), ("shop/web",)])
def test_a_pod_of_a_budget_that_is_not_named_is_not_deleted(ignored: tuple[str, ...]) -> None:
    """Also if that budget has come since the plan."""
    api = with_budgets("web")
    drain = Drain(api, DrainConsents(drain_timeout=60, ignore_budgets=ignored))
    api.add(budget("other", maxUnavailable=0, status=of_status(2, 2, 2, 0)))
    refuses(api, "web")
    with pytest.raises(evicting.NotEvicted, match="refused its eviction for 60 s"):
        drain.step(EVICT)
    assert api.deleted() == []


def test_a_run_that_halts_deletes_no_pod() -> None:
    api = with_budgets("web")
    drain = Drain(api, DrainConsents(drain_timeout=60, ignore_budgets=("shop/web",)))
    refuses(api, "web")

    def refuse(one: Mapping[str, Any]) -> str:
        drain.halted = "interrupted by the operator"
        return "not now"

    api.refuse = refuse
    with pytest.raises(evicting.NotEvicted, match="interrupted by the operator"):
        drain.step(EVICT)
    assert api.deleted() == []


def test_a_pod_that_arrives_is_not_deleted_past_its_budget() -> None:
    """The second consent was for the pods of the plan."""
    api = cluster(budget("frozen", selector={"matchLabels": {"app": "late"}}, minAvailable=1, status=of_status(1, 1, 1, 0)))
    drain = Drain(api, DrainConsents(drain_timeout=60, allow_unmanaged=True, ignore_budgets=("shop/frozen",)))
    drain.step(EVICT)
    api.add(late())
    with pytest.raises(NotDone, match="pods came to w1 in mid-drain, or are stuck there: shop/late: no eviction of it can ever succeed"):
        drain.step(PROVE)
    assert api.deleted() == []


# ---- pods that come


def test_a_pod_that_comes_back_three_times_halts_the_drain() -> None:
    tolerates = {"tolerations": [{"operator": "Exists"}]}
    api = ClusterApi(node("w1"), node("w2"), *deployment(1, 1))
    api.one("Pod", "web-1-0")["spec"] |= tolerates
    count = 0

    def back(write: Write) -> None:
        nonlocal count
        count += 1
        api.add(pod(f"web-1-{count}", INNER, spec=tolerates))

    drain = Drain(api)
    api.after = back
    drain.step(EVICT)
    with pytest.raises(NotDone, match="shop/web-1-4 came back to w1; it tolerates the cordon"):
        drain.step(PROVE)
    assert api.evicted() == [f"web-1-{number}" for number in range(4)] and len(drain.drainer.moved_late) == 3


def test_a_pod_that_arrives_without_a_controller_and_without_consent_halts_the_drain() -> None:
    api = cluster()
    drain = Drain(api)
    drain.step(EVICT)
    api.add(late())
    with pytest.raises(NotDone, match="pods came to w1 in mid-drain, or are stuck there: shop/late: it has no controller"):
        drain.step(PROVE)
    assert api.evicted() == ["web-1-0"]


def test_a_pod_that_arrives_and_is_refused_is_named() -> None:
    api = cluster()
    drain = Drain(api, DrainConsents(drain_timeout=40, allow_unmanaged=True))
    drain.step(EVICT)
    api.add(late())
    api.refuse = lambda pod: "not now"
    with pytest.raises(
        NotDone, match="pod shop/late, which came to w1 in mid-drain: the API server refused its eviction for 40 s: not now"
    ) as got:
        drain.step(PROVE)
    # The proof has failed: it did begin.
    assert not isinstance(got.value, evicting.NotEvicted)


# ---- somebody else than a budget refuses

HOOK = 'admission webhook "guard.example" denied the request: the owner moves it first'
SILENT = 'Internal error occurred: failed calling webhook "guard.example": failed to call webhook: EOF'
POLICY = "pods \"web-1-0\" is forbidden: ValidatingAdmissionPolicy 'no-night' with binding 'all' denied request: not at night"


@pytest.mark.parametrize(
    "denied", [(429, HOOK), (403, HOOK), (404, HOOK), (409, HOOK), (500, HOOK), (500, SILENT), (422, POLICY), (401, POLICY)]
)
def test_a_denied_eviction_is_asked_again_until_it_is_allowed(denied: tuple[int, str], clock: Clock) -> None:
    api, asked = cluster(), list[float]()

    def deny(pod: Mapping[str, Any], dry_run: bool) -> tuple[int, str] | None:
        asked.append(clock.now)
        return denied if clock.now - asked[0] < 90 else None

    api.deny = deny
    assert "evicted; gone" in Drain(api, DrainConsents(drain_timeout=600)).step(EVICT)
    pauses = {later - before for before, later in itertools.pairwise(asked)}
    assert api.evicted() == ["web-1-0"] and min(pauses) >= 2 and max(pauses) <= 5


@pytest.mark.parametrize(
    ("denied", "whom"),
    [((429, HOOK), "ask its owner"), ((403, POLICY), "no-night has its rules"), ((500, SILENT), "the pods that serve it")],
)
def test_a_denial_to_the_end_says_who_and_whom_to_ask(denied: tuple[int, str], whom: str) -> None:
    api = cluster()
    api.deny = lambda pod, dry_run: denied
    with pytest.raises(evicting.NotEvicted, match=f"refused its eviction for 600 s: admission .*{whom}") as caught:
        Drain(api, DrainConsents(drain_timeout=600)).step(EVICT)
    assert "cluster admin" not in str(caught.value) and api.evicted() == []


def test_a_webhook_is_not_passed_by_a_consent_to_pass_a_budget() -> None:
    api = cluster(budget(maxUnavailable=1, status=of_status(1, 0, 1, 1)))
    drain = Drain(api, DrainConsents(drain_timeout=40, ignore_budgets=("shop/web",)))
    api.one("PodDisruptionBudget", "web")["status"]["disruptionsAllowed"] = 0
    api.deny = lambda pod, dry_run: (429, HOOK)
    with pytest.raises(evicting.NotEvicted, match=r"guard\.example"):
        drain.step(EVICT)
    assert api.deleted() == []


@pytest.mark.parametrize("denied", [(429, HOOK), (403, POLICY), (400, 'admission webhook "guard.example" does not support dry run')])
def test_the_plan_has_the_words_of_who_denies_at_once(denied: tuple[int, str]) -> None:
    api = cluster()
    api.deny = lambda pod, dry_run: denied
    answer = evicting.try_eviction(api.session, api.one("Pod", "web-1-0"))
    assert answer.startswith(("admission webhook guard.example", "admission policy no-night"))
    plan = plan_drain(reading.read_drain(api.session), ["w1"], DrainConsents(), NOW)
    assert f"shop/web-1-0: NOT NOW, the run waits: {answer}" in plan_text(plan, {plan.pods[0].uid: answer})


def test_what_rbac_refuses_is_not_waited_for() -> None:
    api = cluster()
    words = 'pods "web-1-0" is forbidden: User "ops" cannot create resource "pods/eviction" in API group "" in the namespace "shop"'
    api.deny = lambda pod, dry_run: (403, words)
    with pytest.raises(Forbidden, match="cluster admin"):
        Drain(api).step(EVICT)


# ---- what it reads while it waits


def test_while_a_pod_ends_the_pods_of_its_node_are_read_again_and_not_the_cluster() -> None:
    api = ClusterApi(node("w1"), node("w2"), late(ending=True))
    drain = Drain(api, DrainConsents(drain_timeout=60))
    api.reads.clear()
    with pytest.raises(NotDone, match="shop/late still end on w1"):
        drain.step(PROVE)
    assert api.reads.count("/api/v1/pods") >= 60 and api.reads.count("/api/v1/nodes") <= 7


def test_a_pod_whose_containers_have_ended_is_waited_for_until_its_node_has_released_it() -> None:
    """Seen as ending by the plan, and in mid-drain finished: its volumes may still be mounted."""
    last = late(ending=True, deletionGracePeriodSeconds=30)
    api = ClusterApi(node("w1"), node("w2"), last)
    drain = Drain(api, DrainConsents(drain_timeout=60))
    api.one("Pod", "late")["status"]["phase"] = "Failed"
    with pytest.raises(NotDone, match="shop/late still end on w1"):
        drain.step(PROVE)


def test_a_pod_that_does_not_end_is_stuck_after_a_while() -> None:
    api = ClusterApi(node("w1"), node("w2"), late(ending=True))
    drain = Drain(api, DrainConsents(drain_timeout=60))
    api.time = "2026-03-01T12:02:00Z"
    with pytest.raises(NotDone, match="are stuck there: shop/late: it is stuck"):
        drain.step(PROVE)


def test_while_a_replacement_starts_the_budgets_are_not_read_again() -> None:
    api = cluster(budget(maxUnavailable=1, status=of_status(1, 0, 1, 1)))
    drain = Drain(api)
    drain.step(EVICT)
    api.one("Pod", "web-1-1")["status"]["conditions"] = []
    api.reads.clear()
    with pytest.raises(NotDone, match="Deployment shop/web has 0 of 1 pods Ready on other nodes"):
        drain.step(PROVE)
    assert "/apis/policy/v1/poddisruptionbudgets" not in api.reads and len(api.reads) > 60
