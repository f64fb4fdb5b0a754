"""What other rooms judge, as findings of the audit."""

from __future__ import annotations

from datetime import UTC, datetime

from roles.audit import Collected, as_text, other_rooms, report
from roles.engine.findings import Severity
from roles.engine.kube import Object
from roles.engine.outage import Mark
from roles.engine.pairs import mismatches
from roles.engine.transaction import Refusal
from roles.engine.tunnels.etcd import EtcdError, EtcdHealth, EtcdMember
from roles.feature_gates import load
from roles.pod_resize import Drift
from tests.unit.audit.fleet import MADE, control_plane, make, rows
from tests.unit.pairs.world import API, field, flag, well
from tests.unit.sleeping.world import sleeper

SICK = EtcdError("cp1", "nothing accepts connections", "start it")


def members(number: int, sick: int) -> EtcdHealth:
    all_of_them = tuple(EtcdMember(one, f"m{one}", (f"https://10.0.0.{one}:2379",), False) for one in range(number))
    return EtcdHealth(all_of_them, tuple((one, SICK) for one in all_of_them[:sick]))


def test_members_of_etcd_that_do_not_answer() -> None:
    def severities(etcd: EtcdHealth | EtcdError | None) -> list[Severity]:
        found = report(Collected(findings=[*other_rooms.members(etcd)]), load(), made=MADE).findings
        assert {(one.kind, one.component, one.node) for one in found} <= {("etcd", "etcd", None)}
        return [one.severity for one in found]

    assert severities(None) == severities(members(3, 0)) == []
    assert severities(members(3, 1)) == severities(members(1, 1)) == severities(SICK) == [Severity.critical]
    assert severities(members(5, 1)) == [Severity.warning], "one more can fail"
    (one,) = report(Collected(findings=[*other_rooms.members(members(3, 1))]), load(), made=MADE).findings
    assert "as seen from cp1: nothing accepts connections (2 of 3 members healthy, quorum 2)" in one.rule and one.way_out == "start it"


def test_a_host_that_claims_a_control_plane_is_found_and_shows_none() -> None:
    claim = Refusal("cp1", "it runs kube-apiserver as a static pod", "find out who runs it there")
    (one,) = report(Collected(findings=[*other_rooms.identities([claim])]), load(), made=MADE).findings
    assert (one.severity, one.kind, one.node, one.rule, one.way_out) == (Severity.critical, "identity", "cp1", claim.message, claim.way_out)
    seen = make("cp1", **control_plane())
    assert seen.components and other_rooms.picture_of([seen]).servers
    alone = seen.as_worker()
    assert not alone.components and list(alone.processes) == ["kubelet"] and not [one for one in alone.gates if one.component != "kubelet"]
    assert not other_rooms.picture_of([alone]).servers, "its flags are nothing that other settings must fit"


def test_a_node_whose_pods_do_not_fit_its_range() -> None:
    (one,) = rows(other_rooms.unfit(mismatches(field(maxPods=400)(well()))))
    assert (one.severity, one.kind, one.node, one.component, one.value) == (Severity.note, "pair", "w1", "kubelet", "400")
    assert "10.244.1.0/24 has 254 addresses for 400 pods" in one.rule


def test_severities_and_places() -> None:
    (one,) = rows(other_rooms.unfit(mismatches(flag(API, authorization_mode="RBAC")(well()))))
    assert (one.severity, one.node, one.name) == (Severity.critical, "cp1", "nodes-are-authorized")
    (one,) = rows(other_rooms.unfit(mismatches(field(clusterDNS=["10.96.0.11"])(well()))))
    assert (one.severity, one.node, one.name) == (Severity.warning, "w1", "dns-is-the-service")


def test_pods_that_differ_from_their_template_are_findings_of_the_cluster() -> None:
    small = {"requests": {"cpu": "100m", "memory": "200Mi"}, "limits": {"memory": "200Mi"}}
    large = {"requests": {"cpu": "300m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}}
    pods = (("shop/web-1", large), ("shop/web-2", large), ("shop/web-3", {}))
    drifts = [Drift("Deployment", "shop", "web", "app", small, pods), Drift("Job", "shop", "sum", "sum", small, pods[:1])]
    made = report(Collected([make("w1")], findings=[*other_rooms.resized(drifts)]), load(), made=MADE)
    assert made.code == 2 and [(one.severity, one.kind, one.file) for one in made.findings] == [("warning", "resize", None)] * 2
    web = made.findings[0]
    assert (web.node, web.name) == (None, "Deployment shop/web")
    assert web.value == ("Deployment shop/web, container app: 3 pods have cpu 300m/-, memory 600Mi/600Mi; or nothing (request/limit)")
    assert "its template says cpu 100m/-, memory 200Mi/200Mi" in web.rule and "template=update" in web.way_out
    assert "container sum: 1 pod has cpu 300m/-, memory 600Mi/600Mi (request" in (made.findings[1].value or "")
    assert "the cluster\n      pods differ from their template: Deployment shop/web, container app: 3 pods have" in as_text(made)


def test_a_cordon_that_may_have_been_forgotten() -> None:
    def node(name: str, manager: str, since: str | None) -> Object:
        entry = {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}} | (
            {"time": since} if since else {}
        )
        mark = {"daytwo.dev/outage": '{"run": "r20261120-000000-0001", "purpose": "change"}'} if manager == "daytwo" else {}
        return {"metadata": {"name": name, "managedFields": [entry], "annotations": mark}, "spec": {"unschedulable": True}}

    nodes = [
        node("w1", "kubectl-cordon", "2026-11-20T00:00:00Z"),
        node("w2", "kubectl-cordon", "2026-11-27T12:00:00Z"),
        node("w3", "<b>someone\n", None),
        {"metadata": {"name": "w4"}, "spec": {}},
        node("w5", "kubectl-cordon", "2027-01-01T00:00:00Z"),
        node("w6", "daytwo", "2026-11-20T00:00:00Z"),
        sleeper(Mark("r20261120-000000-0001", "power-off").text(), since="2026-11-20T00:00:00Z"),
    ]
    found = [*other_rooms.cordons(nodes, datetime(2026, 11, 28, tzinfo=UTC))]
    assert [(one.place.name, one.why) for one in found[:2]] == [
        ("w1", "cordoned by kubectl-cordon (Update), for 8d"),
        ("w3", "cordoned by <b>someone\\n (Update), and it is not known since when"),
    ]
    assert [one.place.name for one in found[2:]] == ["w5", "w6"], "a time to come is no time, and what is off has due dates"
    assert "undo it (pyinfra" in found[3].way_out and "--data run=r20261120-000000-0001)" in found[3].way_out
    assert "nodes=w1 --data force=true" in found[0].way_out and found[0].severity is Severity.warning
