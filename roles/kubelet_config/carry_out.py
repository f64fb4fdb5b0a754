"""Fields of KubeletConfigurations, wanted by host: looked at, planned, foreseen, changed node by node, proven by /configz."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from roles import control_plane, kubeadm
from roles.api import ApiError, NotFound
from roles.change import Change
from roles.change.model import change_id
from roles.change.record import Effective, new_run_id, this_run
from roles.change.refusal import Refusal
from roles.harmless import one_line
from roles.kubelet import Kubelet, ask, blame, in_effect, lookup, settings
from roles.kubelet import plan as kubelet_plan
from roles.kubelet.pending import Pending, pending
from roles.kubelet_config import restart
from roles.kubelet_config.outlook import Outlook, check_node
from roles.kubelet_config.state import State
from roles.patience import patient
from roles.proof import Cluster, NoApi, Owed, Prover, Survey, survey, unmet_fields
from roles.rollout import options as run_options
from roles.rollout import remote as bridge
from roles.rollout import report, table
from roles.rollout.options import Options
from roles.rollout.remote import Answer, Fleet, Remote, show_lines
from roles.rollout.run import Run, Step, arrange

KUBELET = "kubelet"


@dataclass(frozen=True)
class Settled:
    """What a wish comes to on one node: `fields` to be written (formats.ABSENT: taken out), and what /configz must show afterwards,
    `expected` (None: not set). Both by field, dots between its parts. `named`: the settings that the data itself names, by where they
    stand in the configuration (None: absent)."""

    fields: Mapping[str, Any]
    expected: Mapping[str, Any]
    summary: str
    notes: tuple[str, ...] = ()
    named: Mapping[kubeadm.Path, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Wish:
    """What one host's data wants. `settle` may raise Refusal; `foresee` tells what the configuration `after` would come to; `write`
    gives the fields to write for some of the named settings, to a configuration as it stands in kubeadm's ConfigMap."""

    data: Mapping[str, Any]
    settle: Callable[[State], Settled]
    foresee: Callable[[State, Mapping[str, Any]], Outlook]
    only: tuple[str, ...] | None = None
    move_flags: bool = False
    allow_evictions: bool = False
    write: Callable[[Mapping[str, Any], Mapping[kubeadm.Path, Any]], Mapping[kubeadm.Path, Any]] = kubeadm.as_given


@dataclass(frozen=True)
class Planned:
    """One node of the run; `change` is None where it is as wanted. `question` shows the change to its kubelet, `question_present` its
    files as they are. `beside`: what the restart brings besides."""

    state: State
    settled: Settled
    outlook: Outlook
    change: Change | None
    question: str
    warnings: tuple[str, ...]
    question_present: str = ""
    beside: tuple[Pending, ...] = ()


@dataclass
class Prepared:
    """The whole plan of one run."""

    run: Run
    planned: dict[str, Planned]
    cluster: Cluster
    lasting: kubeadm.Last
    after: dict[str, dict[str, Any]] = field(default_factory=dict)


def prepare(fleet: Fleet, read: Callable[[Remote], Wish | None], nothing: str) -> Prepared:
    """The plan of a run; `read` gives a host's wish (None: it has none), `nothing` what to say where no host has one.

    Raises DeployError with all refusals of all nodes, before any is written to.
    """
    refusals: list[object] = [f"{remote.name}: unreachable; mend that, or leave it out with --limit" for remote in fleet.unreachable]
    options = run_options.read(fleet.targets)
    wishes: dict[str, Wish] = {}
    for remote in fleet.targets:
        try:
            if (wish := read(remote)) is not None:
                wishes[remote.name] = wish
        except Refusal as refusal:
            refusals.append(refusal)
    bridge.stop(refusals)
    if not wishes:
        raise bridge.refuse(nothing)
    names = {remote.name for remote in fleet.targets}
    asked = {name for wish in wishes.values() for name in wish.only or ()}
    bridge.stop(f"only={name}: no such host in this run; hosts are {', '.join(sorted(names))}" for name in sorted(asked - names))
    targets = [remote for remote in fleet.targets if remote.name in wishes and _chosen(remote.name, wishes[remote.name])]
    run_id = new_run_id()
    found = survey(fleet, targets)
    planned = _plan(run_id, fleet, found, wishes)
    return _assemble(run_id, fleet, found, planned, wishes, options)


def _chosen(host: str, wish: Wish) -> bool:
    return wish.only is None or host in wish.only


