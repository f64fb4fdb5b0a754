"""The engine for all changes of nodes: survey, plan, ask the binaries, refuse, order, run, report.

A capability defines what is special to its deploy: the desired state of each host, the plan of one node, the required proofs, the rows of
the table. Everything else is here, and is the same for every deploy that changes nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from roles.engine import bridge, folding, kubeadm_config, kubelet, table
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet, Remote
from roles.engine.context import ClusterStep
from roles.engine.editing import FormatError, any_flag, manifest_parts
from roles.engine.harmless import one_line
from roles.engine.inputs import listing
from roles.engine.kubelet import ask
from roles.engine.named_paths import paths_in, written_path
from roles.engine.node import FilesWanted
from roles.engine.node_changes import lost_pods, node_report, paired, probe_pod, starts
from roles.engine.node_changes.brought import JudgedVersions, judge_versions, recheck
from roles.engine.node_changes.node_plan import KUBELET, ComponentPlan, NodePlan, Verdicts, question, question_present
from roles.engine.node_changes.outages import ChangeDrains, plan_drains
from roles.engine.node_changes.run import NodeRun
from roles.engine.node_changes.step import NodeStep, arrange
from roles.engine.proof import ChangedProcess, Proof, Prover, Survey, SurveyedNode, survey
from roles.engine.proof.evidence import ProcessLook, look_at
from roles.engine.proof.signs import Found, Sign
from roles.engine.remote import Answer
from roles.engine.runs import Options, Turns, end_unproven, no_such_host, unreachable, with_options
from roles.engine.starting import NEW_PODS
from roles.engine.timeouts import patient
from roles.engine.transaction import FileEdit, Refusal, Status, new_run_id, this_run
from roles.engine.transaction.model import ABSENT
from roles.engine.voice import show, show_lines

W = TypeVar("W")
N = TypeVar("N", bound=NodePlan[Any])
_APISERVER = "kube-apiserver"


# ---- the desired state


@dataclass(frozen=True)
class DesiredByHost(Generic[W]):
    """The desired state: `by_host` for the hosts to change, and `recorded` for all hosts, as plain data for the record of the run.
    `wanted` are the files to read on a node; `heading` is shown above the plan."""

    by_host: Mapping[str, W]
    recorded: Mapping[str, Any]
    wanted: FilesWanted = kubelet.wanted
    heading: str = ""


class HostData(Protocol):
    """The desired state of one host: as plain `data`, and for which hosts (`chosen_nodes`; None: all)."""

    @property
    def data(self) -> Mapping[str, Any]: ...
    @property
    def chosen_nodes(self) -> tuple[str, ...] | None: ...


D = TypeVar("D", bound=HostData)


def from_data(fleet: Fleet, read: Callable[[Remote], D | None], nothing: str) -> DesiredByHost[D]:
    """The desired state from the hosts' data. `read` returns that of one host (None: it sets nothing) and may raise Refusal; `nothing` is
    the refusal if no host sets anything. Raises DeployError with all refusals."""
    refusals: list[object] = [*unreachable(fleet)]
    found: dict[str, D] = {}
    for remote in fleet.targets:
        try:
            if (desired := read(remote)) is not None:
                found[remote.name] = desired
        except Refusal as refusal:
            refusals.append(refusal)
    bridge.stop(refusals)
    if not found:
        raise bridge.refuse(nothing)
    bridge.stop(no_such_host(fleet.targets, {name: None for desired in found.values() for name in desired.chosen_nodes or ()}))
    chosen = {host: desired for host, desired in found.items() if desired.chosen_nodes is None or host in desired.chosen_nodes}
    if not chosen:
        raise bridge.refuse(f"no host is left for this run: nodes= leaves out each host that has data for it: {listing(found)}")
    return DesiredByHost(chosen, {host: desired.data for host, desired in found.items()})


# ---- what a capability provides


@dataclass(frozen=True)
class Basis:
    """The input of the plan of a run. `drains`: which nodes may be drained for their change."""

    run_id: str
    fleet: Fleet
    options: Options
    found: Survey
    drains: ChangeDrains = field(default_factory=ChangeDrains)


# The steps of a run by host and component, in order.
Steps = Mapping[tuple[str, str], NodeStep]


@dataclass(frozen=True)
class Capability(ABC, Generic[W, N]):
    """What is special to one deploy. Only `plan` and `rows` have no default.

    `columns` are the columns of the table of results before outcome, seconds and proof, which `ended` returns. `writes_first`: changes of
    the cluster's own objects come before any node is touched, not last. `any_skew`: versions that violate the skew policy anywhere refuse
    the run, not only where it restarts something; `undoes`: it brings back what was, so only violations that it would add do.
    """

    desired: DesiredByHost[W]
    columns: ClassVar[tuple[str, ...]]
    writes_first: ClassVar[bool] = False
    any_skew: ClassVar[bool] = False
    undoes: ClassVar[bool] = False

    @abstractmethod
    def plan(self, basis: Basis, node: SurveyedNode, desired: W) -> N:
        """The plan of one node, from its survey. Raises Refusal."""

    @abstractmethod
    def rows(self, basis: Basis, plans: Sequence[N], steps: Steps) -> list[list[str]]:
        """The table of results, also for a run with nothing to do."""

    def against_nodes(self, basis: Basis) -> Iterable[object]:
        """Refusals from the survey of all nodes."""
        return ()

    def judge(self, basis: Basis, plan: N, verdicts: Verdicts) -> N:
        """The plan of one node after its binaries were asked, with its refusals. May read the API."""
        return plan

    def allows_evictions(self, host: str) -> bool | None:
        """The operator's consent to lose pods of this host in a restart of its kubelet; None if the deploy has no such consent."""
        return None

    def cordons_of(self, basis: Basis) -> Collection[str]:
        """Runs whose cordons are removed also from nodes that this run does not change."""
        return ()

    def against_plans(self, basis: Basis, plans: Sequence[N]) -> Iterable[object]:
        """Refusals from the plans of all nodes."""
        return ()

    def order(self, basis: Basis, plans: Sequence[N]) -> tuple[list[ComponentPlan], bool]:
        """The changes in order, and whether control-plane components come before the kubelets. Raises DeployError."""
        return [planned for plan in plans for planned in plan.changing], True

    def recheck(self, basis: Basis, plan: N, planned: ComponentPlan) -> str | None:
        """Checks a change right before it begins, maybe hours after the plan. Returns a text if it must no longer begin."""
        return None

    def prove_first(self, basis: Basis, plan: N, planned: ComponentPlan) -> Proof:
        """Evidence that an applied change needs before the engine can prove it; may write to the API what the new process waits for. Its
        problems revert the change. Called again after a soak."""
        return Proof("")

    def before(self, basis: Basis, plans: Sequence[N]) -> list[ClusterStep]:
        """Writes to the API before any node is touched, which no undo takes back; their functions call nothing before they write."""
        return []

    def also_prove(self, basis: Basis, plan: N, planned: ComponentPlan) -> Proof | None:
        """What else must be proven of an applied change, besides the required proofs; None: nothing. It may ask the node."""
        return None

    def writes(self, basis: Basis, plans: Sequence[N]) -> kubeadm_config.ClusterWrites:
        """The writes to kubeadm's ConfigMaps, so that the settings last. Raises DeployError."""
        members = [
            kubeadm_config.ComponentDesired(
                plan.host, plan.kubelet.node_name, planned.component, plan.kubelet.style == "kubeadm", planned.lasting, planned.write
            )
            for plan in plans
            for planned in plan.planned
        ]
        return kubeadm_config.plan_writes(basis.found, members, basis.options)

    def notes(self, basis: Basis, plans: Sequence[N]) -> list[str]:
        """Further notes for the plan."""
        return []


