"""The history: runs and changes on all nodes, undoing a run, and removing daytwo from the nodes."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from roles.engine import bridge, kubeadm_config, kubelet, table
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet, Remote
from roles.engine.commands import command
from roles.engine.folding import counted
from roles.engine.harmless import one_line
from roles.engine.inputs import Changes, Declared, unmatched
from roles.engine.inputs.registry import NoKeys
from roles.engine.kubelet import kubelet_plan
from roles.engine.node import Observation
from roles.engine.node_changes import (
    KUBELET,
    Basis,
    Capability,
    ChangeDrains,
    ComponentPlan,
    DesiredByHost,
    NodePlan,
    Steps,
    Verdicts,
    change_nodes,
    cordoned_for_change,
    ended,
    fates_of,
)
from roles.engine.object_runs import ObjectRun
from roles.engine.proof import Cluster, Proof, SurveyedNode
from roles.engine.runs import ChangeReport, Ended, Turns, deploying, document, no_data, one, show_report
from roles.engine.screen import wrapped
from roles.engine.timeouts import patient
from roles.engine.transaction import Refusal
from roles.engine.transaction.change_script import uninstall_script
from roles.engine.transaction.model import IO_SECONDS
from roles.engine.voice import conclude, show
from roles.eviction import eviction_impact
from roles.history import facts, model, objects
from roles.history.facts import Recorded, Speaker
from roles.history.model import ChangesOptions, RollbackOptions
from roles.history.plan import Undo, age, changes_to_undo, chosen, newest, of_cluster, place, plan_undo, targets, undone_by, unsure
from roles.history.sequence import Sequenced, Unordered
from roles.kubelet_config import cgroups, drained_change, drained_warnings, predict_restart, restart_warnings, state_of, unreadable_node

UNINSTALL_SECONDS = 120


# ---- deploys/changes.py


@deploying("Changes", one(ChangesOptions))
def changes(fleet: Fleet, wanted: ChangesOptions) -> Ended:
    """List the runs and changes that the nodes have recorded, the newest last. Raises DeployError if a node could not be read, or if no
    node has the run that is asked for."""
    history, failures = _ask(fleet, fleet.targets)
    believed, order = _in_order(history)
    bridge.stop(
        f"nodes: {text}" for text in unmatched(wanted.nodes or (), [remote.name for remote in fleet.targets], "no host of this run")
    )
    if wanted.run is not None and not failures:
        bridge.stop(f"run: {text}" for text in unmatched([wanted.run], order, "no run in the records of these nodes"))
    listed = chosen(believed, wanted, time.time())
    left_out = 0 if wanted.nodes is not None else len(order) - len({change.run for change in listed})
    none = "listed" if believed else f"recorded on {'the nodes that answered' if failures else 'these nodes'}"
    try:
        latest, unordered = newest(history), ""
    except Unordered as error:
        latest, unordered = (), _not_known(error)
    made = model.ChangesReport(
        changes=tuple(change_reports(listed, believed)),
        not_listed=left_out,
        would_undo=latest,
        warnings=(*_disbelieved(history), *_unusable(listed), *_cut(listed)),
        not_known=unordered or None,
        failures=(*failures, *(f"{remote.unreachable}; fix the connection" for remote in fleet.unreachable)),
    )
    show_report({"table": lambda: "\n".join(_as_text(listed, made, none)), "json": lambda: document(made)}, wanted.format)
    if made.failures:
        raise bridge.refuse("not all nodes could be read:", made.failures)
    if wanted.format == "json":
        return Ended("")
    if latest and unsure(history, latest, time.time()):
        undo = f"; to undo one: {command('rollback', run='NAME')}"
    else:
        undo = f"; to undo {' and '.join(latest)}: {command('rollback')}" if latest else ""
    return Ended(f"{counted(len({change.run for change in listed}), 'run')} listed{undo}")


def _as_text(listed: Sequence[Recorded], made: model.ChangesReport, none: str) -> Iterator[str]:
    """`none`: what is said of no changes."""
    headers = ["run", "age", "node", "component", "state", "by", "what"]
    rows = table.folded([_row(one) for one in made.changes], vary=(1,), node=2)
    yield "\n" + table.render(headers, rows) if rows else f"\nno changes are {none}"
    for run, change in {change.run: change for change in listed}.items():
        origin = f" from {change.plan['from']}" if change.plan.get("from") else ""
        about = f"{change.plan.get('at', '?')} by {change.plan.get('who', '?')}{origin}: {change.plan.get('command', '?')}"
        yield "\n" + wrapped(one_line(f"{run}: {about}"))
    if made.not_listed:
        more = f"--data last={made.not_listed + len({change.run for change in listed})}"
        yield "\n" + wrapped(f"{counted(made.not_listed, 'run')} not listed; to list more: {more}, --data since=7d, --data run=NAME")
    yield from ("\n" + wrapped(one_line(f"WARNING: {problem}")) for problem in made.warnings)
    if made.not_known:
        yield "\n" + wrapped(one_line(made.not_known))


def change_reports(listed: Iterable[Recorded], recorded: Iterable[Recorded]) -> Iterator[ChangeReport]:
    """`recorded`: all changes, also those that have undone the listed ones."""
    undone = undone_by(recorded)
    return (_change_report(one, undone.get(place(one))) for one in listed)


def _change_report(one: Recorded, undone: str | None) -> ChangeReport:
    plan = one.plan
    return ChangeReport(
        of_cluster=one.of_cluster,
        undone_by=undone,
        run=one.run or "?",
        at=str(plan["at"]) if plan.get("at") else None,
        host=one.host,
        component=one.component,
        state=one.state,
        reason=one.reason,
        who=str(plan.get("who", "?")),
        what=str(plan.get("summary", "?")),
        command=str(plan.get("command", "?")),
    )


def recorded_changes(fleet: Fleet) -> tuple[list[Recorded], list[str]]:
    """The changes that the nodes of the run have recorded, the newest last; and why some could not be read."""
    history, failures = _ask(fleet, fleet.targets)
    return _in_order(history)[0], [*failures, *_disbelieved(history)]


def _in_order(history: Mapping[str, Sequence[Recorded]]) -> tuple[list[Recorded], dict[str, int]]:
    """The changes that their hosts may speak of, the newest last; and the place of each run."""
    believed = [change for recorded in history.values() for change in recorded if not change.disbelieved]
    order = {run: number for number, run in enumerate(Sequenced(history).sort({change.run for change in believed}))}
    return sorted(believed, key=lambda change: (order[change.run], change.order, change.host)), order


def _unusable(changes: Sequence[Recorded]) -> list[str]:
    """The records that cannot be used, and why."""
    return [f"{change.host}: the record of {change.id}: {why}" for change in changes if (why := change.problem)]


def _cut(changes: Sequence[Recorded]) -> list[str]:
    """The records with lines that a power cut or a full disk left incomplete, and whose plan can be read."""
    return [
        f"{change.host}: the record of {change.id}: line {', '.join(map(str, change.damaged))} is incomplete; the others were read"
        for change in changes
        if change.damaged and change.problem is None
    ]


def _not_known(error: Unordered) -> str:
    return (
        f"it is not known which of these runs is the newest, since no node has seen two of them: {', '.join(error.runs)}; "
        f"name the run to undo: {command('rollback', run='NAME')}"
    )


def speaker(fleet: Fleet, remote: Remote) -> Speaker:
    """What the records of a host may speak of."""
    return Speaker.keeper if fleet.keeper is not None and remote.name == fleet.keeper.name else Speaker.node


def _disbelieved(history: Mapping[str, Sequence[Recorded]]) -> list[str]:
    """The records that their hosts may not have, and why."""
    return _unusable([one for own in history.values() for one in own if one.disbelieved])


def _ask(fleet: Fleet, remotes: list[Remote], runs: Sequence[str] = ()) -> tuple[dict[str, list[Recorded]], list[str]]:
    def ask(remote: Remote) -> list[Recorded]:
        answer = remote.run(facts.question(runs), timeout=patient(facts.QUESTION_SECONDS))
        return facts.parse(remote.name, answer.stdout, speaker(fleet, remote))

    answers = fleet.each(remotes, ask, doing="read the records of")
    return (
        {host: answer for host, answer in answers.items() if not isinstance(answer, Exception)},
        [str(answer) for answer in answers.values() if isinstance(answer, Exception)],
    )


def _row(one: ChangeReport) -> list[str]:
    return [one.run, _age(one.at or ""), one.place, one.component, one.outcome, one.who, one.what]


def _age(at: str) -> str:
    if (seconds := age(at, time.time())) is None:
        return "?"
    return table.brief_age(seconds)


# ---- deploys/rollback.py


def _run_to_undo(fleet: Fleet) -> ObjectRun | Undoing:
    wanted = model.read_rollback(fleet.targets[0])
    runs: tuple[str, ...] = (wanted.run,) if wanted.run else ()
    if fleet.unreachable and not runs:
        names = ", ".join(remote.name for remote in fleet.unreachable)
        raise bridge.refuse(
            f"the newest run is only known if all hosts can be read, and {names} cannot be reached; "
            f"name the run to undo: {command('rollback', run='NAME')} ({command('changes')} lists them)"
        )
    # The host of the cluster's lock keeps the records of changes of the cluster itself, also if --limit excludes it.
    keeper = fleet.lock_host
    helpers = [keeper] if keeper not in fleet.targets and (keeper.connected or keeper.connect()) else []
    history, failures = _ask(fleet, [*fleet.targets, *helpers], runs)
    for problem in _disbelieved(history):
        show(f"\nWARNING: {problem}")
    kept = {remote.name: history.pop(remote.name, []) for remote in helpers}
    if not runs:
        bridge.stop(failures)
        try:
            runs = newest(history)
        except Unordered as error:
            raise bridge.refuse(_not_known(error)) from None
        if not runs:
            raise bridge.refuse("there is nothing to undo: no node has a confirmed change that is not undone")
        if why := unsure(history, runs, time.time()):
            raise bridge.refusals([f"{why}: {command('rollback', run='NAME')} ({command('changes')} lists them)"])
        _show_chosen(history, runs)
    # Runs on objects are undone one by one.
    if (run := objects.to_undo(fleet, wanted, runs[0], {**history, **kept})) is not None:
        return run
    bridge.stop(failures)
    chosen = changes_to_undo(history, runs)
    if not wanted.run:
        # Only now it is known of which runs the old files are needed.
        changed = {change.host for change in chosen}
        again, failures = _ask(fleet, [remote for remote in fleet.targets if remote.name in changed], runs)
        bridge.stop(failures)
        chosen = changes_to_undo(again, runs)
    # A run that was killed may have left the cordons of changes that its nodes have reverted.
    left = {host for host, recorded in history.items() if any(_reverted_drained(change, runs) for change in recorded)}
    if not chosen and not left:
        # One that was killed in the middle of a drain has changed nothing yet. Any host can tell which nodes have its cordon.
        left = {(keeper if keeper in fleet.targets else fleet.targets[0]).name}
    of_keeper = [change for change in changes_to_undo(kept, runs) if change.of_cluster] if chosen else []
    bridge.stop(_unusable([*chosen, *of_keeper]))
    by_host: dict[str, list[Recorded]] = {remote.name: [] for remote in fleet.targets if remote.name in left}
    for change in chosen:
        if not change.of_cluster:
            by_host.setdefault(change.host, []).append(change)

    def files(seen: Observation) -> tuple[list[str], list[str]]:
        usual, directories = kubelet.wanted(seen)
        changed = {path for change in by_host.get(seen.host, ()) for path in targets(change)}
        return [*usual, *sorted(path for path in changed if seen.file(path) is None)], directories

    names = " and ".join(runs)
    return Undoing(DesiredByHost(by_host, {"undo": names}, files, f"Undoing run {names}"), runs, (*chosen, *of_keeper), wanted)


def _show_chosen(history: Mapping[str, Sequence[Recorded]], runs: Sequence[str]) -> None:
    """Which runs a roll-back without a name undoes, and how long ago they were."""
    for run in runs:
        change = next(change for recorded in history.values() for change in recorded if change.run == run)
        ago, who = _age(str(change.plan.get("at", ""))), change.plan.get("who", "?")
        show(f"\nThe newest run is {run}, {ago} ago, by {who}: {change.plan.get('command', '?')}")


def _reverted_drained(change: Recorded, runs: Sequence[str]) -> bool:
    return change.run in runs and change.state == "reverted" and bool(change.plan.get("drained"))


def _nothing_of(runs: Sequence[str]) -> str:
    names = " and ".join(runs)
    ways = f"{command('changes')} lists the runs, and {command('uncordon', nodes='NODE')} removes a cordon"
    return f"no node has a confirmed change of run {names}, or a cordon of it; {ways}"


@deploying("Roll back", _run_to_undo, all_reachable=True)
def rollback(fleet: Fleet, undoing: ObjectRun | Undoing) -> Turns | Ended:
    """Undo a run (--data run=NAME, default: the newest): first its values in kubeadm's ConfigMaps, then its changes, the last one first, at
    the pace of a run and by the same transactions.

    Data keys: those of roles/history/model.py, and those of roles/engine/runs/options.py. Raises DeployError, before any write, if a
    file, a value of kubeadm's ConfigMaps or a field of an object was changed since, or if pods would be evicted without consent.
    """
    if isinstance(undoing, ObjectRun):
        # What was recreated or taken over since stays, and is not as it was before.
        return Turns.of(undoing, fleet, "undo, read back, or revert") if undoing.steps else Ended("NOTHING TO DO: each row says why")
    return change_nodes(fleet, undoing, "undo, prove, or revert")


@dataclass(frozen=True)
class Undoing(Capability[list[Recorded], NodePlan[Undo]]):
    """Undoes runs with the engine for changes of nodes. `chosen`: the changes of these runs, the last one first;
    then those of the cluster that a host outside of this run keeps."""

    runs: tuple[str, ...]
    chosen: tuple[Recorded, ...]
    options: model.RollbackOptions
    columns = ("node", "component", "undone")
    writes_first = True
    undoes = True

    def plan(self, basis: Basis, node: SurveyedNode, desired: list[Recorded]) -> NodePlan[Undo]:
        return _plan(basis.run_id, node, desired, self.options.force)

    def judge(self, basis: Basis, plan: NodePlan[Undo], verdicts: Verdicts) -> NodePlan[Undo]:
        """The plan with what a restart applies in addition, and with the prediction of evictions, which needs the API."""
        try:
            return _restarted(
                basis.found.reading,
                plan,
                self.options.allow_evictions,
                basis.options.allow_unproven,
                may_drain=basis.drains.allowed,
                node=basis.found.nodes[plan.host],
            )
        except Refusal as refusal:
            return replace(plan, refusals=(refusal,))

    def allows_evictions(self, host: str) -> bool:
        return self.options.allow_evictions

    def cordons_of(self, basis: Basis) -> Collection[str]:
        """All that these runs have left, but with --limit only on its hosts."""
        return () if basis.fleet.others else self.runs

    def against_plans(self, basis: Basis, plans: Sequence[NodePlan[Undo]]) -> Iterable[object]:
        """Nothing to undo: no confirmed change, and no cordon."""
        fates = fates_of(basis.found.reading)
        names = {plan.kubelet.node_name for plan in plans} if basis.fleet.others else {*fates}
        cordons = {cordoned_for_change(fate) for name, fate in fates.items() if name in names}
        return () if self.chosen or cordons & {*self.runs} else (_nothing_of(self.runs),)

    def order(self, basis: Basis, plans: Sequence[NodePlan[Undo]]) -> tuple[list[ComponentPlan], bool]:
        """The reverse order: the run's last change first."""
        by_change = {planned.undoes: planned for plan in plans for planned in plan.changing}
        changing: list[ComponentPlan] = [by_change[change.id] for change in self.chosen if change.id in by_change]
        return changing, bool(changing) and changing[0].component != KUBELET

    def writes(self, basis: Basis, plans: Sequence[NodePlan[Undo]]) -> kubeadm_config.ClusterWrites:
        """The undo of what these runs wrote to kubeadm's ConfigMaps; not with a part of the nodes, since the ConfigMaps are for all."""
        fleet, records = basis.fleet, of_cluster(self.chosen)
        names = " and ".join(records)
        if not records:
            return kubeadm_config.ClusterWrites()
        if fleet.others:
            left = ", ".join(remote.name for remote in fleet.others)
            note = f"{names}: not undone, since --limit excludes {left}; without --limit, kubeadm's ConfigMaps are undone too"
        elif not basis.options.persist:
            note = f"persist=false: {names}: not undone; the next `kubeadm upgrade` of a node restores what this run undoes"
        else:
            return kubeadm_config.plan_undo(basis.found, records, self.options.force)
        return kubeadm_config.ClusterWrites(notes=[note])

    def notes(self, basis: Basis, plans: Sequence[NodePlan[Undo]]) -> list[str]:
        """The components that are already as before."""
        done = {planned.undoes for plan in plans for planned in plan.planned if planned.change is None}
        names = " and ".join(self.runs)
        return [f"{change.host}: {change.component} is already as it was before {names}" for change in self.chosen if change.id in done]

    def recheck(self, basis: Basis, plan: NodePlan[Undo], planned: ComponentPlan) -> str | None:
        return cgroups.recheck(basis.found, plan.host, planned)

    def also_prove(self, basis: Basis, plan: NodePlan[Undo], planned: ComponentPlan) -> Proof | None:
        return cgroups.proof(basis.found, plan.host, planned)

    def rows(self, basis: Basis, plans: Sequence[NodePlan[Undo]], steps: Steps) -> list[list[str]]:
        """One row for each change."""
        return [[host, component, step.undoes, *ended(step, "")] for (host, component), step in steps.items()]


