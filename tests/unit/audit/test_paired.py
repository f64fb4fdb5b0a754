"""Pairs of settings as an audit finds them."""

from __future__ import annotations

from roles.audit.paired import findings
from roles.engine.findings import Severity
from roles.engine.pairs import mismatches
from tests.unit.audit.fleet import rows
from tests.unit.pairs.test_table import API, field, flag, well


def test_a_node_whose_pods_do_not_fit_its_range() -> None:
    (one,) = rows(findings(mismatches(field(maxPods=400)(well()))))
    assert (one.severity, one.kind, one.node, one.component, one.value) == (Severity.note, "pair", "w1", "kubelet", "400")
    assert "10.244.1.0/24 has 254 addresses for 400 pods" in one.rule


def test_severities_and_places() -> None:
    (one,) = rows(findings(mismatches(flag(API, authorization_mode="RBAC")(well()))))
    assert (one.severity, one.node, one.name) == (Severity.critical, "cp1", "nodes-are-authorized")
    (one,) = rows(findings(mismatches(field(clusterDNS=["10.96.0.11"])(well()))))
    assert (one.severity, one.node, one.name) == (Severity.warning, "w1", "dns-is-the-service")