def ended(step: NodeStep | None, unchanged: str) -> tuple[str, str, str]:
    """Outcome, seconds and proof, the last cells of a row. `unchanged`: the evidence that no change is needed (no step)."""
    if step is None:
        return "no change", "0", unchanged
    if step.outcome == "confirmed":
        return "confirmed", f"{step.seconds:.0f}", step.how
    return step.outcome, f"{step.seconds:.0f}" if step.seconds else "-", step.why or step.how or "-"


# ---- the engine


def change_nodes(fleet: Fleet, capability: Capability[Any, Any], name: str = "change and prove, or revert") -> Turns:
    """Plan for all hosts; then one operation on each host that changes. `name` as in Turns.

    Raises DeployError if something is refused, before it writes to any node.
    """
    return Turns.of(prepare(fleet, capability), fleet, name)


def prepare(fleet: Fleet, capability: Capability[Any, Any]) -> NodeRun:
    """The run, with its plan shown. Raises DeployError."""
    run_options, drains = with_options(ChangeDrains)(fleet)
    desired = capability.desired
    run_id = new_run_id()
    targets = [remote for remote in fleet.targets if remote.name in desired.by_host]
    basis = Basis(run_id, fleet, run_options, survey(fleet, targets, desired.wanted), drains)
    return _assemble(capability, basis, *_plan(capability, basis))


