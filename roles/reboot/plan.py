"""Which nodes of a run reboot, why, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from roles.engine.bounds import moment
from roles.engine.commands import command
from roles.engine.context import Stage
from roles.engine.disruption import DisruptionObjects
from roles.engine.harmless import one_line
from roles.engine.kube import Object, full_name, is_ending, is_ready, uid
from roles.engine.kube.fields import annotations_of, name_of, status_of
from roles.engine.kube.pods import daemon_set, is_static
from roles.engine.kube.workloads import node_path
from roles.engine.node import judge_kernels, judge_signs
from roles.engine.objects import Kind
from roles.engine.outage import DrainConsents, Mark, NodeFate, Purpose, Wanted, node_fate, plan_outages, read_mark
from roles.engine.runs import Pace, stages_of_workers
from roles.reboot import next_boot
from roles.reboot.ending import API_SERVER
from roles.reboot.facts import RUNTIMES, SSH, BootFacts
from roles.reboot.next_boot import KubeletNeeds

#: Its mark is on a Node from its drain until after its proof, with the boot that ends. It survives the operator's machine.
REBOOT = Purpose("reboot", "its reboot")
#: On a Node that has come back from a reboot which did not do its work: the run, the boot that began, and the kernel that it should run
#: ("-": any). In this boot the next run does not reboot it again.
WITHOUT_EFFECT = "daytwo.dev/reboot-without-effect"
NOTED = Kind(
    "Node", "v1", "/api/v1/nodes", (("metadata", "annotations", WITHOUT_EFFECT),), verb="patch", maps=(), of_cluster=True, short="node"
)  # fmt: skip
#: Seconds that a node's clock may differ from others: etcd warns from 1 s on, certificates and disruptedPods tolerate minutes.
CLOCK_SECONDS = 5.0
_UNPROVEN = "or continue without this check: --data allow_unproven=true"

#: `finish`: an earlier run has rebooted it, and has not proven it; `release`: an earlier run meant to reboot it, and that is not needed.
What = Literal["reboot", "finish", "release", "none"]


def effect_text(run: str, boot: str, newest: str) -> str:
    return f"{run} {boot} {newest or '-'}"


def rebooted_for_nothing(node: Object, boot: str, newest: str) -> str:
    """The run that has rebooted this node into this boot for the same kernel, in vain; "". The node's own credential can write this: it
    claims no more than that this node needs a look, and a consent overrides it."""
    text = annotations_of(node).get(WITHOUT_EFFECT)
    words = text.split(" ") if isinstance(text, str) and len(text) < 300 else []
    return one_line(words[0]) if words[1:] == [boot, newest or "-"] else ""


@dataclass(frozen=True)
class Candidate:
    """A node of the run. `static`: NAMESPACE_NAME of the static pods of its control plane, by program. `restart`: what a restart of its
    kubelet applies, as sentences, and `needs` what it starts with then; `chosen`: the data key `only` includes it."""

    host: str
    node: Object
    unit_name: str
    facts: BootFacts
    is_control_plane: bool
    static: Mapping[str, str] = field(default_factory=dict)
    restart: tuple[str, ...] = ()
    chosen: bool = True
    needs: KubeletNeeds = field(default_factory=KubeletNeeds)

    @property
    def has_apiserver(self) -> bool:
        return API_SERVER in self.static

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return name_of(self.node)


@dataclass(frozen=True)
class Booted:
    """A node to prove: a host, and the name and UID of its Node."""

    host: str
    name: str
    uid: str
    is_control_plane: bool = False
    has_apiserver: bool = False


@dataclass(frozen=True)
class RebootPlan:
    """What becomes of one node, and why. `newest`: the kernel that it should run afterwards, "" for any. `known`: False if it may need a
    reboot that nothing on the node could ask for. `refusals` stop the run."""

    candidate: Candidate
    what: What
    why: str
    mark: Mark | None = None
    newest: str = ""
    warnings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    known: bool = True

    @property
    def host(self) -> str:
        return self.candidate.host

    @property
    def name(self) -> str:
        return self.candidate.name

    @property
    def path(self) -> str:
        return node_path(self.name)

    @property
    def booted(self) -> Booted:
        """For the proof of its boot."""
        return Booted(self.host, self.name, self.uid, self.candidate.is_control_plane, self.candidate.has_apiserver)

    @property
    def cordon(self) -> NodeFate:
        """Whether it is cordoned, and by whom: `ours` is the cordon of an earlier run of this deploy, which this one ends."""
        return REBOOT.seen(node_fate(self.candidate.node))

    @property
    def uid(self) -> str:
        return uid(self.candidate.node)


def plan_node(one: Candidate, *, unneeded: bool, allow_unproven: bool) -> RebootPlan:
    """The plan of one node."""
    mark = read_mark(one.node)
    mark = mark if mark is not None and mark.boot and mark.purpose == REBOOT.name else None
    kernels = judge_kernels(one.facts.boot.kernel, one.facts.installed or (), one.facts.family)
    if not one.chosen:
        return RebootPlan(one, "none", "the data key only does not include it", mark)
    if mark is not None and mark.boot != one.facts.boot.id:
        return RebootPlan(
            one, "finish", f"run {mark.run} was to reboot it; it has rebooted since, and that run has not proven it", mark, kernels.newest
        )
    needs = reasons(one.facts, kernels.newest, unneeded=unneeded)
    if not needs and mark is not None:
        return RebootPlan(one, "release", f"run {mark.run} was to reboot it, and did not; it does not need it", mark)
    others = f"installed and not compared with the running kernel: {', '.join(kernels.others)}" if kernels.others else ""
    if not needs:
        need = judge_signs(one.facts.signs, one.facts.family)
        why = f"{need.why_not}, and no installed kernel is newer than the running {one.facts.boot.kernel or '?'}"
        return RebootPlan(one, "none", f"{why}; {others}" if others else why, mark, known=need.known)
    return RebootPlan(
        one,
        "reboot",
        "; ".join(needs),
        mark,
        kernels.newest,
        tuple(_warnings(one, others, kernels.newest)),
        (*([] if unneeded else _in_vain(one, kernels.newest, needs)), *_refusals(one, kernels.newest, allow_unproven)),
    )


def turned_off(plan: RebootPlan) -> str:
    """Why a node must not reboot that another run has turned off, since the mark of this one would replace that one's; "" if none has."""
    mark = read_mark(plan.candidate.node)
    if plan.what != "reboot" or mark is None or not mark.boot or mark.purpose == REBOOT.name:
        return ""
    first = f"first {command('power', power_on=plan.host)}"
    return f"{plan.host}: run {mark.run} turned it off, and it is on without a proof; {first}, or remove its annotation daytwo.dev/outage"


