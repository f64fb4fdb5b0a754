"""What an audit finds about whom the cluster can rely on."""

from __future__ import annotations

from roles.audit import trust
from roles.audit.examine import Collected, report
from roles.audit.paired import picture_of
from roles.engine.api.etcd import EtcdError, EtcdHealth, EtcdMember
from roles.engine.findings import Severity
from roles.engine.transaction import Refusal
from roles.feature_gates import load
from tests.unit.audit.fleet import MADE, control_plane, make

SICK = EtcdError("cp1", "nothing accepts connections", "start it")


def members(number: int, sick: int) -> EtcdHealth:
    all_of_them = tuple(EtcdMember(one, f"m{one}", (f"https://10.0.0.{one}:2379",), False) for one in range(number))
    return EtcdHealth(all_of_them, tuple((one, SICK) for one in all_of_them[:sick]))


def test_members_of_etcd_that_do_not_answer() -> None:
    def severities(etcd: EtcdHealth | EtcdError | None) -> list[Severity]:
        found = report(Collected(findings=[*trust.members(etcd)]), load(), made=MADE).findings
        assert {(one.kind, one.component, one.node) for one in found} <= {("etcd", "etcd", None)}
        return [one.severity for one in found]

    assert severities(None) == severities(members(3, 0)) == []
    assert severities(members(3, 1)) == severities(members(1, 1)) == severities(SICK) == [Severity.critical]
    assert severities(members(5, 1)) == [Severity.warning], "one more can fail"
    (one,) = report(Collected(findings=[*trust.members(members(3, 1))]), load(), made=MADE).findings
    assert "as seen from cp1: nothing accepts connections (2 of 3 members healthy, quorum 2)" in one.rule and one.way_out == "start it"


def test_a_host_that_claims_a_control_plane_is_found_and_shows_none() -> None:
    claim = Refusal("cp1", "it runs kube-apiserver as a static pod", "find out who runs it there")
    (one,) = report(Collected(findings=[*trust.identities([claim])]), load(), made=MADE).findings
    assert (one.severity, one.kind, one.node, one.rule, one.way_out) == (Severity.critical, "identity", "cp1", claim.message, claim.way_out)
    seen = make("cp1", **control_plane())
    assert seen.components and picture_of([seen]).servers
    alone = seen.as_worker()
    assert not alone.components and list(alone.processes) == ["kubelet"] and not [one for one in alone.gates if one.component != "kubelet"]
    assert not picture_of([alone]).servers, "its flags are nothing that other settings must fit"
