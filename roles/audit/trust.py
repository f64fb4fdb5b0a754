"""Whom the cluster can rely on: hosts that claim what they are not, and members of etcd that do not answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from roles.audit.rules import AuditRule
from roles.engine.api.etcd import EtcdError, EtcdHealth
from roles.engine.findings import Finding, Place, Severity
from roles.engine.transaction import Refusal


def identities(foreign: Iterable[Refusal]) -> Iterator[Finding]:
    """Hosts that a change would be refused for: with processes of a control plane that the inventory does not know, or another node's
    name."""
    for one in foreign:
        yield AuditRule.IDENTITY.found(Place(one.host), one.message, one.way_out)


def members(etcd: EtcdHealth | EtcdError | None) -> Iterator[Finding]:
    """`critical` where etcd has lost its quorum, or loses it with one member more."""
    if isinstance(etcd, EtcdError):
        yield AuditRule.ETCD.found(Place(None, "etcd"), f"{etcd.host}: {etcd.rule}", etcd.way_out)
    elif etcd is not None:
        severity = Severity.warning if etcd.voting - len(etcd.unhealthy) > etcd.quorum else Severity.critical
        for member, wrong in etcd.unhealthy:
            yield AuditRule.ETCD.found(
                Place(None, "etcd", str(member)), f"not healthy, as seen from {wrong.host}: {wrong.rule} ({etcd})", wrong.way_out, severity
            )