def _in_vain(one: Candidate, newest: str, needs: Sequence[str]) -> list[str]:
    if not (run := rebooted_for_nothing(one.node, one.facts.boot.id, newest)):
        return []
    what = f"run {run} rebooted it for this already, and it came back the same ({'; '.join(needs)}): another reboot would do no more"
    look = "Correct what its boot loader starts (GRUB_DEFAULT, saved_entry), or what sets the sign"
    return [f"{one.host}: {what}. {look}, then --data nodes={one.host} --data allow_unneeded=true; or leave it out with --limit"]


def reasons(facts: BootFacts, newest: str, *, unneeded: bool) -> list[str]:
    """Why a node needs a reboot."""
    found = judge_signs(facts.signs, facts.family).reasons(facts.packages, newest, facts.boot.kernel)
    if not found and unneeded:
        found.append("allow_unneeded=true")
    return found


def _warnings(one: Candidate, others: str, newest: str) -> list[str]:
    found = [*one.restart, *next_boot.warnings(one.facts.next, newest or one.facts.boot.kernel)]
    found += [f"{name}'s file was replaced since it started: the boot starts the new one" for name in one.facts.replaced]
    found += [
        f"{name} runs, and the next boot would not start it: {why}"
        for name in next_boot.WITH_THE_NODE
        if one.facts.unit(name).is_active and (why := one.facts.unit(name).why_not_at_boot)
    ]
    found += [
        f"{name} does not run, and the next boot starts it: its rules may stop traffic of the node and of pods"
        for name in next_boot.FIREWALLS
        if not one.facts.unit(name).is_active and one.facts.unit(name).load == "loaded" and not one.facts.unit(name).why_not_at_boot
    ]
    if others:
        found.append(others)
    if abs(one.facts.boot.offset) > CLOCK_SECONDS:
        found.append(f"its clock differs from that of this machine by {one.facts.boot.offset:+.0f} s")
    if one.facts.fstab is None:
        found.append("its /etc/fstab is not checked: it is empty, or findmnt is not installed")
    if not _ssh(one.facts):
        found.append(f"it has none of {', '.join(SSH)}: whether it answers SSH after its reboot is not checked")
    return found


