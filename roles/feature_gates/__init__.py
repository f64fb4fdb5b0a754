"""Feature gates on kubelets and control-plane components: planned on all nodes, changed one by one, proven or put back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyinfra.api.deploy import deploy

from roles import kubeadm
from roles.api import ApiError, GateMetric
from roles.change.record import Effective, new_run_id, this_run
from roles.change.refusal import Refusal
from roles.eviction import foresee
from roles.feature_gates import plan as planning
from roles.feature_gates import skew
from roles.feature_gates.model import COMPONENTS, Desired, read
from roles.feature_gates.plan import NodePlan, Planned
from roles.feature_gates.skew import Running
from roles.feature_gates.unmet import unmet, untold, wanted_of
from roles.harmless import one_line
from roles.kubelet import ask
from roles.kubelet_config import brings
from roles.observe import minor_of
from roles.patience import patient
from roles.proof import Cluster, NoApi, Owed, Prover, Survey, differences, survey
from roles.rollout import options as run_options
from roles.rollout import remote as bridge
from roles.rollout import report, table
from roles.rollout.options import Options
from roles.rollout.remote import Answer, Fleet, Remote, show_lines
from roles.rollout.run import Run, Step, arrange


@dataclass
class Prepared:
    """The whole plan of one run."""

    run: Run
    plans: list[NodePlan]
    cluster: Cluster
    before: dict[tuple[str, str], dict[str, GateMetric]]
    lasting: kubeadm.Last


@deploy("Feature gates")  # type: ignore[untyped-decorator]
def feature_gates() -> None:
    """Set the gates that the inventory's data (or --data feature_gates=A=true,B=absent) wants.

    Data keys: feature_gates, components, only, all_components, allow_unknown_gates, allow_hazards, and those of
    roles/rollout/options.py. Raises DeployError, before any node is written to, where the plan is refused.
    """
    prepared = bridge.once("feature_gates", _prepare)
    host = bridge.current_host()
    bridge.drive("feature gates", prepared.run.involves(host), prepared.run.result, name="change, prove, or put back")


def _prepare(fleet: Fleet) -> Prepared:
    options = run_options.read(fleet.targets)
    refusals: list[object] = [f"{remote.name}: unreachable; mend that, or leave it out with --limit" for remote in fleet.unreachable]
    desired: dict[str, Desired] = {}
    for remote in fleet.targets:
        try:
            if (found := read(remote.name, remote.data)) is not None:
                desired[remote.name] = found
        except Refusal as refusal:
            refusals.append(refusal)
    bridge.stop(refusals)
    if not desired:
        raise bridge.refuse("no host has feature_gates in its data; set it in group_data or with --data feature_gates=NAME=true")
    targets = [remote for remote in fleet.targets if remote.name in desired and _chosen(remote.name, desired[remote.name])]
    _check_only(fleet, desired)
    run_id = new_run_id()
    found_nodes = survey(fleet, targets)
    plans, read_gates = _plan(run_id, fleet, found_nodes, desired)
    return _assemble(run_id, fleet, plans, found_nodes, read_gates, desired, options)


def _chosen(host: str, desired: Desired) -> bool:
    return desired.only is None or host in desired.only


def _check_only(fleet: Fleet, desired: dict[str, Desired]) -> None:
    names = {remote.name for remote in fleet.targets}
    asked = {name for found in desired.values() for name in found.only or ()}
    bridge.stop(f"only={name}: no such host in this run; hosts are {', '.join(sorted(names))}" for name in sorted(asked - names))


class _Gates:
    """The gates that components run with, each read once; what cannot be read is kept as the error."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.found: dict[tuple[str, str], dict[str, GateMetric]] = {}
        self.failed: dict[tuple[str, str], ApiError | NoApi] = {}

    def read(self, plan: NodePlan) -> dict[str, dict[str, GateMetric]]:
        """Those of one node, by component."""
        for planned in plan.planned:
            key = (plan.host, planned.component)
            try:
                self.found[key] = self._cluster.effective(*key, planned.node_name)
            except (ApiError, NoApi) as error:
                self.failed[key] = error
        return {component: gates for (host, component), gates in self.found.items() if host == plan.host}