def _plan(run_id: str, node: SurveyedNode, chosen: Sequence[Recorded], force: bool) -> NodePlan[Undo]:
    """The plan to undo the changes of one node."""
    reasons: list[Refusal] = []
    undos: list[Undo] = []
    for change in chosen:
        try:
            # If another file now defines the same pod, restoring this one can be without effect. (A component that does not run is not
            # checked: it can be the reason for the undo.)
            unclear = node.control.refusals.get(change.component) if change.component in node.components else None
            if unclear is not None and not force:
                raise Refusal(unclear.host, unclear.message, f"{unclear.way_out}, or continue anyway with --data force=true")
            undo = plan_undo(run_id, change, node.seen, force)
            undos.append(_with_static_pods(undo, node))
        except Refusal as refusal:
            reasons.append(refusal)
    warnings = tuple(warning for undo in undos for warning in undo.warnings)
    return NodePlan(node.seen.host, node.kubelet, node.components, tuple(undos), warnings, refusals=tuple(reasons))


def _with_static_pods(undo: Undo, node: SurveyedNode) -> Undo:
    """With the announcement that the undo of a kubelet's gate recreates the node's static pods."""
    minor = node.kubelet.process.minor if undo.component == KUBELET and undo.change is not None else None
    if not kubelet.static_pods.recreated_by(minor, undo.effective.gates):
        return undo
    return replace(undo, recreates_static_pods=True, warnings=(*undo.warnings, kubelet.static_pods.warning(node.components)))


