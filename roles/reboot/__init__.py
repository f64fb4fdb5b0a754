"""Reboots of the nodes that need one: emptied, rebooted, proven, uncordoned, at the pace of a roll-out; control-plane nodes one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from roles.engine import bridge, starting
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet, Remote, hosts_by_name
from roles.engine.context import Stage
from roles.engine.control_plane import own_etcd
from roles.engine.findings import Severity
from roles.engine.inputs import Changes, Declared
from roles.engine.kube import Object
from roles.engine.kubelet import Kubelet, ask, kubelet_plan
from roles.engine.kubelet.pending import pending_settings, restarted
from roles.engine.node_changes import KUBELET, judge_versions, refusal, unfit_at_start, warning
from roles.engine.object_runs import ConnectedCluster, ObjectRun, connect_cluster
from roles.engine.objects import Session
from roles.engine.outage import cluster_time, read_drain
from roles.engine.proof import SurveyedNode
from roles.engine.runs import Ended, Options, Turns, deploying, no_such_host, with_options
from roles.engine.starting import Cause, Stops
from roles.engine.timeouts import patient
from roles.engine.transaction import Refusal
from roles.engine.transaction.object_record import CANNOT_UNDO
from roles.engine.voice import show
from roles.reboot import facts, report
from roles.reboot.ending import ETCD
from roles.reboot.facts import BootFacts, ask_facts
from roles.reboot.model import RebootOptions
from roles.reboot.next_boot import KubeletNeeds
from roles.reboot.plan import Booted, Candidate, Expected, RebootPlan, order, plan_drains, plan_node, turned_off
from roles.reboot.proving import BootProof, NotBack
from roles.reboot.rebooting import NodeReboots, free
from roles.reboot.undo import CAPABILITY, UNDO


@deploying("Reboot", with_options(RebootOptions))
def reboot(fleet: Fleet, asked: tuple[Options, RebootOptions]) -> Turns | Ended:
    """Reboot the nodes of the run that need it, or all with allow_unneeded=true.

    Data keys: those of roles/reboot/model.py, the consents of a drain, and those of roles/engine/runs/options.py. Raises DeployError
    before any write if a node might not come back, or if its pods cannot leave.
    """
    options, wanted = asked
    bridge.stop(no_such_host(fleet.targets, wanted.chosen_nodes))
    reached = connect_cluster(fleet, wanted.kubeconfig)
    plans = boot_plans(fleet, reached, options, wanted)
    refused, notes = boot_problems(fleet, reached, plans, options)
    bridge.stop([*refused, *(refusal for plan in plans for refusal in plan.refusals), *filter(None, map(turned_off, plans))])
    session = reached.session
    stages = order(plans, options.pace, fleet.lock_host.name)
    drains = _drains(session, wanted, stages)
    nodes = NodeReboots(session, reached.found.cluster, hosts_by_name(fleet.inventory), servers(fleet), options, wanted)
    run = ObjectRun(
        {plan.host: wanted.model_dump() for plan in plans},
        [Stage(tuple(nodes.step(plan, stage.canary) for plan in stage.steps), stage.at_once) for stage in stages],
        fleet,
        options.take_over,
        lambda run: report.show_end(run, plans, wanted),
        capability=CAPABILITY,
        about={CANNOT_UNDO: True},
        leaving=nodes.leaving,
        consents=["allow_unproven=true"] if options.allow_unproven else (),
    )
    run.again = "repeat this command: it proves what has rebooted"
    controls = any(plan.candidate.is_control_plane and plan.what == "reboot" for plan in plans)
    report.show_plan(run, stages, plans, [*notes, *([reached.found.cluster.etcd_summary()] if controls else [])], drains)
    turns = Turns.of(run, fleet, "drain, reboot, prove, uncordon")
    unknown = {plan.host for plan in plans if not plan.known and not options.allow_unproven}
    if not unknown:
        return turns
    names = ", ".join(sorted(unknown))
    said = f"NOT KNOWN: whether {names} needs a reboot. Exit status 1; reboot with allow_unneeded=true, or accept it: allow_unproven=true"
    if not run.steps:
        return Ended(said, 1)
    show(f"\n{said}")
    return replace(turns, hosts={*turns.hosts, *unknown}, work=lambda host: host not in unknown and run.result(host))


def _drains(session: Session, wanted: RebootOptions, stages: Sequence[Stage[RebootPlan]]) -> list[str]:
    """What becomes of the pods of each node that reboots, as text. Raises DeployError if they cannot leave, or cannot be read."""
    if not any(plan.what == "reboot" for stage in stages for plan in stage.steps):
        return []
    with bridge.refusing(ApiFailure, "the pods cannot be read: "):
        live, now = read_drain(session), cluster_time(session)
    texts, refusals = plan_drains(live, stages, wanted, now)
    bridge.stop(refusals)
    return texts


def boot_problems(fleet: Fleet, reached: ConnectedCluster, plans: Sequence[RebootPlan], options: Options) -> tuple[list[object], list[str]]:
    """What the boots start, against the skew policy and the files that they read: refusals, and notes. The nodes were read before."""
    versions = judge_versions(reached.found.observed, reached.found.reading.nodes(), _restarting(reached, plans), options)
    unfit, unread = _files(fleet, reached, plans, options.allow_pairs or ())
    return [*versions.refusals, *unfit], [*versions.notes, *unread]


def _files(fleet: Fleet, reached: ConnectedCluster, plans: Sequence[RebootPlan], allowed: Collection[str]) -> tuple[list[str], list[str]]:
    """Why nodes would not work with the files that their boots read; what there is consent for (the names of pairs), and what could not be
    read."""
    found, problems = unfit_at_start(fleet, reached.found, _restarting(reached, plans))
    refused = [one for one in found if one.pair.severity is Severity.critical and one.pair.name not in allowed]
    notes = [warning(one) for one in found if one not in refused]
    return [str(refusal(one, by_restart=True)) for one in refused], [
        *notes,
        *(f"what must fit elsewhere could not be read: {one}" for one in problems),
    ]


def _restarting(reached: ConnectedCluster, plans: Sequence[RebootPlan]) -> list[tuple[str, str]]:
    hosts = [plan.host for plan in plans if plan.what == "reboot"]
    return [(host, name) for host in hosts for name in (KUBELET, *reached.found.nodes[host].components)]


def servers(fleet: Fleet) -> dict[str, Remote]:
    """The control-plane nodes of the inventory, by host."""
    return {remote.name: remote for remote in fleet.inventory if remote.is_control_plane}


def boot_plans(fleet: Fleet, reached: ConnectedCluster, options: Options, wanted: RebootOptions) -> list[RebootPlan]:
    """The plans of all hosts of the run. Raises DeployError."""
    targets = [remote for remote in fleet.targets if remote.name in reached.names]
    with bridge.refusing(ApiFailure, "the nodes cannot be read: "):
        nodes = reached.found.reading.nodes()
    made = fleet.each(targets, lambda remote: _candidate(reached, nodes, wanted, remote), doing="read the boot of")
    bridge.stop(f"{host}: {str(one).removeprefix(f'{host}: ')}" for host, one in made.items() if isinstance(one, Exception))
    judge = partial(plan_node, unneeded=wanted.allow_unneeded, allow_unproven=options.allow_unproven)
    plans = [judge(one) for one in bridge.whole(made).values()]
    # Only what reboots needs the questions to its kubelet.
    rebooting = {plan.host: plan for plan in plans if plan.what == "reboot"}
    restarts = fleet.each(
        [remote for remote in targets if remote.name in rebooting],
        lambda remote: _restart(reached, remote, reached.found.nodes[remote.name]),
        doing="asked the kubelets of",
    )
    bridge.stop(str(one) for one in restarts.values() if isinstance(one, Exception))
    with_restart = bridge.whole(restarts)
    return [judge(replace(plan.candidate, **with_restart[plan.host])) if plan.host in with_restart else plan for plan in plans]


def _candidate(reached: ConnectedCluster, nodes: Mapping[str, Object], wanted: RebootOptions, remote: Remote) -> Candidate:
    """Raises RemoteError, Refusal."""
    surveyed: SurveyedNode = reached.found.nodes[remote.name]
    facts: BootFacts = ask_facts(remote, surveyed.kubelet.unit_name, surveyed.kubelet.root_directory)
    name = surveyed.kubelet.node_name
    node = nodes.get(name)
    if node is None:
        raise Refusal(remote.name, f"the cluster has no node {name}", "leave the host out with --limit")
    control_plane = bool(surveyed.components) or remote.is_control_plane or facts.has_etcd
    static = {component.name: component.log_name for component in surveyed.components.values()}
    if facts.has_etcd:
        static[ETCD] = f"kube-system_{ETCD}-{name}"
    return Candidate(remote.name, node, surveyed.kubelet.unit_name, facts, control_plane, static, chosen=wanted.includes(remote.name))


#: What a boot repairs, or may repair: shown, and no reason against the boot.
_OF_THIS_BOOT = frozenset({Cause.runtime, Cause.port, Cause.limit, Cause.read_only})


def _restart(reached: ConnectedCluster, remote: Remote, node: SurveyedNode) -> dict[str, Any]:
    """What the start of the kubelet applies, what it needs, and what stands in the way of it and of its control plane's: the fields of a
    Candidate. Raises Refusal if something would not start with its present files; RemoteError."""
    kubelet = node.kubelet
    argv = kubelet.service.known_argv or kubelet.process.argv
    needs = starting.node_needs(kubelet, node.components.values())
    script = (starting.question(needs) if needs else "") + ask.script([ask.ask_kubelet(kubelet, argv, {})])
    said = remote.run("sh -s", stdin=script, timeout=patient(ask.ALL_SECONDS + starting.SECONDS)).stdout
    complaint = ask.verdicts(said).get("kubelet")
    if complaint:
        raise Refusal(remote.name, f"its kubelet would not start with its present files: {complaint}", "correct them, then run this again")
    obstacles = starting.judge(remote.name, needs, starting.answer(needs, said)) if needs else []
    stops = [one for one in obstacles if one.stops is Stops.start or (one.stops is Stops.pods and not one.subject.startswith("/run/"))]
    if left := [one for one in stops if one.cause not in _OF_THIS_BOOT]:
        raise Refusal(remote.name, "; ".join(str(one) for one in left))
    found = [*kubelet_plan.warnings(kubelet), *ask.rewritten_files(kubelet, said)]
    found += [str(one) for one in obstacles if one.stops is not Stops.note or one.cause is Cause.unproven]
    if node.components and own_etcd(kubelet) is None:
        found.append("its etcd is no static pod of this node: what etcd itself needs to start is not judged")
    if complaint is None:
        found.append("its kubelet could not be asked whether it starts with its present files")
    try:
        configuration = reached.found.reading.configuration(kubelet.node_name)
    except ApiFailure as error:
        found.append(f"it is unknown whether its kubelet starts with other settings: its /configz could not be read: {error}")
        return {"restart": tuple(found), "needs": _needs(kubelet, kubelet.configuration)}
    pending = pending_settings(kubelet, configuration) if kubelet.is_known else []
    found += [f"its kubelet starts with other settings: {one}" for one in pending]
    return {"restart": tuple(found), "needs": _needs(kubelet, restarted(configuration, pending))}


def _needs(kubelet: Kubelet, configuration: Mapping[str, Any]) -> KubeletNeeds:
    """`failCgroupV1` is there from 1.31 on, and true by default from 1.35 on (config/v1beta1/defaults.go)."""
    minor = kubelet.process.minor or 0
    return KubeletNeeds(
        bool(configuration.get("protectKernelDefaults")),
        configuration.get("failSwapOn") is not False,
        bool(configuration.get("failCgroupV1", minor >= 35)),
        tuple(file.path for file in (kubelet.sources.fragment, *kubelet.sources.dropins))
        + tuple(filter(None, (kubelet.config_path, *kubelet.dropins({})))),
    )


DATA_KEYS = (Declared(RebootOptions, ("reboot",), changes=Changes.BOOTS, undo=UNDO),)

__all__ = [
    "DATA_KEYS",
    "BootProof",
    "Booted",
    "Expected",
    "NotBack",
    "RebootOptions",
    "RebootPlan",
    "boot_plans",
    "boot_problems",
    "facts",
    "free",
    "order",
    "reboot",
    "servers",
]