def _plan(run_id: str, fleet: Fleet, found: Survey, desired: dict[str, Desired]) -> tuple[list[NodePlan], _Gates]:
    """Plans of the targets, after their binaries and processes were asked. Raises DeployError with all refusals."""
    refusals: list[object] = [*found.refusals]
    plans: list[NodePlan] = []
    for host, node in found.nodes.items():
        try:
            plans.append(planning.make(run_id, node.seen, desired[host]))
        except Refusal as refusal:
            refusals.append(refusal)
    refusals += _skew(found)
    bridge.stop(refusals)
    by_host = {plan.host: plan for plan in plans}
    asked = [node.remote for host, node in found.nodes.items() if planning.ask_script(by_host[host])]
    answers = fleet.each(
        asked, lambda remote: remote.run("sh -s", stdin=planning.ask_script(by_host[remote.name]), timeout=patient(ask.ALL_SECONDS))
    )
    present = _present(fleet, asked, by_host, answers)
    gates = _Gates(found.cluster)
    for host, plan in by_host.items():
        metrics = gates.read(plan)
        if (answer := answers.get(host)) is None:
            continue
        if isinstance(answer, Exception):
            refusals.append(Refusal(host, str(answer).removeprefix(f"{host}: ")))
            continue
        said, listed = ask.verdicts(answer.stdout), ask.listed(answer.stdout)
        by_host[host], against = planning.judge(plan, said, desired[host], listed, metrics, present.get(host))
        refusals += against
        try:
            by_host[host] = _beside(found.cluster, by_host[host])
        except Refusal as refusal:
            refusals.append(refusal)
    for component in {name for wish in desired.values() for name in wish.components if wish.components != COMPONENTS}:
        if not any(planned.component == component for plan in plans for planned in plan.planned):
            refusals.append(f"components={component}: no chosen node runs it")
    refusals += _nobody(plans)
    bridge.stop(refusals)
    return list(by_host.values()), gates


def _present(
    fleet: Fleet, asked: Sequence[Remote], plans: Mapping[str, NodePlan], answers: Mapping[str, Answer | Exception]
) -> dict[str, dict[str, str]]:
    """By host what the binaries that refuse their change have against the files as they are."""
    scripts: dict[str, str] = {}
    for host, answer in answers.items():
        if not isinstance(answer, Exception) and (script := planning.ask_present_script(plans[host], ask.verdicts(answer.stdout))):
            scripts[host] = script
    again = fleet.each(
        [remote for remote in asked if remote.name in scripts],
        lambda remote: remote.run("sh -s", stdin=scripts[remote.name], timeout=patient(ask.ALL_SECONDS)),
    )
    return {host: ask.verdicts(answer.stdout) for host, answer in again.items() if not isinstance(answer, Exception)}


def _beside(cluster: Cluster, plan: NodePlan) -> NodePlan:
    """The plan with what a restart of its kubelet brings besides. Raises Refusal."""
    planned = next((one for one in plan.planned if one.component == "kubelet" and one.change is not None), None)
    if planned is None or not plan.kubelet.is_known:
        return plan
    named = [("featureGates", name) for name in planned.wanted]
    return replace(plan, warnings=(*plan.warnings, *brings(cluster, plan.host, plan.kubelet, foresee, named)))


def _skew(found: Survey) -> list[str]:
    """Versions that may not run together: of all nodes that were looked at, and of all other kubelets that the API knows."""
    running = []
    names = set()
    for host, node in found.looked_at.items():
        names.add(node.kubelet.node_name)
        processes = {"kubelet": node.kubelet.process, **{name: component.process for name, component in node.components.items()}}
        running += [Running(host, name, process.minor) for name, process in processes.items() if process.minor is not None]
    try:
        others = found.cluster.kubelet_versions()
    except (ApiError, NoApi):
        others = {}  # whether it may go on without the API is decided where something is to be proven
    for name, version in others.items():
        if name not in names and (minor := minor_of(version)) is not None:
            running.append(Running(name, "kubelet", minor))
    return skew.problems(running)


def _nobody(plans: list[NodePlan]) -> list[str]:
    """Gates that no component of the whole run reads, where nothing else is left to do."""
    if any(plan.planned for plan in plans):
        return []
    left = {item.gate: item for plan in plans for item in plan.left_out}
    would = {gate: f" ({', '.join(item.readers)} would)" if item.readers else "" for gate, item in left.items()}
    return [
        f"{gate}: no component of the chosen nodes reads it{readers}; choose others, name the components with components=, or set it"
        " everywhere with --data all_components=true"
        for gate, readers in would.items()
    ]