def _plan(capability: Capability[W, N], basis: Basis) -> tuple[list[N], list[str]]:
    """The plans of all nodes, after their binaries were asked, and notes. Raises DeployError with all refusals."""
    found = basis.found
    refusals: list[object] = [*found.refusals]
    plans: list[N] = []
    for made in _of_each(basis, found.nodes, lambda host: capability.plan(basis, found.nodes[host], capability.desired.by_host[host])):
        if isinstance(made, Refusal):
            refusals.append(made)
        else:
            plans.append(made)
            refusals += made.refusals
    refusals = [*_present(basis, {one.host for one in refusals if isinstance(one, Refusal)} - {plan.host for plan in plans}), *refusals]
    versions = _versions(capability, basis, plans)
    refusals += versions.refusals
    bridge.stop([*refusals, *capability.against_nodes(basis)])
    verdicts, judgements = _ask(basis, plans)
    refusals += [refusal for one in judgements.values() for refusal in one.refusals]
    plans = [starts.with_warnings(plan, judgements.get(plan.host)) for plan in plans]
    refusals += [said for said in verdicts.values() if isinstance(said, Refusal)]
    asked = {plan.host: (plan, said) for plan in plans if not isinstance(said := verdicts[plan.host], Refusal)}
    judged = []
    for judgement in _of_each(basis, asked, lambda host: _judge(capability, basis, *asked[host])):
        if isinstance(judgement, Refusal):
            refusals.append(judgement)
        else:
            judged.append(judgement)
            refusals += judgement.refusals
    bridge.stop([*refusals, *capability.against_plans(basis, judged)])
    judged, unfit = paired.judge(basis.fleet, found, judged, basis.options.allow_pairs, undoes=capability.undoes)
    bridge.stop(unfit)
    return judged, list(versions.notes)


def _present(basis: Basis, unplanned: Collection[str]) -> list[Refusal]:
    """What keeps nodes without a plan from their next start: it comes before the reason that there is no plan."""
    nodes = {host: node for host, node in basis.found.nodes.items() if host in unplanned}
    found = basis.fleet.each(
        [node.remote for node in nodes.values()], lambda remote: starts.present_refusals(nodes[remote.name]), doing="asked"
    )
    return [one for answer in found.values() if not isinstance(answer, Exception) for one in answer]


def _versions(capability: Capability[W, N], basis: Basis, plans: Sequence[N]) -> JudgedVersions:
    """The versions of the cluster, as the restarts of these plans would leave them."""
    try:
        nodes = basis.found.reading.known_nodes()
    except ApiFailure:
        nodes = {}  # the proof decides whether the run may continue without the API
    restarting = [(plan.host, planned.component) for plan in plans for planned in plan.changing]
    return judge_versions(basis.found.observed, nodes, restarting, basis.options, undoes=capability.undoes, all_of_it=capability.any_skew)