def _restarted(
    cluster: Cluster,
    plan: NodePlan[Undo],
    allow_evictions: bool,
    allow_unproven: bool,
    *,
    may_drain: bool = False,
    node: SurveyedNode | None = None,
) -> NodePlan[Undo]:
    """The plan with the other pending edits that a restart of the kubelet applies, as in every other deploy, and with what the old settings
    would do to the node now: the undo can raise thresholds. Raises Refusal."""
    undo = next((one for one in plan.changing if one.component == KUBELET), None)
    if undo is None:
        return plan
    state = None
    if undo.settings:
        try:
            state = state_of(cluster, plan.host, plan.kubelet, node=node)
            if node is not None and kubelet.drained.DRIVER in undo.settings:
                state = cgroups.with_runtime(node.remote, state)
        except ApiFailure as error:
            if not allow_unproven:
                unread = unreadable_node(plan.host, plan.kubelet.node_name, error)
                return replace(plan, refusals=(f"{unread} (--data allow_unproven=true continues without the prediction)",))
    named = [tuple(name.split(".")) for name in undo.settings] + [("featureGates", name) for name in undo.gates]
    warnings = [*kubelet_plan.warnings(plan.kubelet), *restart_warnings(cluster, plan, eviction_impact, named, state)]
    plan = replace(plan, warnings=(*plan.warnings, *warnings))
    if state is None:
        if undo.had_checkpoints or kubelet.drained.DRIVER in undo.settings:
            why = f"{undo.undoes} was a change of a drained node, and without the API it is not known whether it is drained now"
            raise Refusal(plan.host, why, "reach the API from another node")
        return plan
    outlook = predict_restart(state, undo.settings, eviction_impact)
    assert undo.change is not None
    change, checkpoints, needed = drained_change(state, plan.components, undo.settings, undo.change, may_drain=may_drain)
    if outlook.evicts and not allow_evictions:
        why = f"undoing {undo.undoes} would evict: {'; '.join(outlook.evicts)}"
        raise Refusal(plan.host, why, "allow it with --data allow_evictions=true, or make room first")
    # Without consent no pod may be evicted, whatever the prediction says.
    may_be_evicted = outlook.may_be_evicted if allow_evictions else frozenset()
    more = drained_warnings(needed, by_this_run=may_drain) if needed else []
    whole = replace(
        undo,
        change=change,
        checkpoints=checkpoints,
        needs_drain=needed.why if needed else (),
        recreates_pods=needed is not None and needed.recreates,
        may_be_evicted=may_be_evicted,
        state=state,
        pressures=outlook.pressures,
    )
    planned = tuple(whole if one is undo else one for one in plan.planned)
    return replace(plan, planned=planned, outlook=outlook.text(), warnings=(*plan.warnings, *more))