def _plan(run_id: str, fleet: Fleet, found: Survey, wishes: Mapping[str, Wish]) -> dict[str, Planned]:
    refusals: list[object] = list(found.refusals)
    planned: dict[str, Planned] = {}
    for host, node in found.nodes.items():
        try:
            planned[host] = _plan_node(run_id, state_of(found.cluster, host, node.kubelet), wishes[host])
        except Refusal as refusal:
            refusals.append(refusal)
        except (ApiError, NoApi) as error:
            refusals.append(unreadable(host, node.kubelet.node_name, error))
    bridge.stop(refusals)
    questions = {host: ask.script([item.question]) for host, item in planned.items() if item.change is not None}
    asked = [node.remote for host, node in found.nodes.items() if host in questions]
    answers = fleet.each(asked, lambda remote: remote.run("sh -s", stdin=questions[remote.name], timeout=patient(ask.ALL_SECONDS)))
    refusals += [Refusal(host, str(answer).removeprefix(f"{host}: ")) for host, answer in answers.items() if isinstance(answer, Exception)]
    said = {host: _said(answer) for host, answer in answers.items() if not isinstance(answer, Exception)}
    against = [remote for remote in asked if said.get(remote.name)]
    again = fleet.each(
        against,
        lambda remote: remote.run("sh -s", stdin=ask.script([planned[remote.name].question_present]), timeout=patient(ask.ALL_SECONDS)),
    )
    for host, words in said.items():
        present = again.get(host)
        if (reason := _judged(planned[host], words, None if present is None else _said(present))) is not None:
            refusals.append(reason)
    bridge.stop(refusals)
    return planned


def _said(answer: Answer | Exception) -> str | None:
    return None if isinstance(answer, Exception) else ask.verdicts(answer.stdout).get(KUBELET)


def _judged(item: Planned, said: str | None, present: str | None) -> Refusal | None:
    """Why not to go on, from what the node's own kubelet has against the change ("": nothing; None: it gave no answer), and against its
    files as they are."""
    found = item.state.kubelet
    host, version = item.state.host, f"kubelet {found.process.version}"
    if said is None:
        way_out = "run it again; if that does not help, look whether `kubelet --version` answers on the node"
        return Refusal(host, "the node's own kubelet could not be asked about this change: it gave no answer", way_out)
    if present is not None and blame.refuses(present):
        return blame.refusal(host, version, blame.plain(found, present), blame.places(found, present))
    if said:
        return Refusal(host, f"{version} refuses {item.settled.summary}: {blame.plain(found, said)}", "correct the value of that field")
    return None


def state_of(cluster: Cluster, host: str, found: Kubelet) -> State:
    """A node as it runs now, read from the API. Raises ApiError or NoApi."""
    usage = cluster.usage(found.node_name)
    return State(host, found, cluster.configuration(found.node_name), usage.node, usage.pods, usage.summary)


def unreadable(host: str, node_name: str, error: ApiError | NoApi) -> Refusal:
    """Why a node cannot be planned for, in an operator's terms."""
    what = "what its kubelet runs with and holds cannot be read"
    if isinstance(error, NotFound):
        return Refusal(
            host,
            f"{what}: the API knows no node {node_name} (by the kubelet's --hostname-override, else its host name) ({error.rule})",
            "compare with `kubectl get nodes`; a node must be registered, and under this name, before it is changed",
        )
    if isinstance(error, NoApi):
        return Refusal(host, f"{what}: {error}", "no change could be proven without the API: mend that, or reach it from another node")
    return Refusal(host, f"{what}: {error}")


def _not_ready(state: State) -> list[str]:
    conditions = (state.node.get("status") or {}).get("conditions") or ()
    return [
        f"the node is not Ready ({one.get('reason') or 'no reason given'}: {one.get('message') or 'no message'}); look at that first"
        for one in conditions
        if one.get("type") == "Ready" and one.get("status") != "True"
    ]