def _judge(capability: Capability[W, N], basis: Basis, plan: N, verdicts: Verdicts) -> N:
    judged = capability.judge(basis, replace(plan, warnings=(*plan.warnings, *verdicts.warnings)), verdicts)
    return cast(
        N, lost_pods.with_forecast(basis.found.reading, judged, capability.allows_evictions(plan.host), may_drain=basis.drains.allowed)
    )


def _of_each(basis: Basis, hosts: Collection[str], work: Callable[[str], N]) -> list[N | Refusal]:
    """The results of `work` for many hosts, in order; it reads the API."""
    remotes = [node.remote for host, node in basis.found.nodes.items() if host in hosts]
    made = basis.fleet.each(remotes, lambda remote: work(remote.name), doing="planned")
    return [answer if isinstance(answer, Refusal) else bridge.whole({host: answer})[host] for host, answer in made.items()]


def _ask(basis: Basis, plans: Sequence[N]) -> tuple[dict[str, Verdicts | Refusal], dict[str, starts.Judged]]:
    """By host, the verdicts of its binaries on the changes, and on the present files if they refuse a change; or why it cannot be asked.
    And what stands in the way of the next start, which each node was asked with the same command."""
    needed = {plan.host: starts.starts_of(plan) for plan in plans}
    scripts = {plan.host: (one.question if (one := needed[plan.host]) else "") + question(plan) for plan in plans}
    answers = _run(basis, {host: script for host, script in scripts.items() if script})
    against = {host: ask.verdicts(answer.stdout) for host, answer in answers.items() if not isinstance(answer, Exception)}
    again = {plan.host: script for plan in plans if plan.host in against and (script := question_present(plan, against[plan.host]))}
    present = {host: ask.verdicts(answer.stdout) for host, answer in _run(basis, again).items() if not isinstance(answer, Exception)}
    found: dict[str, Verdicts | Refusal] = {plan.host: Verdicts() for plan in plans}
    by_host = {plan.host: plan for plan in plans}
    for host, answer in answers.items():
        if isinstance(answer, Exception):
            found[host] = Refusal.of(host, [answer])
        else:
            said = answer.stdout
            warnings = tuple(ask.rewritten_files(by_host[host].kubelet, said))
            found[host] = Verdicts(
                against[host], present.get(host, {}), ask.listed(said), ask.flag_lines(said), ask.deprecated(said), warnings
            )
    judged = {
        host: one.judged(answer.stdout)
        for host, answer in answers.items()
        if not isinstance(answer, Exception) and (one := needed[host]) is not None
    }
    return found, judged


def _run(basis: Basis, scripts: Mapping[str, str]) -> dict[str, Answer | Exception]:
    remotes = [node.remote for host, node in basis.found.nodes.items() if host in scripts]
    return basis.fleet.each(
        remotes,
        lambda remote: remote.run("sh -s", stdin=scripts[remote.name], timeout=patient(ask.ALL_SECONDS)),
        doing="asked the binaries of",
    )


def _assemble(capability: Capability[W, N], basis: Basis, plans: Sequence[N], versions: Sequence[str]) -> NodeRun:
    found = basis.found
    changing, on = capability.order(basis, plans)
    by_change = {planned.change.id: plan for plan in plans for planned in plan.changing}
    apiservers = any(_stops_apiserver(plan, planned) for plan in plans for planned in plan.changing)
    steps = [_step(capability, basis, by_change[planned.change.id], planned, apiservers) for planned in changing if planned.change]
    stages = arrange(steps, {plan.host for plan in plans if plan.components}, basis.options.pace, on)
    outages, leftovers = plan_drains(basis.fleet, found, basis.drains, basis.run_id, plans, stages, capability.cordons_of(basis))
    info = this_run(basis.run_id, capability.desired.recorded)
    writes = capability.writes(basis, plans)

    def finish(run: NodeRun) -> None:
        _show_results(capability, basis, plans, writes, run)
        node_report.show_end(run)

    first, last = (writes.steps, []) if capability.writes_first else ([], writes.steps)
    first = [*capability.before(basis, plans), *first]
    run = NodeRun(info, stages, basis.fleet, basis.options.take_over, finish, first=first, last=last, leftovers=leftovers)
    notes = [f"WARNING {folding.listed(hosts)}: {warning}" for warning, hosts in by_warning(plans).items()]
    notes += [*versions, *capability.notes(basis, plans)]
    notes += [f"{names}:\n{outlook}" for names, outlook in folding.alike((plan.host, plan.outlook) for plan in plans if plan.outlook)]
    notes += outages
    if any(planned.component != KUBELET for planned in changing):
        notes.append(found.cluster.etcd_summary())
    notes += writes.notes + [one_line(sentence) for sentence in found.ignored]
    if capability.desired.heading:
        show(f"\n{capability.desired.heading}")
    node_report.show_plan(run, found.cluster.apiservers, notes)
    if not (run.steps or run.cluster_steps or run.leftovers):
        _show_results(capability, basis, plans, writes, run)
    return run


