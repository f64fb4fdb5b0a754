"""One pod's resize from the request to the proof, or back again. The API's word that it took the request counts for nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from roles.engine.api import Api, ApiError, Conflict, NotFound, list_objects, node_lease
from roles.engine.bridge import Lock, Remote, RemoteError
from roles.engine.object_changes import LOOK_AGAIN, REFUSED, Foreign, Gone, NotDone, RevertFailed, Session, Undone, WriteRefused
from roles.engine.proof import NoApi
from roles.engine.timeouts import Deadline, patient
from roles.pod_resize import cgroup, pod_resources
from roles.pod_resize.abilities import Ability
from roles.pod_resize.cgroup import Held
from roles.pod_resize.plan import PodStep
from roles.pod_resize.pod_resources import Identity, Object, Resources

# Seconds. A kubelet writes statuses within a second or two and the runtime's files before that; an Error is tried again by itself, and
# an Infeasible may be about what was asked for before, but one that stays is one; how soon a kubelet that does not move is looked at; a
# pod is put back; an answer of systemd.
FILES_SECONDS = 15.0
STAYS_SECONDS = 10.0
STILL_SECONDS = 15.0
BACK_SECONDS = 60.0
ACTIVE_SECONDS = 15.0


class Watcher:
    """The pods of a selection, looked at once a second for all who wait: one LIST, however many they are."""

    def __init__(self, session: Session, namespace: str, labels: str) -> None:
        self._session = session
        self._path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        self._labels = labels
        self._turn = Lock()
        self._clock = Deadline(0.0)
        self._begun = float("-inf")
        self._pods: dict[str, Object] = {}

    def look(self) -> Mapping[str, Object]:
        """The pods by UID, as a LIST had them that was begun after this was asked. Raises ApiError, NoApi."""
        asked = self._clock.passed
        with self._turn:
            if self._begun < asked:
                self._clock.pause(max(0.0, self._begun + LOOK_AGAIN - self._clock.passed))
                begun = self._clock.passed
                found = self._session.asked(lambda api: list_objects(api, self._path, labels=self._labels))
                self._pods, self._begun = {str(pod["metadata"]["uid"]): pod for pod in found}, begun
            return self._pods


@dataclass(frozen=True)
class Proven:
    """What was seen of a resized pod. `held` by container."""

    held: Mapping[str, Held]
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
    """Resizes pods. `nodes` are the hosts by the name of their node, and `units` the units of their kubelets; `tell` is for what an
    operator is to see meanwhile; `timeout` in seconds for each pod, as they are."""

    session: Session
    watcher: Watcher
    ability: Ability
    nodes: Mapping[str, Remote]
    units: Mapping[str, str]
    timeout: float
    tell: Callable[[str], None]
    known: Mapping[str, Held] = field(default_factory=dict)

    def resize(self, step: PodStep) -> Proven:
        """Raises Gone, Undone, Foreign, RevertFailed, and Refused, where nothing was changed."""
        # What the API made of the request; until it says so, what was asked for.
        made: Mapping[str, Resources] = step.after
        try:
            pod = self._ask_for(step)
            made = _resources(pod, step)
            _as_asked(pod, step)
            return self._seen(step, pod, self.timeout)
        except (Gone, WriteRefused):
            raise
        except Exception as error:
            why = str(error) or repr(error)
        self.tell(f"{step.where}: {why}; putting back what it had")
        raise self._put_back(step, made, why)

    # ---- there

    def _ask_for(self, step: PodStep, version: str = "") -> Object:
        """The pod right after the request. With `version`, only where that is still its resourceVersion.

        Raises Gone; Refused where nothing was changed; and NotDone, ApiError or NoApi where it may have been: a request whose answer was
        lost may have been taken, and then an error that comes after it says nothing of the first.
        """
        path, tries = step.path(self.ability.minor), 0

        def send(api: Api) -> Object:
            nonlocal tries
            tries += 1
            return api.patch(path, step.patch(version))

        try:
            pod = self.session.asked(send, "patch")
        except NotFound:
            raise Gone("it was deleted since it was looked at") from None
        except REFUSED as error:
            if tries > 1:
                there = self._there(step)
                if _has(there, step, step.after):
                    return there
                if not _has(there, step, {name: change.before for name, change in step.changes.items()}):
                    raise NotDone(
                        f"after a lost answer the API refused it, and it has neither what was asked for nor what it had: {error}"
                    ) from error
            if version and isinstance(error, Conflict):
                raise
            raise WriteRefused(str(error)) from error
        if str(pod["metadata"].get("uid")) != step.uid:
            raise Gone("another pod of that name is there by now")
        return pod

    def _seen(self, step: PodStep, before: Object, timeout: float, *, back: bool = False) -> Proven:
        """Wait until the kubelet says so, then look for oneself. Raises NotDone, Gone, ApiError, NoApi, RemoteError, ObservationError."""
        names = [str(one.get("name")) for one in pod_resources.containers(before)]
        restarting = tuple(name for name, change in step.changes.items() if change.restarts)
        identities = {name: pod_resources.identity(before, name) for name in names}
        clock, failing = Deadline(timeout, as_given=True), None
        told, looked_after = "", back
        while True:
            pod = self._there(step)
            self._no_restart(pod, {name: one for name, one in identities.items() if name not in restarting})
            state, left, passed = pod_resources.progress(pod), pod_resources.unlike(pod, step.after), clock.passed
            if str(state) != told and (state.state or told):
                told = str(state)
                self.tell(f"{step.where}: {told or 'going on'}")
            # On the way back its time alone decides: what is told may still be of what was asked for before.
            current = pod_resources.is_of_this_spec(pod)
            failure = "" if back or current is False else _failure(state, step.node)
            failing = (failing or Deadline(STAYS_SECONDS)) if failure else None
            certain = state.state == "Infeasible" and current
            if failing is not None and (certain or failing.over):
                raise NotDone(failure)
            come_back = all(
                (now := pod_resources.identity(pod, name)).started and (back or now.container_id != identities[name].container_id)
                for name in restarting
            )
            as_asked = not left and come_back
            if as_asked and not state.state and (back or pod_resources.seen_by_kubelet(pod)):
                return self._files(step, pod, restarting)
            if passed > timeout:
                if as_asked and back and state.state == "Proposed":
                    # The API server's own word (before 1.33), which a kubelet that does not run leaves: of what the pod has already.
                    return self._files(step, pod, restarting)
                raise NotDone("; ".join([self._late(state, left, timeout), *self._kubelet(step.node)]))
            if not looked_after and passed > patient(STILL_SECONDS) and state.state in ("", "Proposed"):
                looked_after = True
                for line in self._kubelet(step.node):
                    self.tell(f"{step.where}: {line}")
            clock.pause(LOOK_AGAIN)

    def _late(self, state: pod_resources.ResizeProgress, left: list[str], timeout: float) -> str:
        if state.state == "Deferred":
            return f"still Deferred after {timeout:g} s: {state.message or 'there is no room for it now'}"
        detail = ", ".join(left) or "it did not say that it has seen it"
        return f"the API took the request, and it was not carried out within {timeout:g} s ({str(state) or 'no word of it'}; {detail})"

    def _there(self, step: PodStep) -> Object:
        pod = self.watcher.look().get(step.uid)
        if pod is None:
            raise Gone("it was deleted in the middle of its resize; its successor has what the template says")
        if pod["metadata"].get("deletionTimestamp"):
            raise Gone("it is being deleted, in the middle of its resize; its successor has what the template says")
        if pod_resources.is_over(pod):
            status = pod.get("status") or {}
            raise Gone(f"it ended in the middle of its resize ({status.get('phase')}, {status.get('reason') or 'no reason given'})")
        return pod

    def _no_restart(self, pod: Object, identities: Mapping[str, Identity]) -> None:
        for name, was in identities.items():
            now = pod_resources.identity(pod, name)
            if now != was:
                raise NotDone(f"its container {name} was restarted, which was not to be: it was {was}, and is {now}")

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
                    raise NotDone(f"{name}: its first process on {step.node} is another one by now (PID {held.pid}, it was {was.pid})")
            if not wrong:
                return Proven({name: found[ids[name]] for name in step.changes}, identities, restarted)
            if deadline.over:
                raise NotDone(f"its status says that it is done, and its cgroup on {step.node} does not: {'; '.join(wrong)}")
            deadline.pause(LOOK_AGAIN)

    def _kubelet(self, node: str) -> list[str]:
        """Why nobody on the node carries it out, as far as that shows; empty: its kubelet seems well."""
        remote, unit = self.nodes.get(node), self.units.get(node, "kubelet.service")
        if remote is not None:
            try:
                answer = remote.run(f"systemctl is-active {unit}", timeout=patient(ACTIVE_SECONDS))
                said = " ".join(answer.stdout).strip()
                if answer.code != 0:
                    return [f"the kubelet of {node} does not run ({unit} is {said or 'unknown'}): start it there, systemctl start {unit}"]
            except RemoteError as error:
                return [f"{node} cannot be looked at: {error}"]
        try:
            renewed = self.session.asked(lambda api: node_lease(api, node), "lease").renewed
        except (ApiError, NoApi):
            return []
        return [f"the kubelet of {node} runs; it renewed its lease last at {renewed:%H:%M:%S} UTC"] if renewed else []

    # ---- and back

    def _put_back(self, step: PodStep, made: Mapping[str, Resources], why: str) -> Exception:
        """How it ended. Only what this run made of the pod's resources (`made`) is written over, and that very version of the pod."""
        back = step.back()
        hand = f"kubectl patch pod -n {step.namespace} {step.name}" + (
            " --subresource resize" if self.ability.minor >= pod_resources.SUBRESOURCE_SINCE else ""
        )
        try:
            pod = self._ask_back(back, made)
        except Gone as error:
            return Gone(f"{why}; and {error}")
        except Foreign as error:
            return Foreign(f"{why}; {error}")
        except Exception as error:
            return RevertFailed(
                f"{why}; and what it had could not be asked for again: {str(error) or repr(error)}; STATE UNKNOWN, look: kubectl get pod "
                f"-n {step.namespace} {step.name} -o yaml; BY HAND: {hand} -p '{_json({'spec': back.patch()['spec']})}'"
            )
        try:
            # Whoever restarted in the middle did so already.
            seen = replace(self, known={})._seen(back, pod, min(self.timeout, patient(BACK_SECONDS)), back=True)
        except Gone as error:
            return Gone(f"{why}; and {error}")
        except Exception as error:
            return RevertFailed(f"{why}; its spec has again what it had, but that was not seen to be so on {step.node}: {error}")
        return Undone(f"{why}; put back: {seen}")

    def _ask_back(self, back: PodStep, made: Mapping[str, Resources]) -> Object:
        """The pod whose spec has again what it had. Raises Foreign, and as _ask_for does."""
        deadline = Deadline(BACK_SECONDS)
        while True:
            there = self._there(back)
            if _has(there, back, back.after):
                return there
            if not _has(there, back, made):
                has = "; ".join(f"{name}: {pod_resources.told(now)}" for name, now in _resources(there, back).items())
                raise Foreign(f"somebody else has changed its resources meanwhile ({has}): they are left as they are")
            try:
                pod = self._ask_for(back, str(there["metadata"].get("resourceVersion") or ""))
            except Conflict:
                # Its kubelet writes its status meanwhile; somebody else may have written its spec.
                if deadline.over:
                    raise
                deadline.pause(LOOK_AGAIN)
                continue
            _as_asked(pod, back)
            return pod


def _resources(pod: Object, step: PodStep) -> dict[str, Resources]:
    """Of the containers that a step is about, as the pod's spec has them."""
    return {name: pod_resources.of(pod_resources.container(pod, name) or {}) for name in step.changes}


def _has(pod: Object, step: PodStep, wanted: Mapping[str, Resources]) -> bool:
    return all(pod_resources.alike(now, wanted[name]) for name, now in _resources(pod, step).items())


def _as_asked(pod: Object, step: PodStep) -> None:
    """Raises NotDone where the API took a request and made something else of it."""
    short = [one for name, now in _resources(pod, step).items() for one in pod_resources.differences(now, step.after[name])]
    if short:
        raise NotDone(f"the API took the request, and its spec has {', '.join(short)}: an admission webhook changes it")


def _failure(state: pod_resources.ResizeProgress, node: str) -> str:
    """Why the kubelet will not carry it out; "": it may."""
    if state.state == "Infeasible":
        return f"Infeasible: {state.message or f'node {node} can never take it'}"
    if state.state == "Error":
        return f"the kubelet fails to carry it out: {state.message or 'it does not say why'}"
    return ""


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
