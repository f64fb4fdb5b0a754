"""Resizes pods, and proves it by what the kubelet reports and the cgroups say: that the API accepted a request proves nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roles.engine.api import ApiFailure, list_objects
from roles.engine.api.nodes import node_lease
from roles.engine.bridge import Remote
from roles.engine.bridge.tasks import Lock
from roles.engine.context import Say
from roles.engine.kube import Object, is_ending, uid
from roles.engine.kube.fields import containers_of, status_of
from roles.engine.kube.pods import is_over
from roles.engine.kube.workloads import COLLECTIONS, namespaced
from roles.engine.objects import Gone, NotDone, ObjectChange, ObjectWriter, RevertFailed, Session
from roles.engine.remote import RemoteError
from roles.engine.timeouts import LOOK_AGAIN, Deadline, patient
from roles.engine.transaction import ChangedField
from roles.pod_resize import cgroup, pod_resources
from roles.pod_resize.abilities import Ability
from roles.pod_resize.cgroup import ContainerCgroup
from roles.pod_resize.plan import PodChange, PodStep
from roles.pod_resize.pod_resources import Identity

# Seconds. For the cgroup files: a kubelet writes statuses within a second or two, and the files before that.
FILES_SECONDS = 15.0
# How long a failure must stay: the kubelet retries after an Error, and an Infeasible may be about an earlier request.
STAYS_SECONDS = 10.0
# How long without progress until the run checks the kubelet.
STILL_SECONDS = 15.0
# For the revert of a pod.
BACK_SECONDS = 60.0
# For an answer of systemd.
ACTIVE_SECONDS = 15.0


class Watcher:
    """The pods of a selection, read once a second for all waiting tasks: one LIST, however many pods there are."""

    def __init__(self, session: Session, namespace: str, labels: str) -> None:
        self._session = session
        self._path = namespaced(COLLECTIONS["Pod"], namespace)
        self._labels = labels
        self._turn = Lock()
        self._clock = Deadline(0.0)
        self._begun = float("-inf")
        self._pods: dict[str, Object] = {}

    def look(self) -> Mapping[str, Object]:
        """The pods by UID, from a LIST that started after this call. Raises ApiFailure."""
        called = self._clock.passed
        with self._turn:
            if self._begun <= called:
                self._clock.pause(max(0.0, self._begun + LOOK_AGAIN - self._clock.passed))
                begun = self._clock.passed
                found = self._session.asked(lambda api: list_objects(api, self._path, labels=self._labels))
                self._pods, self._begun = {uid(pod): pod for pod in found}, begun
            return self._pods


@dataclass(frozen=True)
class Proven:
    """The proof of a resized pod. `held` by container."""

    held: Mapping[str, ContainerCgroup]
    identities: Mapping[str, Identity]
    restarted: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = []
        for name, held in self.held.items():
            how = "restarted, as its resizePolicy says" if name in self.restarted else "the same"
            parts.append(f"{name}: {held}; container {self.identities[name]}: {how}")
        return "; ".join(parts)


class ResizeWriter(ObjectWriter):
    """Resizes pods. `nodes` are the hosts by node name, `units` the units of their kubelets; `tell` shows progress to the operator;
    `timeout` in seconds for each pod, never scaled; `known`: the cgroups of containers before, by id."""

    def __init__(
        self,
        session: Session,
        watcher: Watcher,
        ability: Ability,
        nodes: Mapping[str, Remote],
        units: Mapping[str, str],
        timeout: float,
        tell: Say,
        known: Mapping[str, ContainerCgroup] | None = None,
    ) -> None:
        super().__init__(session, force=False)
        self.watcher, self.ability, self.timeout = watcher, ability, timeout
        self._nodes, self._units, self._tell, self._known = nodes, units, tell, known or {}
        self._done: set[str] = set()

    def change(self, step: PodStep) -> PodChange:
        return step.change(self.ability.minor)

    def put_back(self, change: ObjectChange, why: str, say: Say) -> Exception:
        """Its containers may have been restarted since it was done."""
        self._done.add(change.path)
        return super().put_back(change, why, say)

    def by_hand(self, change: ObjectChange) -> str:
        """The command for it."""
        back = self.change(_step(change).back())
        (request,) = back.kind.requests(back.before or {}, back.sets)
        to = f" --subresource {back.kind.subresource}" if back.kind.subresource else ""
        return f"kubectl patch pod -n {back.namespace} {back.own_name}{to} -p '{json.dumps(request.body, separators=(',', ':'))}'"

    def in_effect(self, change: ObjectChange, fields: Sequence[ChangedField], found: Object, proof: str, *, back: bool) -> str:
        """What the kubelet reports, and the cgroups say. Raises Gone too."""
        step = _step(change).of({one.path[2] for one in fields})
        if not back:
            return str(self._seen(step, found, self.timeout))
        try:
            limit, restarts = min(self.timeout, patient(BACK_SECONDS)), change.path in self._done
            return str(self._seen(step.back(), found, limit, back=True, restarts=restarts))
        except Gone:
            raise
        except Exception as error:
            raise RevertFailed(f"its spec has the old resources again, but that is not proven on {step.node}: {error}") from error

    # ---- the proof

    def _seen(self, step: PodStep, before: Object, timeout: float, *, back: bool = False, restarts: bool = False) -> Proven:
        """Wait until the kubelet reports the resize, then check the cgroups. `restarts`: the containers may be restarted meanwhile. Raises
        NotDone, Gone, ApiFailure, RemoteError, ObservationError."""
        names = [str(one.get("name")) for one in containers_of(before)]
        restarting = tuple(name for name, change in step.changes.items() if change.restarts)
        identities = {name: pod_resources.identity(before, name) for name in names}
        clock, failing = Deadline(timeout, as_given=True), None
        shown, kubelet_checked = "", back
        while True:
            pod = self._there(step)
            self._no_restart(pod, {name: one for name, one in identities.items() if not restarts and name not in restarting})
            state, left, passed = pod_resources.progress(pod), pod_resources.unlike(pod, step.after), clock.passed
            if str(state) != shown and (state.state or shown):
                shown = str(state)
                self._tell(f"{step.where}: {shown or 'continues'}")
            # During a revert only the time limit decides: the reported state may still be about the earlier request.
            current = pod_resources.is_of_this_spec(pod)
            failure = "" if back or current is False else _failure(state, step.node)
            failing = (failing or Deadline(STAYS_SECONDS)) if failure else None
            certain = state.state == "Infeasible" and current
            if failing is not None and (certain or failing.over):
                raise NotDone(failure)
            restarted = all(
                (now := pod_resources.identity(pod, name)).started and (back or now.container_id != identities[name].container_id)
                for name in restarting
            )
            complete = not left and restarted
            if complete and not state.state and (back or pod_resources.seen_by_kubelet(pod)):
                return self._files(step, pod, restarting, back=back)
            if passed > timeout:
                if complete and back and state.state == "Proposed":
                    # The API server writes this state (before 1.33), and a kubelet that does not run leaves it: the pod has the resources.
                    return self._files(step, pod, restarting, back=back)
                raise NotDone("; ".join([self._late(state, left, timeout), *self._kubelet(step.node)]))
            if not kubelet_checked and passed > patient(STILL_SECONDS) and state.state in ("", "Proposed"):
                kubelet_checked = True
                for line in self._kubelet(step.node):
                    self._tell(f"{step.where}: {line}")
            clock.pause(LOOK_AGAIN)

    def _late(self, state: pod_resources.ResizeProgress, left: list[str], timeout: float) -> str:
        if state.state == "Deferred":
            return f"still Deferred after {timeout:g} s: {state.message or 'the node has no room for it now'}"
        detail = ", ".join(left) or "its status does not confirm the resize"
        return f"the API accepted the request, but it was not applied within {timeout:g} s ({str(state) or 'no resize status'}; {detail})"

    def _there(self, step: PodStep) -> Object:
        pod = self.watcher.look().get(step.uid)
        if pod is None:
            raise Gone("it was deleted during its resize; its replacement has the template's resources")
        if is_ending(pod):
            raise Gone("it is being deleted during its resize; its replacement has the template's resources")
        if is_over(pod):
            status = status_of(pod)
            raise Gone(f"it ended during its resize ({status.get('phase')}, {status.get('reason') or 'no reason given'})")
        return pod

    def _no_restart(self, pod: Object, identities: Mapping[str, Identity]) -> None:
        for name, was in identities.items():
            now = pod_resources.identity(pod, name)
            if now != was:
                raise NotDone(f"its container {name} was restarted, which must not happen: it was {was}, and is {now}")

    def _files(self, step: PodStep, pod: Object, restarted: tuple[str, ...], *, back: bool) -> Proven:
        """The containers' own cgroups, read on the node. Before a revert a container may have been restarted: then it has another process
        already."""
        remote = self._nodes.get(step.node)
        if remote is None:
            raise NotDone(f"no host of the inventory is node {step.node}, so its cgroup cannot be read")
        identities = {name: pod_resources.identity(pod, name) for name in step.changes}
        ids = {name: cgroup.bare_id(one.container_id) for name, one in identities.items()}
        node = self.ability.nodes.get(step.node)
        deadline = Deadline(FILES_SECONDS)
        while True:
            found = cgroup.look(remote, ids.values())
            wrong = []
            for name, change in step.changes.items():
                held = found.get(ids[name])
                if held is None:
                    wrong.append(f"{name}: no process of its container {ids[name][:12]} runs on {step.node}")
                    continue
                wrong += [f"{name}: {one}" for one in cgroup.problems(held, change.after, cfs_quota=node is None or node.cfs_quota)]
                was = None if back else self._known.get(ids[name])
                if was is not None and (was.pid, was.start) != (held.pid, held.start):
                    raise NotDone(f"{name}: its first process on {step.node} has changed (PID {held.pid}, before {was.pid})")
            if not wrong:
                return Proven({name: found[ids[name]] for name in step.changes}, identities, restarted)
            if deadline.over:
                raise NotDone(f"its status says that it is done, but its cgroup on {step.node} differs: {'; '.join(wrong)}")
            deadline.pause(LOOK_AGAIN)

    def _kubelet(self, node: str) -> list[str]:
        """Why the node's kubelet does not apply the resize, as far as daytwo can see; empty: it seems healthy."""
        remote, unit = self._nodes.get(node), self._units.get(node, "kubelet.service")
        if remote is not None:
            try:
                answer = remote.run(f"systemctl is-active {unit}", timeout=patient(ACTIVE_SECONDS))
                said = " ".join(answer.stdout).strip()
                if answer.code != 0:
                    return [f"the kubelet of {node} does not run ({unit} is {said or 'unknown'}): start it there: systemctl start {unit}"]
            except RemoteError as error:
                return [f"{node} cannot be checked: {error}"]
        try:
            renewed = self.session.asked(lambda api: node_lease(api, node), "lease").renewed
        except ApiFailure:
            return []
        return [f"the kubelet of {node} runs; it last renewed its lease at {renewed:%H:%M:%S} UTC"] if renewed else []


def _step(change: ObjectChange) -> PodStep:
    assert isinstance(change, PodChange)
    return change.step


def _failure(state: pod_resources.ResizeProgress, node: str) -> str:
    """Why the kubelet will not apply the resize; "": it may."""
    if state.state == "Infeasible":
        return f"Infeasible: {state.message or f'node {node} can never have room for it'}"
    if state.state == "Error":
        return f"the kubelet fails to apply it: {state.message or 'no reason given'}"
    return ""