def _assemble(
    run_id: str, fleet: Fleet, plans: list[NodePlan], found: Survey, gates: _Gates, desired: dict[str, Desired], options: Options
) -> Prepared:
    cluster = found.cluster
    before = gates.found
    refusals: list[object] = []
    for plan in plans:
        for planned in plan.planned:
            key = (plan.host, planned.component)
            if error := gates.failed.get(key):
                if not options.allow_unproven:
                    refusals.append(
                        f"{plan.host}: {planned.component}: its effective gates cannot be read, so no change could be proven: {error}; "
                        "mend that, or go on without proof by --data allow_unproven=true"
                    )
                continue
            wrong = differences(planned.component, planned.expected, before[key])
            if planned.change is None and wrong:
                refusals.append(
                    f"{plan.host}: the files of {planned.component} are as wanted and the process is not: {'; '.join(wrong)}; "
                    f"it was not restarted since: restart it, then run this again"
                )
    changing = [(planned, plan) for plan in plans for planned in plan.planned if planned.change is not None]
    ways = [planning.moves(planned, before.get((plan.host, planned.component), {})) for planned, plan in changing]
    refusals += _both_ways(changing, ways)
    bridge.stop(refusals)
    on = True in set().union(*ways) if any(ways) else any(found.turns_on for found in desired.values())
    order = list(COMPONENTS) if on else list(reversed(COMPONENTS))
    changing.sort(key=lambda pair: order.index(pair[0].component))  # nodes stay as in the inventory
    apiservers = any(planned.component == "kube-apiserver" for planned, _ in changing)
    steps: list[Step] = []
    for planned, plan in changing:
        owed = Owed(
            plan.host, planned.node_name, planned.component, planned.expected, {}, plan.components, apiservers, options.allow_unproven
        )  # fmt: skip
        effective = before.get((plan.host, planned.component), {})
        steps.append(_step(planned, Prover(cluster, owed), effective, options))
    stages = arrange(steps, {plan.host for plan in plans if plan.components}, options.pace, on)
    info = this_run(run_id, {host: wish.model_dump() for host, wish in desired.items()})
    lasting = kubeadm.last(found, fleet, _members(plans), options)
    prepared = Prepared(
        Run(info, stages, fleet, options.take_over, lambda run: _finish(prepared), last=lasting.steps),
        plans,
        cluster,
        before,
        lasting,
    )
    notes = [one_line(f"WARNING {', '.join(hosts)}: {warning}") for warning, hosts in _by_text(plans).items()] + _left_out(plans)
    if any(planned.component != "kubelet" for planned, _ in changing):
        notes.append(cluster.etcd_summary())
    notes += lasting.notes + [one_line(sentence) for sentence in found.ignored]
    notes += [one_line(f"NOT THE SAME {difference}") for difference in _apart(prepared)]
    report.show_plan(prepared.run, cluster.apiservers, notes)
    if not (steps or lasting.steps):
        _show_results(prepared)
    return prepared


def _both_ways(changing: list[tuple[Planned, NodePlan]], ways: list[set[bool]]) -> list[str]:
    """Refuse a run that would have to go from the apiservers down and from the kubelets up at once."""
    if len(set().union(*ways)) < 2 or len({planned.component for planned, _ in changing}) < 2:
        return []
    return [
        "some gates go on and others off: on goes from the apiservers to the kubelets, off the other way round, and a run has one order; "
        "do it in two runs, with --data feature_gates=... naming first the one kind, then the other"
    ]


def _by_text(plans: list[NodePlan]) -> dict[str, list[str]]:
    """Each warning with the hosts it is about."""
    found: dict[str, list[str]] = {}
    for plan in plans:
        for warning in plan.warnings:
            found.setdefault(warning, []).append(plan.host)
    return found


def _left_out(plans: list[NodePlan]) -> list[str]:
    """Components that are not touched for a gate, and why; one line for all nodes where it is the same."""
    found: dict[str, list[str]] = {}
    for item in (item for plan in plans for item in plan.left_out):
        still = "" if item.set_to is None else f"; its sources set it to {str(item.set_to).lower()} all the same, and keep that"
        found.setdefault(f"{item.component} is left as it is for {item.gate}: {item.why}{still}", []).append(item.host)
    if not found:
        return []
    lines = [f"LEFT OUT {', '.join(hosts)}: {text}" for text, hosts in found.items()]
    return ["\n".join([*lines, "To restart these too: --data all_components=true, or name them with components=."])]