def _ssh(facts: BootFacts) -> list[str]:
    return sorted({facts.unit(name).name for name in SSH if facts.unit(name).load not in ("", "not-found")})


def _refusals(one: Candidate, newest: str, allow_unproven: bool) -> list[str]:
    """What would keep the node from coming back, or from rebooting."""
    facts, found = one.facts, []

    def refuse(rule: str, way_out: str) -> None:
        found.append(f"{one.host}: {rule}; {way_out}")

    for name in [one.unit_name, *(name for name in (*RUNTIMES, *next_boot.NETWORKS) if facts.unit(name).is_active)]:
        if why := facts.unit(name).why_not_at_boot:
            refuse(f"the next boot would not start {name}: {why}", f"`systemctl enable {name}` on the node, then run this again")
    for name, why in facts.broken:
        refuse(f"the next boot would not start {name}: {one_line(why)}", f"repair that (`systemctl cat {name}`), then run this again")
    servers = _ssh(facts)
    if servers and all(facts.unit(name).why_not_at_boot for name in servers):
        why = "; ".join(f"{name}: {facts.unit(name).why_not_at_boot}" for name in servers)
        refuse(f"the next boot would not start an SSH server ({why}), and daytwo could not reach it", f"enable {servers[0]}")
    if facts.scheduled or facts.state.strip() == "stopping":
        when = "a shutdown has begun" if facts.state.strip() == "stopping" else "a shutdown is scheduled (`shutdown --show`)"
        refuse(when, "wait until it is over, or cancel it: `shutdown -c` on the node")
    for inhibitor in facts.inhibitors:
        refuse(f"{inhibitor}: it inhibits a shutdown", "wait until it ends: `systemd-inhibit --list` on the node")
    if not allow_unproven:
        for error in facts.fstab or ():
            refuse(f"/etc/fstab: {error}: its boot may end in the emergency mode", f"check `findmnt --verify` on the node, {_UNPROVEN}")
        makers = frozenset(
            name for name in next_boot.SWAP_UNITS if facts.unit(name).load == "loaded" and not facts.unit(name).why_not_at_boot
        )
        for rule, way_out in next_boot.refusals(facts.next, one.needs, makers):
            refuse(rule, f"{way_out}, {_UNPROVEN}")
        with_initrd = facts.installed or {}
        if newest and with_initrd.get(facts.boot.kernel) and not with_initrd.get(newest):
            refuse(
                f"kernel {newest} has no initrd, and the running {facts.boot.kernel} has one: it may not start",
                f"create it (update-initramfs or dracut), {_UNPROVEN}",
            )
    return found


# ---- order and pace


def order(plans: Sequence[RebootPlan], pace: Pace, lock_host: str) -> list[Stage[RebootPlan]]:
    """First what earlier runs left, which brings nodes back. Then a canary among the workers, and the other workers at the pace. The
    control-plane nodes come last, one by one: a kernel that does not start has cost one worker until then. The host of the cluster's lock
    is the very last, so that the lock's connection is lost once, when nothing else is left to do."""
    left = [plan for plan in plans if plan.what in ("finish", "release")]
    rebooting = [plan for plan in plans if plan.what == "reboot"]
    workers = [plan for plan in rebooting if not plan.candidate.is_control_plane]
    control_plane = sorted((plan for plan in rebooting if plan.candidate.is_control_plane), key=lambda plan: plan.host == lock_host)
    return [*(Stage((plan,)) for plan in left), *stages_of_workers(workers, pace), *(Stage((plan,)) for plan in control_plane)]


