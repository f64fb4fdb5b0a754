"""Whom the cluster can rely on: hosts that claim what they are not, and members of etcd that do not answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from roles.audit.model import Finding
from roles.engine.api import EtcdError, EtcdHealth
from roles.engine.findings import Severity
from roles.engine.transaction import Refusal


def identities(foreign: Iterable[Refusal]) -> Iterator[Finding]:
    """Hosts that a change would be refused for: with processes of a control plane that the inventory does not know, or another node's
    name."""
    for one in foreign:
        yield Finding(severity=Severity.critical, kind="identity", node=one.host, rule=one.message, way_out=one.way_out)


def members(etcd: EtcdHealth | EtcdError | None) -> Iterator[Finding]:
    """`critical` where etcd has lost its quorum, or loses it with one member more."""
    if isinstance(etcd, EtcdError):
        yield Finding(
            severity=Severity.critical, kind="etcd", node=None, component="etcd", rule=f"{etcd.host}: {etcd.rule}", way_out=etcd.way_out
        )
    elif etcd is not None:
        severity = Severity.warning if etcd.voting - len(etcd.unhealthy) > etcd.quorum else Severity.critical
        for member, wrong in etcd.unhealthy:
            yield Finding(
                severity=severity,
                kind="etcd",
                node=None,
                component="etcd",
                name=str(member),
                rule=f"not healthy, as seen from {wrong.host}: {wrong.rule} ({etcd})",
                way_out=wrong.way_out,
            )