def _members(plans: list[NodePlan]) -> list[kubeadm.Member]:
    return [
        kubeadm.Member(
            plan.host,
            planned.node_name,
            planned.component,
            plan.kubelet.style == "kubeadm",
            {(kubeadm.GATES, name): value for name, value in planned.wanted.items()},
        )
        for plan in plans
        for planned in plan.planned
    ]


def _apart(prepared: Prepared) -> list[kubeadm.Difference]:
    """Gates of these nodes that this run is not about, and that kubeadm's ConfigMaps, the files and the processes do not agree on."""
    found = [
        kubeadm.Found(
            plan.host,
            planned.component,
            planned.sourced,
            {name: metric.enabled for name, metric in prepared.before.get((plan.host, planned.component), {}).items()},
        )
        for plan in prepared.plans
        for planned in plan.planned
        if plan.kubelet.style == "kubeadm"
    ]
    wanted = {(plan.host, planned.component): planned.wanted for plan in prepared.plans for planned in plan.planned}
    return [
        difference
        for difference in kubeadm.gate_differences(prepared.lasting.lasting, found)
        if difference.setting not in wanted[(difference.host, difference.component)]
    ]


def _step(planned: Planned, prover: Prover, effective: dict[str, GateMetric], options: Options) -> Step:
    assert planned.change is not None
    # What the files of before come to: that is what undoing this brings, and not what ran by chance until now.
    before = {**{name: metric.enabled for name, metric in effective.items()}, **planned.sourced}
    gates = {name: {"before": before.get(name), "after": value} for name, value in planned.wanted.items()}
    change = replace(planned.change, wanted_confirm_timeout=options.confirm_timeout, patience=options.patience)
    return Step(change, prover.ready, prover.prove, prover.watch, Effective(gates))


def _finish(prepared: Prepared) -> None:
    _show_results(prepared)
    report.show_end(prepared.run)


def _show_results(prepared: Prepared) -> None:
    after: dict[tuple[str, str], dict[str, GateMetric]] = {}
    steps = {(step.change.node, step.change.component): step for step in prepared.run.steps}
    rows = []
    for plan in prepared.plans:
        for planned in plan.planned:
            key = (plan.host, planned.component)
            step = steps.get(key)
            if step is None or step.outcome == "not started":
                after[key] = prepared.before.get(key, {})
            elif step.outcome == "confirmed":
                after[key] = prepared.cluster.last_effective(*key)  # as they were proven
            else:
                try:
                    after[key] = prepared.cluster.effective(plan.host, planned.component, planned.node_name)
                except (ApiError, NoApi):
                    after[key] = {}
            for gate, wanted in planned.wanted.items():
                rows.append(
                    [
                        plan.host,
                        planned.component,
                        gate,
                        _value(prepared.before.get(key, {}), gate, planned.sourced),
                        _value(after[key], gate, _after_sources(planned, step)),
                        *_how(step, wanted, key in prepared.before),
                    ]
                )
        rows += [[item.host, item.component, item.gate, "-", "-", "left out", "-", item.why] for item in plan.left_out]
    rows += [["cluster", *row] for row in prepared.lasting.rows()]
    headers = ["node", "component", "gate", "before", "after", "outcome", "s", "proof"]
    show_lines("\n" + table.render(headers, rows))


def _after_sources(planned: Planned, step: Step | None) -> dict[str, bool]:
    if step is None or step.outcome != "confirmed":
        return planned.sourced
    kept = {name: value for name, value in planned.sourced.items() if name not in planned.wanted}
    return kept | {name: value for name, value in planned.wanted.items() if value is not None}


def _value(effective: dict[str, GateMetric], gate: str, sourced: dict[str, bool]) -> str:
    """The effective value, and whether a source sets it or it is the default."""
    found = effective.get(gate)
    if found is None:
        return f"{str(sourced[gate]).lower()} (set)" if gate in sourced else "unknown"
    return f"{str(found.enabled).lower()} ({'set' if gate in sourced else 'default'})"


def _how(step: Step | None, wanted: bool | None, read: bool) -> tuple[str, str, str]:
    if step is None:
        return "no change", "0", "gates in /metrics" if read else "NOT PROVEN: /metrics could not be read"
    if step.outcome == "confirmed":
        return "confirmed", f"{step.seconds:.0f}", step.how
    return step.outcome, f"{step.seconds:.0f}" if step.seconds else "-", step.why or step.how or "-"


__all__ = ["Desired", "feature_gates", "read", "unmet", "untold", "wanted_of"]
