"""Checks whether this cluster can resize pods in place, with a probe pod on each node; or reports what is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

from roles.engine import bridge, starting, table
from roles.engine.api import ApiFailure, Conflict, Denied, Speaker, list_objects
from roles.engine.bridge import Fleet
from roles.engine.context import ClusterStep, Stage, StepContext
from roles.engine.folding import counted
from roles.engine.kube import Object, resources, uid
from roles.engine.kube.fields import conditions, name_of, namespace_of, status_of
from roles.engine.kube.pods import is_over
from roles.engine.kube.resources import View
from roles.engine.object_runs import ConnectedCluster, ObjectRun, connect_cluster
from roles.engine.objects import NotDone, RevertFailed
from roles.engine.runs import Options, Turns, deploying
from roles.engine.runs.options import read_options
from roles.engine.timeouts import API_WAIT, LOOK_AGAIN, Deadline
from roles.engine.transaction import Refusal, RunInfo, new_run_id, this_run
from roles.engine.voice import show, show_lines
from roles.pod_resize import abilities, facts, model, pod_resources, probe
from roles.pod_resize.abilities import Ability
from roles.pod_resize.model import ProbeOptions
from roles.pod_resize.write import ResizeWriter, Watcher

# Seconds. A pod whose image is on the node starts in a second or two; a namespace is gone when its pods have ended.
START_SECONDS = 90.0
REMOVAL_SECONDS = 90.0
AT_ONCE = 5
_NAMESPACES = "/api/v1/namespaces"


@dataclass
class NodeCheck:
    """One node: the image of its probe, and of each stage its name, outcome and proof."""

    name: str
    image: str
    stages: list[tuple[str, str, str]] = field(default_factory=list)


def _read(fleet: Fleet) -> tuple[Options, ProbeOptions]:
    options = read_options(fleet.targets)
    with bridge.refusing(Refusal):
        return options, model.read_cluster([(one.name, one.data) for one in fleet.inventory], ProbeOptions)[1]


@deploying("Check of resizing pods in place", _read, of_cluster=True)
def pod_resize_check(fleet: Fleet, asked: tuple[Options, ProbeOptions]) -> Turns:
    """Resize a probe pod on each node of the run, then remove it.

    Data keys: those of roles/pod_resize/model.py (ProbeOptions), and take_over (roles/engine/runs/options.py). If the cluster cannot do
    it, raises DeployError before anything is created, and says what is missing.
    """
    options, settings = asked
    reached = connect_cluster(fleet, settings.kubeconfig, API_WAIT)
    session = reached.session
    targets = {remote.name for remote in fleet.targets}
    names = [name for name, remote in reached.nodes.items() if remote.name in targets]
    with bridge.refusing(ApiFailure, "the cluster cannot be read: "):
        ability = session.asked(lambda api: facts.read_ability(reached.found, api, names), "plan")
        items = session.asked(lambda api: list_objects(api, "/api/v1/nodes"), "plan")
    bridge.stop(
        [*(f"{name}: it is not a node of this cluster" for name in names if name not in ability.nodes), *abilities.missing(ability, names)]
    )
    images = {name_of(item): settings.image or starting.probe.image_of(item) for item in items}
    bridge.stop(
        f"{name}: it has no pause image for the probe pod; name an image that it has or can pull: --data image=..."
        for name in names
        if not images[name]
    )
    nodes = [NodeCheck(name, images[name] or "") for name in names]
    run = CheckRun(this_run(new_run_id(), {"cluster": settings.model_dump()}), fleet, reached, ability, nodes, settings, options.take_over)
    where = f"{counted(len(names), 'probe pod')}, on {', '.join(names)}"
    show(f"\nPlan of run {run.info.id}: {where}, in the namespace {run.namespace}, which is removed again")
    small, large = pod_resources.resources_text(probe.SMALL), pod_resources.resources_text(probe.LARGE)
    show(f"    each container is resized from {small} to {large} and down again: `{probe.KEEP}` without a restart,")
    show(f"    `{probe.RESTARTED}` with one, as its resizePolicy says. Proof: its cgroup, status and identity. Nothing else is touched")
    for note in (*abilities.unknown_facts(ability, names), *_rules(ability, names)):
        show(f"    note: {note}")
    return Turns.of(run, fleet, "resize a probe pod on each node")


def _rules(ability: Ability, names: list[str]) -> list[str]:
    """What this cluster cannot resize, although it can resize pods."""
    found = []
    if ability.minor == abilities.NO_LOWER_MEMORY:
        found.append(f"1.{ability.minor} cannot lower a memory limit without a restart")
    for name in names:
        settings = ability.nodes[name].configuration
        if settings.get("cpuManagerPolicy") == "static":
            found.append(f"{name}: static CPU manager: the CPU of Guaranteed pods cannot change in place")
        if settings.get("memoryManagerPolicy") == "Static":
            found.append(f"{name}: Static memory manager: the memory of Guaranteed pods cannot change in place")
        if (settings.get("memorySwap") or {}).get("swapBehavior") == "LimitedSwap":
            found.append(f"{name}: its pods have swap: their memory changes only with a restart")
    return found


class CheckRun(ObjectRun):
    """The probes of all nodes. The run always removes the namespace at the end, so there is nothing to undo."""

    def __init__(
        self, info: RunInfo, fleet: Fleet, reached: ConnectedCluster, ability: Ability, nodes: list[NodeCheck], settings: ProbeOptions,
        take_over: str
    ) -> None:  # fmt: skip
        self.nodes = nodes
        self.namespace = f"{probe.PREFIX}{info.id}"
        self._session = reached.session
        self._ability = ability
        self._left = ""
        watcher = Watcher(self._session, self.namespace, "")
        units, seconds = reached.units, settings.limit("resize_timeout")
        self._writer = ResizeWriter(self._session, watcher, ability, reached.nodes, units, seconds, lambda text: show(f"  {text}"))
        steps = tuple(ClusterStep(f"node {node.name}", "a probe pod", "", partial(self._node, node), "", action="check") for node in nodes)
        super().__init__(
            info, [Stage(steps, AT_ONCE)], fleet, take_over, lambda run: self._close(),
            capability="pod_resize_check", about={},
            leaving=lambda: (
                f"the namespace {self.namespace} stays; the next check removes it, or: kubectl delete namespace {self.namespace}"
            ),
        )  # fmt: skip

    def next_commands(self) -> list[str]:
        return []

    def _work(self) -> None:
        try:
            self._clean()
            self._create_namespace()
            super()._work()
        except (ApiFailure, NotDone) as error:
            self.halted = self.halted or str(error)
        finally:
            try:
                self._clean()
            except (ApiFailure, NotDone) as error:
                self._left = str(error)
                self.halted = self.halted or f"the namespace {self.namespace} could not be removed: {error}"

    def _end(self, step: ClusterStep) -> dict[str, Any]:
        node = self.nodes[self.steps.index(step)]
        return {**super()._end(step), "proofs": [f"{stage}: {proof}" for stage, _, proof in node.stages]}

    def _close(self) -> None:
        rows = [[node.name, stage, outcome, table.short(proof)] for node in self.nodes for stage, outcome, proof in node.stages]
        ended = zip(self.nodes, self.steps, strict=True)
        rows += [[node.name, "-", step.outcome, table.short(step.why) or "-"] for node, step in ended if step.outcome != self.success]
        show_lines("\n" + table.render(["node", "resized", "outcome", "proof"], rows))
        if self.halted:
            show(f"\nHALTED: {self.halted}")
        able = [node.name for node, step in zip(self.nodes, self.steps, strict=True) if step.outcome == self.success]
        show(f"\n{len(able)} of {counted(len(self.nodes), 'node')} can resize pods in place{': ' if able else ''}{', '.join(able)}")
        show(f"The namespace {self.namespace} is {f'STILL THERE: {self._left}' if self._left else 'gone'}.")
        show(f"Record of the run: {self.record.path}")

    # ---- namespaces

    def _create_namespace(self) -> None:
        manifest = probe.namespace(self.info.id)
        self._session.asked(lambda api: api.apply(f"{_NAMESPACES}/{self.namespace}", manifest), "make")

    def _clean(self) -> None:
        """Remove all namespaces of checks: no other run uses them, since this run holds the cluster's lock. Raises NotDone, ApiError,
        NoApi."""
        deadline = Deadline(REMOVAL_SECONDS)
        deleted: set[str] = set()
        while there := self._session.fetch_all(_NAMESPACES, labels=probe.LABEL):
            for item in there:
                if uid(item) not in deleted:
                    deleted.add(uid(item))
                    # It may be recreated meanwhile: the next read shows it.
                    with contextlib.suppress(Conflict):
                        self._session.deleted(f"{_NAMESPACES}/{name_of(item)}", item)
            if deadline.over:
                names = ", ".join(name_of(item) for item in there)
                raise NotDone(
                    f"{names}: still exists after {deadline.seconds:g} s: {_conditions(there[0])}; kubectl delete namespace {names}"
                )
            deadline.pause(LOOK_AGAIN)

    # ---- one node

    def _node(self, node: NodeCheck, context: StepContext) -> str:
        """Resize the probe of one node, without recording fields: nothing stays that could be undone."""
        started = self._start(node)
        for stage, step in probe.stages(started, self._ability.minor):
            if self.interrupted:
                raise NotDone("interrupted by the operator")
            show(f"  {node.name}: {stage}: resizing")
            before = self._allocated(node.name)
            try:
                proof = self._writer.carry_out(self._writer.change(step), context.beginning())
            except (NotDone, RevertFailed) as error:
                node.stages.append((stage, "failed", str(error)))
                raise
            change = self._allocation_change(node.name, before, step.after)
            node.stages.append((stage, "done", f"{proof}; {change}"))
            show(f"  {node.name}: {stage}: done")
        return f"{len(node.stages)} resizes, each proven"

    def _start(self, node: NodeCheck) -> Object:
        """Start the node's probe; returns the running pod. Raises NotDone, ApiFailure."""
        manifest = probe.pod(self.info.id, node.name, node.image)
        path = f"{_NAMESPACES}/{self.namespace}/pods/{quote(probe.pod_name(node.name), safe='')}"
        deadline = Deadline(START_SECONDS)
        of = uid(_patiently(lambda: self._session.asked(lambda api: api.apply(path, manifest), "make"), deadline))
        while True:
            pod = self._writer.watcher.look().get(of)
            if pod is None or is_over(pod):
                why = status_of(pod) if pod else {}
                raise NotDone(f"the probe pod ended: {why.get('reason') or 'it is gone'} {why.get('message') or ''}".rstrip())
            states = [pod_resources.state_of(pod, name) for name, _ in probe.POLICIES]
            # A kubelet that supports resizes reports the resources of running containers.
            if all(pod_resources.identity(pod, name).started for name, _ in probe.POLICIES) and all(
                pod_resources.of(state) for state in states
            ):
                return pod
            deadline.pause(LOOK_AGAIN, late=NotDone(f"the probe pod does not run after {deadline.seconds:g} s: {_waiting(states)}"))

    def _allocated(self, node: str) -> dict[str, Any]:
        """The allocated resources of all pods on the node, and of the probe."""
        pods = self._session.asked(lambda api: list_objects(api, "/api/v1/pods", fields=f"spec.nodeName={node}"))
        found: dict[str, Any] = {"cpu": 0, "memory": 0, "probe": {}}
        for pod in pods:
            if is_over(pod):
                continue
            requests = resources.requests(pod, View.RUNNING)
            for name in pod_resources.RESOURCES:
                found[name] += requests.get(name, 0)
            if namespace_of(pod) == self.namespace:
                found["probe"] = {name: requests.get(name, 0) for name in pod_resources.RESOURCES}
        return found

    def _allocation_change(self, node: str, before: Mapping[str, Any], wanted: Mapping[str, pod_resources.Resources]) -> str:
        """How the node's allocated resources changed with the probe's requests. Raises NotDone if they did not."""
        after = self._allocated(node)
        shift = {name: after["probe"].get(name, 0) - before["probe"].get(name, 0) for name in pod_resources.RESOURCES}
        if not any(shift.values()):
            raise NotDone(f"the allocated resources of {node} did not change, although the probe's requests did ({wanted})")
        cpu = f"cpu {int(before['cpu'] * 1000)}m -> {int(after['cpu'] * 1000)}m"
        return f"allocated on the node: {cpu}, memory {int(before['memory']) >> 20}Mi -> {int(after['memory']) >> 20}Mi"


def _patiently(create: Callable[[], dict[str, Any]], deadline: Deadline) -> dict[str, Any]:
    """Retry while a new namespace refuses pods because it has no service account yet."""
    while True:
        try:
            return create()
        except Denied as error:
            if error.speaker is not Speaker.SERVICE_ACCOUNT or deadline.over:
                raise
        deadline.pause(LOOK_AGAIN)


def _waiting(states: list[Object]) -> str:
    waits = [(state.get("state") or {}).get("waiting") or {} for state in states]
    return "; ".join(f"{one.get('reason')}: {one.get('message') or '-'}" for one in waits if one) or "no reason given"


def _conditions(item: Object) -> str:
    found = conditions(item)
    return "; ".join(f"{one.get('reason')}: {one.get('message')}" for one in found if one.get("status") == "True") or "no reason given"