def _plan_node(run_id: str, state: State, wish: Wish) -> Planned:
    found = state.kubelet
    check_node(state)
    beside = tuple(pending(found, state.configuration))
    # What is wanted is held against what the files come to; else an edit of somebody's would be put back with it.
    coming = restart.with_brought(state, beside)
    settled = wish.settle(coming)
    edits = settings.edits(found, settled.fields, move_flags=wish.move_flags)
    warnings = [*kubelet_plan.warnings(found), *control_plane.look(found).warnings, *_not_ready(state), *settled.notes, *edits.notes]
    if not edits.files:
        as_it_runs = wish.settle(state)
        if wrong := unmet_fields(as_it_runs.expected, state.configuration):
            raise Refusal(
                state.host,
                f"the kubelet's files are as wanted and the process is not: {'; '.join(map(str, wrong))}",
                f"it was not restarted since: `systemctl restart {found.unit_name}` on the node, then run this again",
            )
        outlook = wish.foresee(state, after(state.configuration, as_it_runs))
        return Planned(state, as_it_runs, outlook, None, "", tuple(warnings))
    restart.check(state, beside)
    outlook = _foreseen(state, coming, wish, settled, beside)
    warnings += kubelet_plan.new_copies(found, edits.files)
    warnings += restart.warnings(beside, settled.named or [tuple(name.split(".")) for name in settled.fields])
    if outlook.evicts and not wish.allow_evictions:
        why = "this would evict: " + "; ".join(outlook.evicts)
        raise Refusal(state.host, why, "allow it by --data allow_evictions=true, or ask for less")
    files = kubelet_plan.file_edits(found, edits.files)
    service = kubelet_plan.new_service(found, edits.files)
    change = Change(
        id=change_id(run_id, state.host, KUBELET),
        node=state.host,
        component=KUBELET,
        kind="kubelet",
        unit=found.unit_name,
        summary=settled.summary,
        files=files,
        health_url=found.health_url,
        old_argv=found.service.known_argv,
        new_argv=service.known_argv,
        daemon_reload=kubelet_plan.touches_units(found, edits.files),
    )
    argv = service.known_argv or edits.argv
    present = ask.ask_kubelet(found, found.service.known_argv or found.process.argv, {})
    return Planned(state, settled, outlook, change, ask.ask_kubelet(found, argv, edits.files), tuple(warnings), present, beside)


def _foreseen(state: State, coming: State, wish: Wish, settled: Settled, beside: Sequence[Pending]) -> Outlook:
    """The look ahead. Raises Refusal; what the files say already is not blamed on the wish."""
    try:
        return wish.foresee(state, after(coming.configuration, settled))
    except Refusal as refusal:
        if beside:
            wish.foresee(state, after(state.configuration, settled))
            raise restart.refusal(state, beside, refusal.message, refusal.way_out) from None
        raise


def after(configuration: Mapping[str, Any], settled: Settled) -> dict[str, Any]:
    """The configuration that the kubelet will run with, as /configz would show it."""
    return restart.put(configuration, settled.expected)


def brings(
    cluster: Cluster, host: str, found: Kubelet, foresee: Callable[[State, Mapping[str, Any]], Outlook], named: restart.Named = ()
) -> list[str]:
    """For a deploy that is not about the configuration: what a restart brings of it, as warnings. Raises Refusal where pods would have to
    go for that, or where it cannot be proven."""
    try:
        if not pending(found, cluster.configuration(found.node_name)):
            return []
        state = state_of(cluster, host, found)
    except (ApiError, NoApi) as error:
        return [f"whether a restart of the kubelet brings more than this change is not known: its /configz could not be read: {error}"]
    beside = restart.brought(state)
    try:
        outlook = foresee(state, restart.with_brought(state, beside).configuration)
    except Refusal as refusal:
        raise restart.refusal(state, beside, refusal.message, refusal.way_out) from None
    if outlook.evicts:
        way_out = f"bring it first and by itself (`systemctl restart {found.unit_name}` on the node)"
        raise restart.refusal(state, beside, f"that would evict: {'; '.join(outlook.evicts)}", way_out)
    return restart.warnings(beside, named)


def ready_still(ready: Callable[[], str | None], cluster: Cluster, item: Planned, wish: Wish, allow_unproven: bool) -> str | None:
    """Right before a change: what `ready` says; then the look of the plan once more, since hours may lie between. A text: why not."""
    if why := ready():
        return why
    try:
        now = state_of(cluster, item.state.host, item.state.kubelet)
        beside = restart.brought(now)
        if others := [str(one) for one in beside if one not in item.beside]:
            return f"since the plan was made the kubelet was restarted with other settings: {'; '.join(others)}; run this again"
        outlook = wish.foresee(now, after(restart.with_brought(now, beside).configuration, item.settled))
    except Refusal as refusal:
        return str(refusal)
    except (ApiError, NoApi) as error:
        return None if allow_unproven else str(unreadable(item.state.host, item.state.kubelet.node_name, error))
    if outlook.evicts and not wish.allow_evictions:
        return f"by now this would evict: {'; '.join(outlook.evicts)}; allow it by --data allow_evictions=true, or make room first"
    return None


