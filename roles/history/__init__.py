"""What was done: runs and changes on all nodes, undoing a run, and leaving a node without a trace of daytwo."""

from __future__ import annotations

import calendar
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyinfra.api.deploy import deploy

from roles import control_plane, kubeadm, kubelet
from roles.api import ApiError
from roles.change import uninstall_script
from roles.change.model import IO_SECONDS
from roles.change.record import Effective, new_run_id, this_run
from roles.change.refusal import Refusal
from roles.eviction import foresee
from roles.harmless import one_line
from roles.history import facts, model, objects
from roles.history import plan as planning
from roles.history.facts import Recorded
from roles.history.plan import Undo
from roles.history.sequence import Sequenced, Unordered
from roles.kubelet import plan as kubelet_plan
from roles.kubelet_config import Outlook, Settled, after, brings, brought, state_of, unreadable, with_brought
from roles.observe import Observation
from roles.patience import patient
from roles.proof import NoApi, Owed, Prover, Survey, survey
from roles.rollout import options as run_options
from roles.rollout import remote as bridge
from roles.rollout import report, table
from roles.rollout.locked_run import ClusterStep
from roles.rollout.options import Options
from roles.rollout.remote import Fleet, Remote, show, show_lines
from roles.rollout.run import Run, Step, arrange

UNINSTALL_SECONDS = 120


# ---- deploys/changes.py


@deploy("Changes")  # type: ignore[untyped-decorator]
def changes() -> None:
    """List the runs and changes that the nodes know of, the newest last. Raises DeployError where a node could not be asked."""
    bridge.once("changes", _show_changes)


def _show_changes(fleet: Fleet) -> None:
    history, failures = _ask(fleet, fleet.targets)
    listed = [change for recorded in history.values() for change in recorded]
    order = {run: number for number, run in enumerate(Sequenced(history).sort({change.run for change in listed}))}
    listed.sort(key=lambda change: (order[change.run], change.order, change.host))
    headers = ["run", "age", "node", "component", "state", "by", "what"]
    show_lines("\n" + table.render(headers, [_row(change) for change in listed]) if listed else "\nno changes are recorded on these nodes")
    for run, change in {change.run: change for change in listed}.items():
        origin = f" from {change.plan['from']}" if change.plan.get("from") else ""
        show(f"\n{run}: {change.plan.get('at', '?')} by {change.plan.get('who', '?')}{origin}: {change.plan.get('command', '?')}")
    for problem in (*_unusable(listed), *_cut(listed)):
        show(f"\nWARNING: {problem}")
    try:
        newest = planning.newest(history)
    except Unordered as error:
        newest = ()
        show(f"\n{_not_known(error)}")
    if newest:
        show(f"\ndeploys/rollback.py would undo {' and '.join(newest)}, unless another run is named by --data run=NAME")
    failures += [f"{remote.name}: unreachable" for remote in fleet.unreachable]
    if failures:
        raise bridge.refuse("not all nodes could be asked:", failures)


def _unusable(changes: Sequence[Recorded]) -> list[str]:
    """Why records cannot be acted on."""
    return [f"{change.host}: the record of {change.id}: {why}" for change in changes if (why := change.why_unusable)]


def _cut(changes: Sequence[Recorded]) -> list[str]:
    """Records with lines that a power cut or a full disk left half, whose plan can be read."""
    return [
        f"{change.host}: the record of {change.id}: line {', '.join(map(str, change.damaged))} is cut; the others were read"
        for change in changes
        if change.damaged and change.why_unusable is None
    ]


def _not_known(error: Unordered) -> str:
    return (
        f"which of these runs is the newest is not known, as no node has seen two of them: {', '.join(error.runs)}; "
        "deploys/rollback.py undoes the one that is named by --data run=NAME"
    )