def _stops_apiserver(plan: NodePlan[Any], planned: ComponentPlan) -> bool:
    return planned.component == _APISERVER or (planned.recreates_static_pods and _APISERVER in plan.components)


def _step(capability: Capability[W, N], basis: Basis, plan: N, planned: ComponentPlan, apiservers: bool) -> NodeStep:
    assert planned.change is not None
    process = ChangedProcess(
        plan.host,
        plan.kubelet.node_name,
        planned.component,
        plan.components,
        apiservers,
        basis.options.allow_unproven,
        _pod_files(planned),
        bool(planned.undoes),
    )
    node, unproven = basis.found.nodes[plan.host], basis.options.allow_unproven
    watch = starts.StartWatch(node.remote, plan, planned, allow_unproven=unproven)
    prover = Prover(basis.found.cluster, process, planned, partial(_look_at_signs, basis, plan, planned))
    change = replace(planned.change, wanted_confirm_timeout=basis.options.confirm_timeout, patience=basis.options.patience)

    def ready() -> str | None:
        source = plan.source(planned.component)
        why = recheck(basis.found.nodes[plan.host].remote, planned.component, source.process) or prover.ready()
        why = why or watch.recheck() or capability.recheck(basis, plan, planned) or _no_pod_starts(basis, plan, planned, watch)
        consent, may_drain = capability.allows_evictions(plan.host), basis.drains.allowed
        return why or lost_pods.recheck(basis.found.cluster, plan, planned, consent, may_drain=may_drain)

    def prove(status: Status) -> Proof:
        first = capability.prove_first(basis, plan, planned)
        if first.problems:
            return first
        proof = prover.prove(status)
        proof = replace(proof, how=folding.once_each((proof.how, first.how)))
        further: tuple[Callable[[], Proof | None], ...] = (
            lambda: capability.also_prove(basis, plan, planned),
            watch.proof,
            lambda: _new_pod(basis, plan, planned, watch),
            lambda: Proof(folding.once_each(planned.unproven)),
        )
        for more in further:
            if not proof.problems and (found := more()) is not None:
                proof = Proof(folding.once_each((proof.how, found.how)), found.problems)
        return proof

    return NodeStep(
        change, ready, prove, prover.watch, watch.blocking, planned.effective, planned.undoes, recreates_pods=planned.recreates_pods,
        unseen=prover.unseen,
    )  # fmt: skip


def _new_pod(basis: Basis, plan: NodePlan[Any], planned: ComponentPlan, watch: starts.StartWatch) -> Proof | None:
    """That a new pod starts, after a change that new pods take their effect from."""
    fields = {name for name in planned.settings if any(name == one or one.startswith(f"{name}.") for one in NEW_PODS)}
    if not fields and not planned.recreates_pods:
        return None
    return probe_pod.starts_a_pod(
        basis.found.cluster, basis.run_id, plan.kubelet.node_name, watch.pauses, allow_unproven=basis.options.allow_unproven
    )