def _assemble(
    run_id: str, fleet: Fleet, found: Survey, planned: dict[str, Planned], wishes: Mapping[str, Wish], options: Options
) -> Prepared:
    steps: list[Step] = []
    for host, item in planned.items():
        if item.change is None:
            continue
        node = found.nodes[host]
        owed = Owed(
            host, node.kubelet.node_name, KUBELET, {}, item.settled.expected, node.components, False, options.allow_unproven,
            item.outlook.may_go if wishes[host].allow_evictions else frozenset(),
        )  # fmt: skip
        prover = Prover(found.cluster, owed)
        # What the files of before come to: that is what undoing this brings, and not what ran by chance until now.
        was = restart.with_brought(item.state, item.beside).configuration
        effective = Effective(
            settings={name: {"before": lookup(was, name), "after": value} for name, value in item.settled.expected.items()}
        )
        change = replace(item.change, wanted_confirm_timeout=options.confirm_timeout, patience=options.patience)
        ready = partial(ready_still, prover.ready, found.cluster, item, wishes[host], options.allow_unproven)
        steps.append(Step(change, ready, prover.prove, prover.watch, effective))
    stages = arrange(steps, {host for host, node in found.nodes.items() if node.components}, options.pace, on=True)
    info = this_run(run_id, {host: dict(wish.data) for host, wish in wishes.items()})
    members = [
        kubeadm.Member(
            host, item.state.kubelet.node_name, KUBELET, item.state.kubelet.style == "kubeadm", item.settled.named, wishes[host].write
        )
        for host, item in planned.items()
    ]
    lasting = kubeadm.last(found, fleet, members, options)
    run = Run(info, stages, fleet, options.take_over, lambda run: _finish(prepared), last=lasting.steps)
    prepared = Prepared(run, planned, found.cluster, lasting)
    notes = [one_line(f"WARNING {host}: {warning}") for host, item in planned.items() for warning in item.warnings]
    notes += [f"{host}:\n{item.outlook.text()}" for host, item in planned.items() if item.change is not None]
    notes += lasting.notes + found.ignored
    report.show_plan(prepared.run, found.cluster.apiservers, notes)
    if not (steps or lasting.steps):
        _show_results(prepared)
    return prepared


def drive(name: str, prepared: Prepared, what: str) -> None:
    """Carry the plan out, one operation on each host that changes."""
    host = bridge.current_host()
    bridge.drive(name, prepared.run.involves(host), prepared.run.result, name=what)


def _finish(prepared: Prepared) -> None:
    _show_results(prepared)
    report.show_end(prepared.run)


def _show_results(prepared: Prepared) -> None:
    steps = {step.change.node: step for step in prepared.run.steps}
    rows = []
    for host, item in prepared.planned.items():
        step = steps.get(host)
        before = item.state.configuration
        configuration: dict[str, Any] | None = before
        if step is not None and step.outcome != "not started":
            try:
                configuration = prepared.cluster.configuration(item.state.kubelet.node_name)
            except (ApiError, NoApi):
                configuration = None
        for name in item.settled.expected:
            old, now = lookup(before, name), lookup(configuration, name) if configuration is not None else "unknown"
            if step is not None and in_effect(item.settled.expected[name], old):
                continue
            rows += [[host, *row, *_how(step)] for row in _cells(name, old, now)]
    rows += prepared.lasting.rows()
    headers = ["node", "setting", "before", "after", "outcome", "s", "proof"]
    show_lines("\n" + table.render(headers, rows))


def _cells(name: str, old: Any, now: Any) -> list[tuple[str, str, str]]:
    """One row a field, or one for each entry of a map that differs."""
    if isinstance(old, Mapping) and isinstance(now, Mapping):
        keys = [key for key in {**old, **now} if old.get(key) != now.get(key)] or list(now)
        return [(f"{name}.{key}", _text(old.get(key)), _text(now.get(key))) for key in keys]
    return [(name, _text(old), _text(now))]


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_text(entry)}" for key, entry in value.items()) or "-"
    if isinstance(value, list):
        return ",".join(map(_text, value)) or "-"
    return str(value)


def _how(step: Step | None) -> tuple[str, str, str]:
    if step is None:
        return "no change", "0", "/configz"
    if step.outcome == "confirmed":
        return "confirmed", f"{step.seconds:.0f}", step.how
    return step.outcome, f"{step.seconds:.0f}" if step.seconds else "-", step.why or step.how or "-"