# ---- deploys/uninstall.py


@deploying("Uninstall", no_data, all_reachable=True)
def uninstall(fleet: Fleet, _: None) -> Turns:
    """Remove daytwo from the nodes: its records, its unit at boot. What it configured stays. Refuses a node with a change in flight."""
    history, failures = _ask(fleet, fleet.targets)
    bridge.stop(failures)
    show(f"\nThis removes the records of {counted(sum(map(len, history.values())), 'change')}; they cannot be rolled back then.")
    remotes, removed = bridge.hosts_by_name(fleet.targets), dict[str, bool]()

    def turn(name: str) -> bool:
        removed[name] = _uninstall(remotes[name])
        if len(removed) == len(remotes):
            left = [name for name, done in removed.items() if not done]
            line = f"HALTED: not removed from {', '.join(left)}" if left else f"DONE: removed from {counted(len(removed), 'node')}"
            conclude(line, halted=bool(left))
        return removed[name]

    return Turns(remotes, turn, "remove every trace of daytwo")


def _uninstall(remote: Remote) -> bool:
    script = uninstall_script(round(patient(IO_SECONDS)))
    answer = remote.run(script, timeout=patient(UNINSTALL_SECONDS))
    outcome = answer.stdout[-1] if answer.stdout else " ".join(answer.stderr[-3:])
    show(f"{remote.name}: {outcome}")
    return answer.code == 0 and not outcome.startswith("busy")


DOCUMENTS = {"changes": model.ChangesReport}
DATA_KEYS = (
    Declared(ChangesOptions, ("changes",)),
    Declared(RollbackOptions, ("rollback",), changes=Changes.NODES),
    Declared(ChangeDrains, ("rollback",)),
    Declared(NoKeys, ("uninstall",), changes=Changes.DAYTWO),
)

__all__ = [
    "DATA_KEYS",
    "DOCUMENTS",
    "Recorded",
    "change_reports",
    "changes",
    "recorded_changes",
    "rollback",
    "uninstall",
]
