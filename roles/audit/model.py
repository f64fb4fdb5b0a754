"""The report of an audit, typed: docs/reference/audit.schema.json is generated from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Self

from pydantic import Field

from roles.audit.rules import AuditRule
from roles.engine.autoscaling import ScalingRule
from roles.engine.disruption import DisruptionRule
from roles.engine.findings import SEVERITIES, Finding, Rule, Severity
from roles.engine.node_lint import NodeRule, looks_like_a_backup
from roles.engine.runs import Document
from roles.engine.transaction import mask_text
from roles.eviction import OrderReport
from roles.sleeping import SleepRule

#: The form of the document. It grows when programs that read it must change.
FORM = 1


NodeKind = Literal["kubeadm", "plain", "unsupported", "unreadable"]
SourceKind = Literal["file", "drop-in", "flag", "manifest", "configmap"]


#: The kinds of rules that have a table of their own; those for nodes have theirs in their row.
_KINDS: dict[type[Rule], AuditRule] = {DisruptionRule: AuditRule.DISRUPTION, ScalingRule: AuditRule.AUTOSCALER, SleepRule: AuditRule.ASLEEP}


class FindingReport(Document):
    """One problem. `line` is None if it concerns the whole file, `file` is None if it concerns no file."""

    severity: Severity
    kind: AuditRule
    node: str | None = Field(description="host of the inventory; null: the cluster")
    component: str | None = Field(default=None, description="kubelet, kube-apiserver, kube-controller-manager, kube-scheduler or etcd")
    name: str | None = Field(default=None, description="the gate, flag or field (dotted), the workload, or the main object of a rule")
    file: str | None = Field(default=None, description="path on the node, or `configmap NAMESPACE/NAME KEY`")
    line: int | None = Field(default=None, description="1-based")
    value: str | None = Field(default=None, description="what was found")
    rule: str = Field(description="what is wrong, and why")
    way_out: str = Field(description="what an operator can do")

    @property
    def place(self) -> str:
        """FILE:LINE, FILE, or ""."""
        return f"{self.file or ''}{f':{self.line}' if self.file and self.line else ''}"

    @classmethod
    def of(cls, found: Finding) -> Self:
        """One of objects is the cluster's, and not a node's: `value` is `RULE: OBJECTS`. A flag can hold a header or a token: masked."""
        value = f"{found.rule}: {', '.join(found.objects)}" if found.objects else found.place.value
        where = vars(found.place) | {"value": value and mask_text(value)}
        return cls(severity=found.severity, kind=_kind(found), rule=mask_text(found.why), way_out=found.way_out, **where)


def _kind(found: Finding) -> AuditRule:
    rule = found.rule
    if isinstance(rule, NodeRule):
        of_name = rule in (NodeRule.TWIN, NodeRule.BROKEN, NodeRule.NO_MANIFEST) and looks_like_a_backup(found.place.file or "")
        return AuditRule.BACKUP if of_name else next(kind for kind in AuditRule if kind == rule.heading)
    return rule if isinstance(rule, AuditRule) else _KINDS[type(rule)]


class SourcedSetting(Document):
    """One source that sets a gate or a field. `counts` is False if another source overrides it."""

    component: str
    name: str
    value: str
    source: SourceKind
    file: str
    line: int | None = None
    variable: str | None = Field(default=None, description="the variable of an environment file or unit that holds the flag")
    counts: bool = True

    @property
    def place(self) -> str:
        return f"{self.file}{f':{self.line}' if self.line else ''}"


class Source(Document):
    """One file that a component's settings can come from. `sha256` is None if the file does not exist."""

    path: str
    mode: str
    sha256: str | None


class ComponentReport(Document):
    """One process. `effective`: all its gates (/metrics), None if unknown."""

    name: str
    version: str | None
    pid: int
    effective: dict[str, bool] | None = None


class CertificateReport(Document):
    """One certificate in a file of a node. `renews`: the kubelet renews it by itself."""

    component: str
    use: str = Field(description="what it is for: serving, client, a CA")
    file: str
    until: str = Field(description="RFC 3339, UTC")
    subject: str
    renews: bool = False


class NodeReport(Document):
    """One node. `settings`: the fields of the kubelet's configuration that its sources set; `effective`: the fields that it runs with
    (/configz, flat, by dotted names), None if unknown."""

    name: str
    node_name: str | None
    groups: tuple[str, ...]
    kind: NodeKind
    why: str | None = Field(default=None, description="why it is unsupported or unreadable")
    os: str
    components: tuple[ComponentReport, ...] = ()
    gates: tuple[SourcedSetting, ...] = ()
    settings: tuple[SourcedSetting, ...] = ()
    effective: dict[str, str] | None = None
    sources: tuple[Source, ...] = ()
    certificates: tuple[CertificateReport, ...] = ()

    @property
    def version(self) -> str:
        return next((one.version or "" for one in self.components if one.name == "kubelet"), "")


class Report(Document):
    """The whole audit. `not_known`: what could not be determined, such as effective values without access to the API; `failures`:
    nodes that could not be read at all."""

    form: Literal[1] = FORM  # type: ignore[assignment]
    made: str = Field(description="RFC 3339, the operator's clock")
    target_version: str | None = None
    nodes: tuple[NodeReport, ...]
    configmaps: tuple[SourcedSetting, ...] = Field(default=(), description="gates in kubeadm-config and kubelet-config")
    findings: tuple[FindingReport, ...]
    eviction: tuple[OrderReport, ...] = Field(default=(), description="the eviction order, as deploys/eviction_order.py reports it")
    not_known: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        """The exit code: 1 if a node could not be read, 2 if there are findings that count, else 0. Notes about disruption,
        autoscalers, pairs and machines that are off do not count: a cluster that is well has them."""
        return 1 if self.failures else 2 if any(_counts(finding) for finding in self.findings) else 0

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)


def _counts(finding: FindingReport) -> bool:
    return (
        finding.kind not in (AuditRule.DISRUPTION, AuditRule.AUTOSCALER, AuditRule.PAIR, AuditRule.ASLEEP)
        or finding.severity is not Severity.note
    )


def in_order(findings: Iterable[FindingReport], hosts: Iterable[str]) -> tuple[FindingReport, ...]:
    """The worst first; then by kind, name, node (as in the inventory) and place; each once."""
    place = {host: number for number, host in enumerate(hosts)}
    kinds = {kind: number for number, kind in enumerate(AuditRule)}
    return tuple(
        sorted(
            dict.fromkeys(findings),
            key=lambda one: (
                SEVERITIES.index(one.severity),
                kinds[one.kind],
                one.name or "",
                place.get(one.node or "", -1),
                one.file or "",
                one.line or 0,
            ),
        )
    )