def brought_back(plans: Sequence[RebootPlan]) -> set[str]:
    """The names of the nodes that an earlier run of daytwo left cordoned, and this one uncordons: before the drains, or later in their own
    turn."""
    return {plan.name for plan in plans if plan.cordon.cordon == "ours" and plan.what != "none"}


def plan_drains(
    live: DisruptionObjects, stages: Sequence[Stage[RebootPlan]], asked: DrainConsents, now: datetime
) -> tuple[list[str], list[str]]:
    """What becomes of the pods of each node that reboots, as text; and why they cannot leave. Nodes that the pace may drain at the same
    time are added up as well."""
    plans = [plan for stage in stages for plan in stage.steps]
    wanted = [Wanted(plan.host, plan.name, (one_line(plan.why),)) for plan in plans if plan.what == "reboot"]
    turns = [([plan.host for plan in stage.steps], stage.at_once) for stage in stages]
    notes, refusals = plan_outages(live, wanted, turns, asked, now, REBOOT, brought_back(plans))
    return [f"\n{note}" for note in notes], refusals


# ---- proof


@dataclass(frozen=True)
class Expected:
    """What must be Ready on a node after its reboot: `static` pods (NAMESPACE/NAME) and those of DaemonSets, by the DaemonSet's UID with a
    name for people. `known` is False if nobody looked before the reboot: then all that are there."""

    static: frozenset[str] = frozenset()
    daemons: Mapping[str, str] | None = None
    known: bool = True


def expected_pods(pods: Collection[Object]) -> Expected:
    """From the pods of a node before its reboot: those that were Ready."""
    ready = [pod for pod in pods if is_ready(pod)]
    daemons = {ref.uid: full_name(pod) for pod in ready if (ref := daemon_set(pod))}
    return Expected(frozenset(full_name(pod) for pod in ready if is_static(pod)), daemons)


def unready_pods(expected: Expected, pods: Collection[Object], began: float) -> list[str]:
    """The expected pods that do not run and serve since the boot that `began` (seconds of the node's clock), as sentences."""
    there = [pod for pod in pods if not is_ending(pod)]
    good = [pod for pod in there if is_ready(pod) and _since_boot(pod, began)]
    if not expected.known:
        wanted = [pod for pod in there if is_static(pod) or daemon_set(pod)]
        return [f"{full_name(pod)} is not Ready" for pod in wanted if pod not in good]
    static = {full_name(pod) for pod in good if is_static(pod)}
    daemons = {ref.uid for pod in good if (ref := daemon_set(pod))}
    missing = [f"{name} is not Ready" for name in sorted(expected.static - static)]
    return missing + [f"{name} is not Ready" for owner, name in sorted((expected.daemons or {}).items()) if owner not in daemons]


def _since_boot(pod: Object, began: float) -> bool:
    """Its containers run since this boot: until the kubelet has looked at it, the API still has its status from before."""
    for one in status_of(pod).get("containerStatuses") or ():
        started = ((one.get("state") or {}).get("running") or {}).get("startedAt")
        # A time of the API is in whole seconds.
        if (at := moment(started)) is None or at.timestamp() < began - 1:
            return False
    return True


def clock_problem(before: float | None, now: float, others: Mapping[str, float]) -> str:
    """`before` and `now`: seconds that the node's clock is ahead of the operator's, before and after its reboot (`before` None: not known);
    `others` those of the other control-plane nodes, whose API servers compare times with it. "" if the clock is sane."""
    for host, offset in others.items():
        if abs(now - offset) > CLOCK_SECONDS:
            return f"its clock differs from that of {host}, which has an API server, by {now - offset:+.0f} s"
    if not others:
        if before is not None and abs(now - before) > CLOCK_SECONDS:
            return f"its clock is {now - before:+.0f} s from where it was before, compared with this machine"
        if before is None and abs(now) > CLOCK_SECONDS:
            return f"its clock differs from that of this machine by {now:+.0f} s"
    return ""
