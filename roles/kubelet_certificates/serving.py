"""The capability: which kubelets are restarted, which requests are approved, in which order, and the rows of the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from roles.engine import bridge, pairs
from roles.engine.api import ApiFailure, NoApi
from roles.engine.bridge import Fleet, Remote
from roles.engine.bridge.tasks import Lock
from roles.engine.certificates.approval import ExpectedNames, expected_names, request_of, usual_name
from roles.engine.context import ClusterStep
from roles.engine.editing import last_flag
from roles.engine.folding import listed
from roles.engine.harmless import one_line
from roles.engine.inputs import read_model
from roles.engine.kube import uid
from roles.engine.kubelet import KubeletState
from roles.engine.node_changes import KUBELET, Basis, ComponentPlan, DesiredByHost, NodePlan, Steps, ended, from_data
from roles.engine.objects import NotDone
from roles.engine.proof import Proof, SurveyedNode
from roles.engine.proof.presented import Presented, presented
from roles.engine.remote import RemoteError
from roles.engine.transaction import Refusal
from roles.kubelet_certificates import approve, facts, plan
from roles.kubelet_certificates.facts import ClusterFacts, SeenNames
from roles.kubelet_certificates.model import CertificateKeys
from roles.kubelet_certificates.plan import NodeStanding
from roles.kubelet_config import FieldsRequest, KubeletFields, Settled, allocatable_impact

_FIELD = "serverTLSBootstrap"
_NOTHING = "no host is in this run; leave --limit and only out, or name a host of the inventory"


@dataclass(frozen=True)
class WantedCertificate(FieldsRequest):
    """The desired state of one host; `vouched`: names that the operator gives it."""

    vouched: frozenset[str] = frozenset()


def read_wanted(fleet: Fleet) -> DesiredByHost[Any]:
    """Raises DeployError."""
    found: DesiredByHost[Any] = from_data(fleet, _request, _NOTHING)
    bridge.stop(shared_names({host: one.vouched for host, one in found.by_host.items()}))
    return found


def shared_names(vouched: Mapping[str, frozenset[str]]) -> list[Refusal]:
    """Names that `serving_names` gives to several hosts of the run, as --data does without --limit: they are no one host's own."""
    hosts: dict[str, list[str]] = {}
    for host, names in vouched.items():
        for name in set(map(usual_name, names)):
            hosts.setdefault(name, []).append(host)
    return [
        Refusal(
            listed(several), f"serving_names: all of them have {one_line(name)}", "give it to one host alone: in its data, or with --limit"
        )
        for name, several in sorted(hosts.items())
        if len(several) > 1
    ]


def _request(remote: Remote) -> WantedCertificate:
    keys = read_model(remote.name, remote.data, CertificateKeys)
    return WantedCertificate(
        keys.model_dump(), _settle, allocatable_impact, keys.chosen_nodes, keys.move_flags, keys.allow_evictions, vouched=keys.vouched
    )


def _settle(state: KubeletState) -> Settled:
    if named := plan.given_files(state.kubelet.process.argv, state.kubelet.configuration):
        raise Refusal(
            state.host,
            f"{' and '.join(named)} {'is' if len(named) == 1 else 'are'} set: this kubelet serves a certificate that somebody else renews",
            "remove both from its configuration first, or leave the host out with --limit",
        )
    if (state.configuration.get("featureGates") or {}).get("RotateKubeletServerCertificate") is False:
        way_out = "turn it on: deploys/feature_gates.py --data feature_gates=RotateKubeletServerCertificate=true"
        raise Refusal(state.host, "its feature gate RotateKubeletServerCertificate is off", way_out)
    return Settled({_FIELD: True}, {_FIELD: True}, f"{_FIELD}=true", named={(_FIELD,): True})


@dataclass
class _Known:
    """What the plan has read, once for all nodes. `standings`: by host; `requests_before`: by host, the UIDs of all requests right before
    its kubelet is restarted; `approvals`: by host."""

    cluster: ClusterFacts = field(default_factory=ClusterFacts)
    read: bool = False
    lock: Lock = field(default_factory=Lock)
    standings: dict[str, NodeStanding] = field(default_factory=dict)
    requests_before: dict[str, frozenset[str]] = field(default_factory=dict)
    keys: dict[str, bytes] = field(default_factory=dict)
    approvals: dict[str, ClusterStep] = field(default_factory=dict)


