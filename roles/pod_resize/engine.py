"""One pod's resize, from the request to the proof or the revert. That the API accepted the request proves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from roles.engine.api import Api, ApiFailure, Conflict, NotFound, list_objects
from roles.engine.api.nodes import node_lease
from roles.engine.bridge import Remote
from roles.engine.bridge.tasks import Lock
from roles.engine.kube import Object, is_ending, uid, version
from roles.engine.kube.fields import containers_of, status_of
from roles.engine.kube.pods import is_over
from roles.engine.objects import REFUSED, ChangedByOthers, Gone, NotDone, RevertFailed, Session, Undone, WriteRefused
from roles.engine.remote import RemoteError
from roles.engine.timeouts import LOOK_AGAIN, Deadline, patient
from roles.pod_resize import cgroup, pod_resources
from roles.pod_resize.abilities import Ability
from roles.pod_resize.cgroup import ContainerCgroup
from roles.pod_resize.plan import PodStep
from roles.pod_resize.pod_resources import Identity, Resources

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
        self._path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        self._labels = labels
        self._turn = Lock()
        self._clock = Deadline(0.0)
        self._begun = float("-inf")
        self._pods: dict[str, Object] = {}

    def look(self) -> Mapping[str, Object]:
        """The pods by UID, from a LIST that started after this call. Raises ApiFailure."""
        called = self._clock.passed
        with self._turn:
            if self._begun < called:
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


@dataclass
class Engine:
    """Resizes pods. `nodes` are the hosts by node name, `units` the units of their kubelets; `tell` shows progress to the operator;
    `timeout` in seconds for each pod, never scaled."""

    session: Session
    watcher: Watcher
    ability: Ability
    nodes: Mapping[str, Remote]
    units: Mapping[str, str]
    timeout: float
    tell: Callable[[str], None]
    known: Mapping[str, ContainerCgroup] = field(default_factory=dict)

    def resize(self, step: PodStep) -> Proven:
        """Raises Gone, Undone, Foreign, RevertFailed, and, if nothing was changed, WriteRefused."""
        # The pod's resources after the request as the API answered; until then, as requested.
        written: Mapping[str, Resources] = step.after
        try:
            pod = self._request(step)
            written = _resources(pod, step)
            _as_requested(pod, step)
            return self._seen(step, pod, self.timeout)
        except (Gone, WriteRefused):
            raise
        except Exception as error:
            why = str(error) or repr(error)
        self.tell(f"{step.where}: {why}; reverting")
        raise self._revert(step, written, why)

    def put_back(self, step: PodStep, why: str) -> Exception:
        """Revert a resize that was done, for the reason `why`; its containers may have been restarted since. The error says how it ended:
        Undone, Gone, ChangedByOthers or RevertFailed."""
        return self._revert(step, step.after, why, restarts=True)

    # ---- the resize

    def _request(self, step: PodStep, version: str = "") -> Object:
        """The pod right after the request. With `version`, only if that is still its resourceVersion.

        Raises Gone; WriteRefused if nothing was changed; NotDone, ApiFailure if the pod may have been changed: a request whose
        answer was lost may have been applied, and then a later error says nothing about that request.
        """
        path, tries = step.path(self.ability.minor), 0

        def send(api: Api) -> Object:
            nonlocal tries
            tries += 1
            return api.patch(path, step.patch(version))

        try:
            pod = self.session.asked(send, "patch")
        except NotFound:
            raise Gone("it was deleted after daytwo read it") from None
        except REFUSED as error:
            if tries > 1:
                there = self._there(step)
                if _has(there, step, step.after):
                    return there
                if not _has(there, step, {name: change.before for name, change in step.changes.items()}):
                    raise NotDone(
                        f"after a lost answer the API refused the request, and the pod has neither the new nor the old resources: {error}"
                    ) from error
            if version and isinstance(error, Conflict):
                raise
            raise WriteRefused(str(error)) from error
        if uid(pod) != step.uid:
            raise Gone("another pod has its name now")
        return pod

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
                self.tell(f"{step.where}: {shown or 'continues'}")
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
                return self._files(step, pod, restarting)
            if passed > timeout:
                if complete and back and state.state == "Proposed":
                    # The API server writes this state (before 1.33), and a kubelet that does not run leaves it: the pod has the resources.
                    return self._files(step, pod, restarting)
                raise NotDone("; ".join([self._late(state, left, timeout), *self._kubelet(step.node)]))
            if not kubelet_checked and passed > patient(STILL_SECONDS) and state.state in ("", "Proposed"):
                kubelet_checked = True
                for line in self._kubelet(step.node):
                    self.tell(f"{step.where}: {line}")
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

    def _files(self, step: PodStep, pod: Object, restarted: tuple[str, ...]) -> Proven:
        """The containers' own cgroups, read on the node."""
        remote = self.nodes.get(step.node)
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
                was = self.known.get(ids[name])
                if was is not None and (was.pid, was.start) != (held.pid, held.start):
                    raise NotDone(f"{name}: its first process on {step.node} has changed (PID {held.pid}, before {was.pid})")
            if not wrong:
                return Proven({name: found[ids[name]] for name in step.changes}, identities, restarted)
            if deadline.over:
                raise NotDone(f"its status says that it is done, but its cgroup on {step.node} differs: {'; '.join(wrong)}")
            deadline.pause(LOOK_AGAIN)

    def _kubelet(self, node: str) -> list[str]:
        """Why the node's kubelet does not apply the resize, as far as daytwo can see; empty: it seems healthy."""
        remote, unit = self.nodes.get(node), self.units.get(node, "kubelet.service")
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

    # ---- the revert

    def _revert(self, step: PodStep, written: Mapping[str, Resources], why: str, *, restarts: bool = False) -> Exception:
        """Revert a pod; the error says how that ended. This overwrites only the resources that this run wrote (`written`), and only in the
        version of the pod that was read."""
        back = step.back()
        hand = f"kubectl patch pod -n {step.namespace} {step.name}" + (
            " --subresource resize" if self.ability.minor >= pod_resources.SUBRESOURCE_SINCE else ""
        )
        try:
            pod = self._request_back(back, written)
        except Gone as error:
            return Gone(f"{why}; and {error}")
        except ChangedByOthers as error:
            return ChangedByOthers(f"{why}; {error}")
        except Exception as error:
            return RevertFailed(
                f"{why}; and the old resources could not be requested: {str(error) or repr(error)}; STATE UNKNOWN, check: kubectl get pod "
                f"-n {step.namespace} {step.name} -o yaml; REPAIR BY HAND: {hand} -p '{_json({'spec': back.patch()['spec']})}'"
            )
        try:
            # A container that was restarted meanwhile has another process already.
            seen = replace(self, known={})._seen(back, pod, min(self.timeout, patient(BACK_SECONDS)), back=True, restarts=restarts)
        except Gone as error:
            return Gone(f"{why}; and {error}")
        except Exception as error:
            return RevertFailed(f"{why}; its spec has the old resources again, but that is not proven on {step.node}: {error}")
        return Undone(f"{why}; reverted: {seen}")

    def _request_back(self, back: PodStep, written: Mapping[str, Resources]) -> Object:
        """Request the old resources; returns the pod with them in its spec. Raises Foreign, and the same as _request."""

        def write() -> Object:
            there = self._there(back)
            if _has(there, back, back.after):
                return there
            if not _has(there, back, written):
                has = "; ".join(f"{name}: {pod_resources.resources_text(now)}" for name, now in _resources(there, back).items())
                raise ChangedByOthers(f"someone else changed its resources meanwhile ({has}): left as they are now")
            pod = self._request(back, version(there))
            _as_requested(pod, back)
            return pod

        # Its kubelet may write its status meanwhile, or someone else its spec.
        return self.session.unconflicted(write)


def _resources(pod: Object, step: PodStep) -> dict[str, Resources]:
    """The resources in the pod's spec of the containers of a step."""
    return {name: pod_resources.of(pod_resources.container(pod, name) or {}) for name in step.changes}


def _has(pod: Object, step: PodStep, wanted: Mapping[str, Resources]) -> bool:
    return all(pod_resources.alike(now, wanted[name]) for name, now in _resources(pod, step).items())


def _as_requested(pod: Object, step: PodStep) -> None:
    """Raises NotDone if the API accepted the request, but wrote other resources."""
    different = [one for name, now in _resources(pod, step).items() for one in pod_resources.differences(now, step.after[name])]
    if different:
        raise NotDone(f"the API accepted the request, but its spec has {', '.join(different)}: an admission webhook changes it")


def _failure(state: pod_resources.ResizeProgress, node: str) -> str:
    """Why the kubelet will not apply the resize; "": it may."""
    if state.state == "Infeasible":
        return f"Infeasible: {state.message or f'node {node} can never have room for it'}"
    if state.state == "Error":
        return f"the kubelet fails to apply it: {state.message or 'no reason given'}"
    return ""


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