def _ask(fleet: Fleet, remotes: list[Remote], runs: Sequence[str] = ()) -> tuple[dict[str, list[Recorded]], list[str]]:
    def ask(remote: Remote) -> list[Recorded]:
        answer = remote.run(facts.question(runs), timeout=patient(facts.QUESTION_SECONDS))
        return facts.parse(remote.name, answer.stdout)

    answers = fleet.each(remotes, ask)
    return (
        {host: answer for host, answer in answers.items() if not isinstance(answer, Exception)},
        [str(answer) for answer in answers.values() if isinstance(answer, Exception)],
    )


def _row(change: Recorded) -> list[str]:
    state = change.state + (f": {change.reason}" if change.state not in ("confirmed", "staged") and change.reason else "")
    return [
        change.run or "?",
        _age(str(change.plan.get("at", ""))),
        change.host,
        change.component,
        state,
        str(change.plan.get("who", "?")),
        str(change.plan.get("summary", "?")),
    ]


def _age(at: str) -> str:
    try:
        seconds = time.time() - calendar.timegm(time.strptime(at, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return "?"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


# ---- deploys/rollback.py


@deploy("Roll back")  # type: ignore[untyped-decorator]
def rollback() -> None:
    """Undo a run (--data run=NAME, else the newest): what kubeadm keeps of it first, then the last change first, at the pace of a run, by
    the same transactions.

    Data keys: those of roles/history/model.py, and those of roles/rollout/options.py. Raises DeployError, before anything is written,
    where a file, a value of kubeadm's ConfigMaps or a field of an object was changed since, or where pods would have to go without consent.
    """
    of_objects = bridge.once("rollback of objects", lambda fleet: objects.to_undo(fleet, _ask))
    if of_objects is not None:
        bridge.drive("roll back", of_objects.involves(bridge.current_host()), of_objects.result, name="undo, read back, or put back")
        return
    run = bridge.once("rollback", _prepare)
    bridge.drive("roll back", run.involves(bridge.current_host()), run.result, name="undo, prove, or put back")


def _prepare(fleet: Fleet) -> Run:
    bridge.stop(f"{remote.name}: unreachable; mend that, or leave it out with --limit" for remote in fleet.unreachable)
    options = run_options.read(fleet.targets)
    wanted = model.read(fleet.targets[0])
    runs: tuple[str, ...] = (wanted.run,) if wanted.run else ()
    history, failures = _ask(fleet, fleet.targets, runs)
    bridge.stop(failures)
    if not runs:
        try:
            runs = planning.newest(history)
        except Unordered as error:
            raise bridge.refuse(_not_known(error)) from None
        if not runs:
            raise bridge.refuse("there is nothing to undo: no node has a confirmed change that was not undone already")
        history, failures = _ask(fleet, fleet.targets, runs)
        bridge.stop(failures)
    chosen = planning.to_undo(history, runs)
    if not chosen:
        raise bridge.refuse(f"run {wanted.run} confirmed nothing on these nodes; deploys/changes.py lists what there is")
    bridge.stop(_unusable(chosen))
    paths: dict[str, list[str]] = {}
    on_nodes = [change for change in chosen if not change.of_cluster]
    for change in on_nodes:
        paths[change.host] = sorted({*paths.get(change.host, ()), *planning.targets(change)})

    def unread(seen: Observation) -> tuple[list[str], list[str]]:
        files, directories = kubelet.wanted(seen)
        more = [path for path in paths.get(seen.host, []) if seen.file(path) is None]
        return [*files, *more], directories

    found = survey(fleet, [remote for remote in fleet.targets if remote.name in paths], unread)
    run_id = new_run_id()
    undos = [_beside(undo, found) for undo in _plan(run_id, on_nodes, found, wanted.force)]
    outlooks = _look_ahead(undos, found, wanted.allow_evictions, options.allow_unproven)
    first, notes = _undo_cluster(fleet, found, runs, chosen, wanted.force, options)
    return _assemble(run_id, " and ".join(runs), fleet, undos, found, options, outlooks, first, notes)


def _undo_cluster(
    fleet: Fleet, found: Survey, runs: Sequence[str], chosen: list[Recorded], force: bool, options: Options
) -> tuple[list[ClusterStep], list[str]]:
    """What these runs wrote to kubeadm's ConfigMaps goes before any node; with a part of the nodes it stays, as it was written for all."""
    if fleet.lock_host not in fleet.targets and (fleet.lock_host.connected or fleet.lock_host.connect()):
        history, failures = _ask(fleet, [fleet.lock_host])
        bridge.stop(failures)
        kept = planning.to_undo(history, runs)
        bridge.stop(_unusable(kept))
        chosen = [*chosen, *kept]
    records = planning.of_cluster(chosen)
    names = " and ".join(records)
    if not records:
        return [], []
    if fleet.others:
        left = ", ".join(remote.name for remote in fleet.others)
        return [], [f"{names}: left as it is, since --limit leaves out {left}; run it without, and what kubeadm keeps is undone too"]
    if not options.persist:
        return [], [f"persist=false: {names}: left as it is; the next `kubeadm upgrade` of a node brings back what is undone here"]
    return kubeadm.undo(found, fleet, records, force)


def _plan(run_id: str, chosen: list[Recorded], found: Survey, force: bool) -> list[Undo]:
    reasons: list[object] = list(found.refusals)
    undos: list[Undo] = []
    for change in chosen:
        if change.host not in found.nodes:
            continue
        try:
            # Where another file makes the same pod by now, to put this one back may come to nothing. (One that does not run is
            # perhaps what the undoing is for.)
            node = found.nodes[change.host]
            unclear = control_plane.look(node.kubelet).refusals.get(change.component) if change.component in node.components else None
            if unclear is not None and not force:
                raise Refusal(unclear.host, unclear.message, f"{unclear.way_out}, or go on all the same by --data force=true")
            undos.append(planning.undo(run_id, change, node.seen, force))
        except Refusal as refusal:
            reasons.append(refusal)
    bridge.stop(reasons)
    return undos


def _beside(undo: Undo, found: Survey) -> Undo:
    """With what a restart of the kubelet brings besides, as with every other deploy. Raises DeployError where that is refused."""
    if undo.change is None or undo.change.component != planning.KUBELET:
        return undo
    host, node = undo.change.node, found.nodes[undo.change.node]
    told = kubelet_plan.warnings(node.kubelet)
    if node.kubelet.is_known:
        named = [tuple(name.split(".")) for name in undo.settings] + [("featureGates", name) for name in undo.gates]
        try:
            told += brings(found.cluster, host, node.kubelet, foresee, named)
        except Refusal as refusal:
            bridge.stop([refusal])
    return replace(undo, warnings=(*undo.warnings, *(f"{host}: {text}" for text in told)))


def _look_ahead(undos: list[Undo], found: Survey, allow_evictions: bool, allow_unproven: bool) -> dict[str, Outlook]:
    """What the settings of before would do to each node as it is now: thresholds that were lowered may be raised again. Raises
    DeployError where pods would have to go without consent."""
    reasons: list[object] = []
    outlooks: dict[str, Outlook] = {}
    for undo in undos:
        if undo.change is None or not undo.settings:
            continue
        host, node = undo.change.node, found.nodes[undo.change.node]
        try:
            state = state_of(found.cluster, host, node.kubelet)
            settled = Settled({}, undo.settings, undo.change.summary)
            coming = with_brought(state, brought(state))
            outlooks[host] = foresee(state, after(coming.configuration, settled))
        except (ApiError, NoApi) as error:
            if not allow_unproven:
                reasons.append(
                    f"{unreadable(host, node.kubelet.node_name, error)} (--data allow_unproven=true goes on without having looked)"
                )
            continue
        except Refusal as refusal:
            reasons.append(refusal)
            continue
        if not allow_evictions:
            if outlooks[host].evicts:
                why = f"undoing {undo.recorded.id} would evict: {'; '.join(outlooks[host].evicts)}"
                reasons.append(Refusal(host, why, "allow it by --data allow_evictions=true, or make room first"))
            # Without consent nobody may go, whatever the look says.
            outlooks[host] = replace(outlooks[host], may_go=frozenset())
    bridge.stop(reasons)
    return outlooks


def _assemble(
    run_id: str,
    name: str,
    fleet: Fleet,
    undos: list[Undo],
    found: Survey,
    options: Options,
    outlooks: Mapping[str, Outlook],
    first: list[ClusterStep],
    more: list[str],
) -> Run:
    apiservers = any(undo.change and undo.change.component == "kube-apiserver" for undo in undos)
    steps: list[Step] = []
    for undo in undos:
        if undo.change is None:
            continue
        node = found.nodes[undo.change.node]
        owed = Owed(
            node.remote.name,
            node.kubelet.node_name,
            undo.change.component,
            undo.gates,
            undo.settings,
            node.components,
            apiservers,
            options.allow_unproven,
            outlooks[undo.change.node].may_go if undo.settings and undo.change.node in outlooks else frozenset(),
        )
        prover = Prover(found.cluster, owed)
        change = replace(undo.change, wanted_confirm_timeout=options.confirm_timeout, patience=options.patience)
        effective = Effective.of(undo.recorded.plan).undone()
        steps.append(Step(change, prover.ready, prover.prove, prover.watch, effective, undo.recorded.id))
    info = this_run(run_id, {"undo": name})
    # The other way round: what the run did last comes first.
    components_first = bool(steps) and steps[0].change.component != planning.KUBELET
    stages = arrange(steps, {host for host, node in found.nodes.items() if node.components}, options.pace, on=components_first)
    run = Run(info, stages, fleet, options.take_over, _finish, first=first)
    notes = [one_line(f"WARNING {warning}") for undo in undos for warning in undo.warnings]
    notes += [f"{undo.recorded.host}: {undo.recorded.component} is as it was before {name} already" for undo in undos if not undo.change]
    notes += [f"{host}:\n{outlook.text()}" for host, outlook in outlooks.items()]
    notes += more + found.ignored
    show(f"\nUndoing run {name}")
    report.show_plan(run, found.cluster.apiservers, notes)
    return run


def _finish(run: Run) -> None:
    headers = ["node", "component", "undone", "outcome", "s", "proof"]
    rows = [
        ["cluster", one.name, one.undoes, one.outcome, f"{one.seconds:.0f}" if one.seconds else "-", one.how or one.why or "-"]
        for one in run.first
    ]
    rows += [
        [
            step.change.node,
            step.change.component,
            step.undoes,
            step.outcome,
            f"{step.seconds:.0f}" if step.seconds else "-",
            step.how if step.outcome == "confirmed" else step.why or "-",
        ]
        for step in run.steps
    ]
    show_lines("\n" + table.render(headers, rows))
    report.show_end(run)


# ---- deploys/uninstall.py


@deploy("Uninstall")  # type: ignore[untyped-decorator]
def uninstall() -> None:
    """Take daytwo off the nodes: its records, its unit at boot. What it configured stays. A node in mid-change is refused."""
    remotes = bridge.once("uninstall", _look_before)
    host = bridge.current_host()
    bridge.drive("uninstall", host in remotes, lambda name: _uninstall(remotes[name]), name="remove every trace of daytwo")


def _look_before(fleet: Fleet) -> dict[str, Remote]:
    bridge.stop(f"{remote.name}: unreachable; mend that, or leave it out with --limit" for remote in fleet.unreachable)
    history, failures = _ask(fleet, fleet.targets)
    bridge.stop(failures)
    show(f"\nRecords of {sum(map(len, history.values()))} changes go, and with them the way back to what was before them.")
    return bridge.hosts_by_name(fleet.targets)


def _uninstall(remote: Remote) -> bool:
    script = uninstall_script(round(patient(IO_SECONDS)))
    answer = remote.run(script, timeout=patient(UNINSTALL_SECONDS))
    said = answer.stdout[-1] if answer.stdout else " ".join(answer.stderr[-3:])
    show(f"{remote.name}: {said}")
    return answer.code == 0 and not said.startswith("busy")


__all__ = ["changes", "rollback", "uninstall"]