@dataclass(frozen=True)
class ServingCertificates(KubeletFields):
    """Kubelets that serve certificates of the cluster's CA."""

    known: _Known = field(default_factory=_Known)
    columns: ClassVar[tuple[str, ...]] = ("node", "names", "before", "after")

    # ---- the plan

    def plan(self, basis: Basis, node: SurveyedNode, desired: Any) -> NodePlan[Any]:
        host = node.remote.name
        try:
            one = self._standing(basis, node, desired)
        except (ApiFailure, RemoteError) as error:
            raise Refusal(host, f"its certificate cannot be judged: {error}", "correct that; nothing is approved without it") from None
        self.known.standings[host] = one
        bootstrap = not one.asks and one.standing != "signed"
        if bad := plan.refusals(one, bootstrap):
            return NodePlan(host, node.kubelet, {}, (), refusals=tuple(bad))
        made: NodePlan[Any]
        if bootstrap:
            made = super().plan(basis, node, desired)
        else:
            made = NodePlan[Any](host, node.kubelet, node.components, (self._settled(one),))
        outlook = "\n".join(filter(None, (made.outlook, _outlook(one, bootstrap))))
        return replace(made, warnings=(*made.warnings, *self._warnings(one)), outlook=outlook)

    def _settled(self, one: NodeStanding) -> ComponentPlan:
        """A kubelet that is not restarted; kubeadm's ConfigMap has the field if all of them have it."""
        return ComponentPlan(KUBELET, None, lasting={(_FIELD,): True} if one.asks else {})

    def _warnings(self, one: NodeStanding) -> Iterable[str]:
        if one.not_approved:
            yield f"requests in its name that are NOT APPROVED: {plan.listed(one.not_approved)}"
        if one.standing == "signed" and not one.asks:
            yield f"it serves a certificate of the cluster's CA, but does not renew it itself ({_FIELD} is not set): left as it is"

    def _standing(self, basis: Basis, node: SurveyedNode, desired: Any) -> NodeStanding:
        """Raises ApiFailure, RemoteError."""
        known, host, name = self._read(basis), node.remote.name, node.kubelet.node_name
        its = known.nodes.get(name)
        if its is None:
            raise NoApi(f"the cluster has no node {name}")
        identity = facts.identity(name, its, known.seen[host], desired.vouched)
        taken = known.taken(host, name, control_plane=node.remote.is_control_plane)
        shown = presented(basis.found.reading, its)
        return plan.standing(host, identity, shown, known.requests, taken, asks=_asks(node))

    def _read(self, basis: Basis) -> ClusterFacts:
        """Raises ApiFailure, RemoteError."""
        with self.known.lock:
            if not self.known.read:
                cluster = basis.found.reading
                requests, services = facts.read_requests(cluster), facts.service_claims(cluster, _service_ranges(basis))
                certified = facts.certified_names(cluster)
                api, hosts = facts.api_names(cluster, certified), facts.inventory_names(basis.fleet.inventory)
                flags = {name: what for argv in _api_servers(basis) for name, what in facts.flag_names(argv).items()}
                found = ClusterFacts(cluster.nodes(), {}, {**flags, **api}, requests, services, certified, hosts)
                remotes = [one.remote for one in basis.found.observed.values()]
                found.seen |= bridge.whole(basis.fleet.each(remotes, facts.seen_names, doing="read the addresses of"))
                self.known.cluster, self.known.read = found, True
        return self.known.cluster

    def against_nodes(self, basis: Basis) -> Iterable[object]:
        flags = ("controllers", *(f"cluster-signing{kind}-{file}-file" for kind in ("", "-kubelet-serving") for file in ("cert", "key")))
        for host, node in basis.found.observed.items():
            if component := node.components.get("kube-controller-manager"):
                argv = component.process.argv
                if why := pairs.unsigned("kubelet-serving", {name: last_flag(argv, name) for name in flags}):
                    yield Refusal(host, f"its kube-controller-manager would sign no certificate: {why}", "set that first")

    def notes(self, basis: Basis, plans: Sequence[NodePlan[Any]]) -> list[str]:
        names = [one.name for one in self.known.standings.values()]
        foreign = plan.strangers(self.known.cluster.requests, names)
        notes = [f"WARNING pending requests that this run does not judge: {plan.listed(foreign)}"] if foreign else []
        if any(made.changing for made in plans):
            notes.append(
                "From the restart of a kubelet until its request is approved, logs, exec, port-forward and metrics of its node fail; its"
                " pods run on. If the request is not exactly its own, the node reverts."
            )
        return notes

    # ---- the run

    def before(self, basis: Basis, plans: Sequence[NodePlan[Any]]) -> list[ClusterStep]:
        """The approvals of renewals, and of kubelets that wait."""
        steps = []
        for made in plans:
            one = self.known.standings[made.host]
            if one.request is None or made.changing:
                continue
            name = plan.name_of(one.request)
            step = ClusterStep(
                name,
                f"approve the request of {one.name} for {one_line(str(one.expected.names))}",
                "",
                partial(self._approve, basis, made.host, one.request),
                f"{made.host} still serves {one.text}",
            )
            self.known.approvals[made.host] = step
            steps.append(step)
        return steps

    def _approve(self, basis: Basis, host: str, item: Mapping[str, Any], _: object) -> str:
        return approve.approve(basis.found.cluster, self._node(basis, host), item, basis.run_id)

    def recheck(self, basis: Basis, plan: NodePlan[Any], planned: Any) -> str | None:
        why = super().recheck(basis, plan, planned)
        if why:
            return why
        try:
            requests = facts.read_requests(basis.found.cluster)
        except ApiFailure as error:
            return f"the requests for certificates cannot be read: {error}"
        self.known.requests_before[plan.host] = frozenset(uid(item) for item in requests)
        return None

    def prove_first(self, basis: Basis, plan: NodePlan[Any], planned: ComponentPlan) -> Proof:
        host, cluster = plan.host, basis.found.cluster
        node = self._node(basis, host)
        try:
            if host in self.known.keys:
                return Proof(approve.proven(node, self.known.keys[host]))
            item = approve.new_request(cluster, node, self.known.requests_before[host])
            if item is None:
                return Proof(approve.proven(node, None))
            how = approve.approve(cluster, node, item, basis.run_id)
            self.known.keys[host] = request_of(item).public_key
            return Proof(how)
        except (NotDone, ApiFailure, RemoteError) as error:
            return Proof("", (str(error),))

    def _node(self, basis: Basis, host: str) -> approve.Node:
        surveyed = basis.found.nodes[host]
        name = surveyed.kubelet.node_name
        return approve.Node(
            name, lambda: self._expected(basis, surveyed), lambda: presented(basis.found.cluster, basis.found.cluster.node(name))
        )

    def _expected(self, basis: Basis, node: SurveyedNode) -> ExpectedNames:
        """Its names now: its Node object, its interfaces and its host name are read again; what others have is as in the plan."""
        host, name = node.remote.name, node.kubelet.node_name
        node.remote.ensure_connected()
        seen: SeenNames = facts.seen_names(node.remote)
        wanted: Any = self.desired.by_host[host]
        taken = self.known.cluster.taken(host, name, control_plane=node.remote.is_control_plane)
        return expected_names(facts.identity(name, basis.found.cluster.node(name), seen, wanted.vouched), taken)

    # ---- the table

    def rows(self, basis: Basis, plans: Sequence[NodePlan[Any]], steps: Steps) -> list[list[str]]:
        rows = []
        for made in plans:
            one = self.known.standings[made.host]
            names = one_line(str(one.expected.names))
            step = steps.get((made.host, KUBELET))
            approval = self.known.approvals.get(made.host)
            if step is not None:
                rows.append([made.host, names, one.text, self._now(basis, one), *ended(step, "")])
            elif approval is not None:
                seconds = f"{approval.seconds:.0f}" if approval.seconds else "-"
                shown = approval.how or approval.why or "-"
                rows.append([made.host, names, one.text, self._now(basis, one), approval.outcome, seconds, shown])
            else:
                rows.append([made.host, names, one.text, one.text, *ended(None, f"TLS handshake with {one.presented.where} verified")])
        return rows

    def _now(self, basis: Basis, one: NodeStanding) -> str:
        try:
            shown: Presented = presented(basis.found.cluster, basis.found.cluster.node(one.name))
        except (ApiFailure, RemoteError):
            return "unknown"
        return replace(one, presented=shown).text


def _api_servers(basis: Basis) -> list[Sequence[str]]:
    """Their command lines."""
    return [node.components["kube-apiserver"].process.argv for node in basis.found.observed.values() if "kube-apiserver" in node.components]


def _service_ranges(basis: Basis) -> list[str]:
    """--service-cluster-ip-range of the API servers."""
    return [found for argv in _api_servers(basis) if (found := last_flag(argv, "service-cluster-ip-range"))]


def _asks(node: SurveyedNode) -> bool:
    """Its files or its command line tell the kubelet to ask the cluster for its certificate, and it runs with that."""
    flag = last_flag(node.kubelet.process.argv, "rotate-server-certificates")
    if flag is not None:
        return flag.lower() in ("true", "1", "t", "")
    return node.kubelet.configuration.get(_FIELD) is True


def _outlook(one: NodeStanding, bootstrap: bool) -> str:
    what = f"    serves a certificate {one.text}" if one.standing != "none" else f"    serves {one.text}"
    if bootstrap:
        return f"{what}\n    will ask for: {one_line(str(one.expected.names))}"
    if one.request is not None:
        return f"{what}\n    its request {plan.name_of(one.request)} is approved"
    return ""
