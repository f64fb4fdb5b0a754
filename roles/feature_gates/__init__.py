"""Feature gates on kubelets and control-plane components: planned on all nodes, changed one by one, proven or put back."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from pyinfra.api.deploy import deploy

from roles import control_plane, kubelet
from roles.api import ApiError, GateMetric
from roles.change.model import STABLE_SECONDS
from roles.change.refusal import Refusal
from roles.feature_gates import plan as planning
from roles.feature_gates.model import COMPONENTS, Desired, read
from roles.feature_gates.plan import NodePlan, Planned
from roles.feature_gates.prove import Prover, differences
from roles.observe import Observation
from roles.observe.look import look
from roles.proof import Cluster, NoApi
from roles.rollout import remote as bridge
from roles.rollout import table
from roles.rollout.remote import Fleet, Remote, show
from roles.rollout.run import Run, Step

# Group of the hosts that are looked at even where --limit leaves them out.
CONTROL_PLANE_GROUP = "control_plane"
APISERVER_OUTAGE = "about 40 s (the old one's grace period is 30 s)"


@dataclass
class Prepared:
    """The whole plan of one run."""

    run: Run
    plans: list[NodePlan]
    cluster: Cluster
    before: dict[tuple[str, str], dict[str, GateMetric]] = field(default_factory=dict)


@deploy("Feature gates")  # type: ignore[untyped-decorator]
def feature_gates() -> None:
    """Set the gates that the inventory's data (or --data feature_gates=A=true,B=absent) wants.

    Data keys: feature_gates, components, only, allow_unknown_gates, allow_unproven. Raises DeployError, before any node is
    written to, where the plan is refused.
    """
    prepared = bridge.once("feature_gates", _prepare)
    host = bridge.current_host()
    changes = any(step.change.node == host for step in prepared.run.steps)
    bridge.drive("feature gates", changes, prepared.run.result, name="change, prove, or put back")


def _prepare(fleet: Fleet) -> Prepared:
    run_id = time.strftime("r%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)
    refusals = [f"{remote.name}: unreachable; mend that, or leave it out with --limit" for remote in fleet.unreachable]
    desired: dict[str, Desired] = {}
    for remote in fleet.targets:
        try:
            if (found := read(remote.name, remote.data)) is not None:
                desired[remote.name] = found
        except Refusal as refusal:
            refusals.append(str(refusal))
    _stop(refusals)
    if not desired:
        raise bridge.refuse("no host has feature_gates in its data; set it in group_data or with --data feature_gates=NAME=true")
    targets = [remote for remote in fleet.targets if remote.name in desired and _chosen(remote.name, desired[remote.name])]
    _check_only(fleet, desired)
    lookers = [remote for remote in (*fleet.targets, *fleet.others) if _is_control_plane(remote) and remote not in targets]
    for remote in lookers:
        if not remote.connected and not remote.connect():
            refusals.append(f"{remote.name}: unreachable; it is a control-plane node and must be looked at before any change")
    _stop(refusals)
    seen = fleet.each([*targets, *lookers], lambda remote: look(remote, kubelet.wanted))
    plans, cluster = _plan(run_id, fleet, targets, lookers, seen, desired)
    return _assemble(run_id, fleet, plans, cluster, desired)


def _stop(refusals: list[str]) -> None:
    if refusals:
        lines = "\n".join(f"  - {refusal}" for refusal in refusals)
        raise bridge.refuse(f"refused, nothing was written on any node:\n{lines}")


def _chosen(host: str, desired: Desired) -> bool:
    return desired.only is None or host in desired.only


def _check_only(fleet: Fleet, desired: dict[str, Desired]) -> None:
    names = {remote.name for remote in fleet.targets}
    asked = {name for found in desired.values() for name in found.only or ()}
    _stop([f"only={name}: no such host in this run; hosts are {', '.join(sorted(names))}" for name in sorted(asked - names)])


def _is_control_plane(remote: Remote) -> bool:
    return CONTROL_PLANE_GROUP in remote.groups


def _plan(
    run_id: str,
    fleet: Fleet,
    targets: list[Remote],
    lookers: list[Remote],
    seen: dict[str, Observation | Exception],
    desired: dict[str, Desired],
) -> tuple[list[NodePlan], Cluster]:
    """Plans of the targets, after their binaries were asked. Raises DeployError with all refusals."""
    refusals: list[str] = []
    plans: list[NodePlan] = []
    cluster = Cluster()
    for remote in (*targets, *lookers):
        observation = seen[remote.name]
        try:
            if isinstance(observation, Exception):
                raise Refusal(remote.name, str(observation).removeprefix(f"{remote.name}: "))
            if remote in targets:
                plan = planning.make(run_id, observation, desired[remote.name])
                plans.append(plan)
                cluster.add(remote, observation, plan.components)
            else:
                cluster.add(remote, observation, control_plane.find(kubelet.find(observation)))
        except Refusal as refusal:
            refusals.append(str(refusal))
    _stop(refusals)
    by_host = {plan.host: plan for plan in plans}
    asked = [remote for remote in targets if planning.ask_script(by_host[remote.name])]
    answers = fleet.each(asked, lambda remote: remote.run("sh -s", stdin=planning.ask_script(by_host[remote.name]), timeout=120))
    for remote in asked:
        answer = answers[remote.name]
        try:
            if isinstance(answer, Exception):
                raise Refusal(remote.name, str(answer).removeprefix(f"{remote.name}: "))
            verdicts = planning.verdicts(answer.stdout)
            by_host[remote.name] = planning.judge(by_host[remote.name], verdicts, desired[remote.name].allow_unknown_gates)
        except Refusal as refusal:
            refusals.append(str(refusal))
    for component in {name for found in desired.values() for name in found.components if found.components != COMPONENTS}:
        if not any(planned.component == component for plan in plans for planned in plan.planned):
            refusals.append(f"components={component}: no chosen node runs it")
    _stop(refusals)
    return list(by_host.values()), cluster


def _assemble(run_id: str, fleet: Fleet, plans: list[NodePlan], cluster: Cluster, desired: dict[str, Desired]) -> Prepared:
    prepared = Prepared(Run(run_id, [], {}, lambda run: None), plans, cluster)
    refusals: list[str] = []
    for plan in plans:
        for planned in plan.planned:
            try:
                prepared.before[(plan.host, planned.component)] = cluster.effective(plan.host, planned.component, planned.node_name)
            except (ApiError, NoApi) as error:
                if not desired[plan.host].allow_unproven:
                    refusals.append(
                        f"{plan.host}: {planned.component}: its effective gates cannot be read, so no change could be proven: {error}; "
                        "mend that, or go on without proof by --data allow_unproven=true"
                    )
                continue
            if planned.change is None and (wrong := differences(planned, prepared.before[(plan.host, planned.component)])):
                refusals.append(
                    f"{plan.host}: the files of {planned.component} are as wanted and the process is not: {'; '.join(wrong)}; "
                    f"it was not restarted since: restart it, then run this again"
                )
    _stop(refusals)
    on = any(found.turns_on for found in desired.values())
    ordered = _ordered(plans, on)
    steps = []
    apiservers = any(planned.change is not None and planned.component == "kube-apiserver" for planned, _ in ordered)
    for planned, plan in ordered:
        if planned.change is not None:
            prover = Prover(
                cluster, planned, plan.kubelet, plan.components, apiserver_changes=apiservers, unproven=desired[plan.host].allow_unproven
            )
            steps.append(Step(planned.change, prover.ready, prover.prove, prover.watch))
    prepared.run = Run(run_id, steps, bridge.hosts_by_name(fleet.targets), lambda run: _finish(prepared))
    _show_plan(prepared)
    if not steps:
        _show_results(prepared)
    return prepared


def _ordered(plans: list[NodePlan], on: bool) -> list[tuple[Planned, NodePlan]]:
    """On: apiservers, controller-managers, schedulers, then kubelets; off: the other way round. Hosts as in the inventory."""
    pairs = [(planned, plan) for plan in plans for planned in plan.planned]
    order = list(COMPONENTS) if on else list(reversed(COMPONENTS))
    return sorted(pairs, key=lambda pair: order.index(pair[0].component))


def _show_plan(prepared: Prepared) -> None:
    steps = prepared.run.steps
    show(f"\nPlan of run {prepared.run.id}: {len(steps)} changes on {len({step.change.node for step in steps})} nodes")
    for number, step in enumerate(steps, 1):
        change = step.change
        show(f"\n[{number}/{len(steps)}] {change.node}: {change.component}: {change.summary}")
        for edit in change.files:
            show("\n".join(f"    {line}" for line in edit.diff().splitlines()))
        if change.kind == "kubelet":
            reload = "systemctl daemon-reload, then " if change.daemon_reload else ""
            show(f"    restarts: {reload}systemctl restart {change.unit}; pods keep running")
        else:
            outage = f"; this API server is down for {APISERVER_OUTAGE}" if change.component == "kube-apiserver" else ""
            show(f"    restarts: the static pod {change.component}{outage}")
            if change.component == "kube-apiserver" and prepared.cluster.apiservers == 1:
                show("    it is the only one: the API is down meanwhile, controller-manager and scheduler restart; pods keep running")
        show(
            f"    will be proven: new process with the planned arguments, healthy for {STABLE_SECONDS} s, "
            "gates in /metrics, workload unharmed; else it is put back"
        )
    for plan in prepared.plans:
        for warning in plan.warnings:
            show(f"\nWARNING {plan.host}: {warning}")


def _finish(prepared: Prepared) -> None:
    _show_results(prepared)
    run = prepared.run
    if (bad := run.halted_by) is None:
        return
    show(f"\nHALTED at {bad.change.node}, {bad.change.component}: {bad.outcome}: {bad.why}")
    if bad.status is not None:
        if bad.status.last_words:
            show("What the node kept as evidence (its last lines):")
            show("\n".join(f"  | {line}" for line in bad.status.last_words))
        show(f"All of it lies on {bad.change.node} in /var/lib/daytwo/changes/{bad.change.id}/ (log, evidence, before/, after/).")
    left = [step for step in run.steps if step.outcome == "not started"]
    if left:
        show(f"Not touched: {', '.join(f'{step.change.node} {step.change.component}' for step in left)}.")
    if bad.outcome == "revert-failed":
        here = f"/var/lib/daytwo/changes/{bad.change.id}"
        show(f"MEND BY HAND on {bad.change.node}: look at {here}/log, then `sh {here}/change.sh revert`.")
    show("When the cause is gone, run the same command again: what is done stays as it is, and it goes on from there.")


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
