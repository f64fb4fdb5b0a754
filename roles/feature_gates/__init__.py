"""Feature gates on kubelets and control-plane components: planned on all nodes, changed one by one, proven or put back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyinfra.api.deploy import deploy

from roles.api import ApiError, GateMetric
from roles.change.record import Effective, new_run_id, this_run
from roles.change.refusal import Refusal
from roles.feature_gates import plan as planning
from roles.feature_gates.model import COMPONENTS, Desired, read
from roles.feature_gates.plan import NodePlan, Planned
from roles.kubelet import ask
from roles.patience import patient
from roles.proof import Cluster, NoApi, Owed, Prover, Survey, differences, survey
from roles.rollout import options as run_options
from roles.rollout import remote as bridge
from roles.rollout import report, table
from roles.rollout.options import Options
from roles.rollout.remote import Fleet, show
from roles.rollout.run import Run, Step, arrange


@dataclass
class Prepared:
    """The whole plan of one run."""

    run: Run
    plans: list[NodePlan]
    cluster: Cluster
    before: dict[tuple[str, str], dict[str, GateMetric]]


@deploy("Feature gates")  # type: ignore[untyped-decorator]
def feature_gates() -> None:
    """Set the gates that the inventory's data (or --data feature_gates=A=true,B=absent) wants.

    Data keys: feature_gates, components, only, allow_unknown_gates, and those of roles/rollout/options.py. Raises DeployError,
    before any node is written to, where the plan is refused.
    """
    prepared = bridge.once("feature_gates", _prepare)
    host = bridge.current_host()
    changes = any(step.change.node == host for step in prepared.run.steps)
    bridge.drive("feature gates", changes, prepared.run.result, name="change, prove, or put back")


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
    plans = _plan(run_id, fleet, found_nodes, desired)
    return _assemble(run_id, fleet, plans, found_nodes.cluster, desired, options)


def _chosen(host: str, desired: Desired) -> bool:
    return desired.only is None or host in desired.only


def _check_only(fleet: Fleet, desired: dict[str, Desired]) -> None:
    names = {remote.name for remote in fleet.targets}
    asked = {name for found in desired.values() for name in found.only or ()}
    bridge.stop(f"only={name}: no such host in this run; hosts are {', '.join(sorted(names))}" for name in sorted(asked - names))


def _plan(run_id: str, fleet: Fleet, found: Survey, desired: dict[str, Desired]) -> list[NodePlan]:
    """Plans of the targets, after their binaries were asked. Raises DeployError with all refusals."""
    refusals: list[object] = list(found.refusals)
    plans: list[NodePlan] = []
    for host, node in found.nodes.items():
        try:
            plans.append(planning.make(run_id, node.seen, desired[host]))
        except Refusal as refusal:
            refusals.append(refusal)
    bridge.stop(refusals)
    by_host = {plan.host: plan for plan in plans}
    asked = [node.remote for host, node in found.nodes.items() if planning.ask_script(by_host[host])]
    answers = fleet.each(
        asked, lambda remote: remote.run("sh -s", stdin=planning.ask_script(by_host[remote.name]), timeout=patient(ask.ALL_SECONDS))
    )
    for remote in asked:
        answer = answers[remote.name]
        try:
            if isinstance(answer, Exception):
                raise Refusal(remote.name, str(answer).removeprefix(f"{remote.name}: "))
            verdicts = ask.verdicts(answer.stdout)
            by_host[remote.name] = planning.judge(by_host[remote.name], verdicts, desired[remote.name].allow_unknown_gates)
        except Refusal as refusal:
            refusals.append(refusal)
    for component in {name for wish in desired.values() for name in wish.components if wish.components != COMPONENTS}:
        if not any(planned.component == component for plan in plans for planned in plan.planned):
            refusals.append(f"components={component}: no chosen node runs it")
    bridge.stop(refusals)
    return list(by_host.values())


def _assemble(
    run_id: str, fleet: Fleet, plans: list[NodePlan], cluster: Cluster, desired: dict[str, Desired], options: Options
) -> Prepared:
    before: dict[tuple[str, str], dict[str, GateMetric]] = {}
    refusals: list[object] = []
    for plan in plans:
        for planned in plan.planned:
            try:
                before[(plan.host, planned.component)] = cluster.effective(plan.host, planned.component, planned.node_name)
            except (ApiError, NoApi) as error:
                if not options.allow_unproven:
                    refusals.append(
                        f"{plan.host}: {planned.component}: its effective gates cannot be read, so no change could be proven: {error}; "
                        "mend that, or go on without proof by --data allow_unproven=true"
                    )
                continue
            wrong = differences(planned.component, planned.expected, before[(plan.host, planned.component)])
            if planned.change is None and wrong:
                refusals.append(
                    f"{plan.host}: the files of {planned.component} are as wanted and the process is not: {'; '.join(wrong)}; "
                    f"it was not restarted since: restart it, then run this again"
                )
    bridge.stop(refusals)
    on = any(found.turns_on for found in desired.values())
    order = list(COMPONENTS) if on else list(reversed(COMPONENTS))
    changing = [(planned, plan) for plan in plans for planned in plan.planned if planned.change is not None]
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
    info = this_run(run_id, {host: found.model_dump() for host, found in desired.items()})
    prepared = Prepared(
        Run(info, stages, fleet, options.take_over, lambda run: _finish(prepared)),
        plans,
        cluster,
        before,
    )
    notes = [f"WARNING {plan.host}: {warning}" for plan in plans for warning in plan.warnings]
    if any(planned.component != "kubelet" for planned, _ in changing):
        notes.append(cluster.etcd_summary())
    report.show_plan(prepared.run, cluster.apiservers, notes)
    if not steps:
        _show_results(prepared)
    return prepared


def _step(planned: Planned, prover: Prover, effective: dict[str, GateMetric], options: Options) -> Step:
    assert planned.change is not None
    gates = {
        name: {"before": effective[name].enabled if name in effective else None, "after": value} for name, value in planned.wanted.items()
    }
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
    headers = ["node", "component", "gate", "before", "after", "outcome", "s", "proof"]
    show("\n" + table.render(headers, rows))


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