def _no_pod_starts(basis: Basis, plan: NodePlan[Any], planned: ComponentPlan, watch: starts.StartWatch) -> str | None:
    """Before a manifest changes: if the kubelet has failed to start a pod a moment ago, it is asked to start one like those of the control
    plane. A text if it does not."""
    name, cluster = plan.kubelet.node_name, basis.found.cluster
    if planned.component == KUBELET or not watch.epoch or not probe_pod.sandboxes_fail(cluster, name, watch.epoch):
        return None
    proof = probe_pod.starts_a_pod(cluster, basis.run_id, name, watch.pauses, allow_unproven=True, host_network=True)
    return (
        f"{'; '.join(proof.problems)}. daytwo changes no manifest while the kubelet cannot start pods: repair that first"
        if proof.problems
        else None
    )


def _look_at_signs(basis: Basis, plan: NodePlan[Any], planned: ComponentPlan, status: Status, names: list[str]) -> list[tuple[Sign, Found]]:
    """What the signs of the changed process show. Raises ApiFailure."""
    remote, component, change = basis.found.nodes[plan.host].remote, plan.components.get(planned.component), planned.change
    serves = component.serves(status.argv) if component else None
    look = ProcessLook(basis.found.cluster, remote, planned.component, status.identity[0], plan.kubelet.node_name, status.argv, serves)
    if component is None or change is None:
        return look_at(look, names, "journal", {})
    return look_at(look, names, component.container, _on_the_node(change.files[-1].after or b"", component.container, status.argv))


def _on_the_node(manifest: bytes, container: str, argv: Sequence[str]) -> dict[str, str]:
    """The paths that a component writes, by its manifest: as the container and as the node has them. Without those in no directory of the
    node."""
    found = {}
    for name, values in any_flag.every(argv).items():
        named = written_path(argv[0].rpartition("/")[2] if argv else "", name)
        for path in paths_in(values) if named and not named.directory else ():
            try:
                place = manifest_parts.place_of(manifest, container, path)
            except FormatError:
                continue
            if place is not None and place.source is not None:
                found[path] = place.source
    return found


def _pod_files(planned: ComponentPlan) -> dict[str, str]:
    """The checksums to prove in the container of a component whose flags change, or the files of its pod. Its manifest is the last one; a
    file that it no longer mounts must not be there, also one that stays on the node."""
    change = planned.change
    if change is None or change.kind != "static-pod" or not (planned.flags or len(change.files) > 1):
        return {}
    *files, manifest = change.files
    found = {edit.path: edit.after_sha256 if _mounted(manifest, change.container, edit.path) else ABSENT for edit in files}
    return {**found, manifest.path: manifest.after_sha256}


def _mounted(manifest: FileEdit, container: str, path: str) -> bool:
    try:
        return manifest_parts.mounted(manifest.after or b"", container, path)
    except FormatError:
        return False


def by_warning(plans: Iterable[NodePlan[Any]]) -> dict[str, list[str]]:
    """Each warning, on one line, with its hosts."""
    found: dict[str, list[str]] = {}
    for plan in plans:
        for warning in dict.fromkeys(map(one_line, plan.warnings)):
            found.setdefault(warning, []).append(plan.host)
    return found


def _show_results(
    capability: Capability[W, N], basis: Basis, plans: Sequence[N], writes: kubeadm_config.ClusterWrites, run: NodeRun
) -> None:
    headers = [*capability.columns, "outcome", "s", "proof"]
    of_nodes = capability.rows(basis, plans, {(step.change.node, step.change.component): step for step in run.steps})
    of_cluster = [["cluster"] * (len(headers) - len(row)) + row for row in writes.rows()]
    if rows := of_cluster + of_nodes if capability.writes_first else of_nodes + of_cluster:
        show_lines("\n" + table.render(headers, _folded(rows) if folding.folds() else rows))
        end_unproven((row[-1] for row in rows), ["allow_unproven=true"] if basis.options.allow_unproven else ())


def _folded(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """What is not well comes first; the seconds and the proof of what is well may differ in one row."""
    well = ("no change", "confirmed")
    last = len(rows[0]) - 1
    others = table.folded([row for row in rows if row[-3] not in well])
    return [*others, *table.folded([row for row in rows if row[-3] in well], vary=(last - 1, last))]
