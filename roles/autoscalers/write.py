"""Carries out each change of an autoscaler: writes it, compares the controller's count with its own, or reverts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from roles.autoscalers.agreement import agreement, vertical_agreement
from roles.autoscalers.fields import changes, restoring, values
from roles.autoscalers.plan import STAYS, AutoscalerAction
from roles.engine import kube
from roles.engine.api import Api, Conflict
from roles.engine.autoscaling import (
    HPA,
    JudgedAutoscaler,
    JudgedVertical,
    Leadership,
    ScalingController,
    judge,
    judge_vertical,
    read_autoscalers,
    read_verticals,
    see_leader,
)
from roles.engine.context import StepContext
from roles.engine.disruption import cluster_time
from roles.engine.kube import FIELD_MANAGER, Object
from roles.engine.kube.field_managers import managers
from roles.engine.object_changes import LOOK_AGAIN, Gone, NotDone, ObjectPath, Session, Unknown, WholeObject
from roles.engine.rollout import ClusterStep
from roles.engine.timeouts import Deadline

# Seconds: to retry a write that conflicts with a controller's own; more than a sync, for the controller's answer to an update.
CONFLICTS = 30.0
MARGIN = 2.0
_NO_LEASE = "the lease of kube-controller-manager, which shows that one leads, cannot be read"


class AutoscalerWriter:
    """Carries out the actions of one plan. `force`: take over fields of other managers; `proof_seconds`: the time for
    kube-controller-manager to handle an autoscaler."""

    def __init__(self, session: Session, controller: ScalingController, *, force: bool, proof_seconds: float) -> None:
        self.session = session
        self._controller = controller
        self._force = force
        self._proof_seconds = proof_seconds
        self._first: dict[str, Sequence[Object]] = {}

    def steps(self, actions: Sequence[AutoscalerAction]) -> tuple[ClusterStep, ...]:
        return tuple(
            ClusterStep(
                action.name, action.summary, action.shown, partial(self._carry_out, action), "", action=action.what,
                about={
                    "path": action.path,
                    "uid": kube.uid(action.before) if action.before is not None else "",
                    "kind": action.kind,
                    "namespace": action.namespace,
                    "name": action.own_name,
                },
            )
            for action in actions
        )  # fmt: skip

    def _carry_out(self, action: AutoscalerAction, context: StepContext) -> str:
        context.begin([{"path": list(one.path), "before": one.before, "after": one.after} for one in changed(action)])
        try:
            if action.patch is not None:
                return self._patch(action, action.patch)
            if action.manifest is None:
                return f"{self._whole(action).remove()}; {STAYS[action.kind]}"
            return self._apply(action)
        except Unknown as error:
            look = f"kubectl get {action.kind} -n {action.namespace} {action.own_name} -o yaml --show-managed-fields"
            raise Unknown(f"STATE UNKNOWN: {error}; check it: {look}; the same command, run again, continues") from error

    # ---- the annotation of a workload

    def _patch(self, action: AutoscalerAction, patch: Mapping[str, Any]) -> str:
        assert action.before is not None
        ((path, wanted),) = action.after.items()
        deadline = Deadline(CONFLICTS)
        while True:
            found = self.session.fetch(action.path)
            if found is None or kube.uid(found) != kube.uid(action.before):
                raise Gone("it was deleted after daytwo read it; run this again")
            if _at(found, path) == wanted:
                break
            if _at(found, path) != _at(action.before, path):
                raise NotDone("it was applied again after daytwo read it; run this again")
            # An apply between this read and the write is a conflict, so it is never overwritten.
            meta = {**patch["metadata"], "resourceVersion": str(found["metadata"].get("resourceVersion", ""))}
            try:
                self.session.written(
                    action.path,
                    lambda api, meta=meta: api.patch(action.path, {**patch, "metadata": meta}),  # type: ignore[misc]
                    lambda one: _at(one, path) == wanted,
                )
                break
            except Conflict:
                # Its controller wrote the status meanwhile.
                if deadline.over:
                    raise
                deadline.pause(LOOK_AGAIN)
        found = self.session.fetch(action.path)
        if found is None or _at(found, path) != wanted:
            raise NotDone("the annotation is not as written when read back; a webhook or another manager changes it")
        return "read back: the annotation is as written; the count and the template are not touched"

    # ---- an autoscaler

    def _apply(self, action: AutoscalerAction) -> str:
        assert action.manifest is not None
        whole = self._whole(action)
        whole.unchanged()
        manifest, wanted = action.manifest, action.after

        def done(found: Object) -> bool:
            return not changes(values(found), {**values(found), **wanted}) and FIELD_MANAGER in managers(found, "f:spec")

        written: Object | None = action.before
        try:
            written = self.session.written(action.path, lambda api: api.apply(action.path, manifest, force=self._force), done)
            return self._proven(action, kube.uid(written))
        except Unknown:
            raise
        except Exception as error:
            if written is None:
                raise
            raise whole.reverted(written, changed(action), lambda found: restoring(action.kind, found, changed(action)), error) from error

    def _proven(self, action: AutoscalerAction, uid: str) -> str:
        """Wait until the controller handles it as daytwo computes. Raises NotDone, ApiError."""
        deadline = Deadline(self._proof_seconds)
        while True:
            found = self.session.fetch(action.path)
            if found is None or kube.uid(found) != uid:
                raise Gone("it was applied, but does not exist when read back: someone else deletes it")
            if wrong := [one.path[-1] for one in changes(values(found), action.after) if one.path[0] == "spec"]:
                raise NotDone(f"it is not as written when read back: {', '.join(wrong)}; a webhook or another manager changes it")
            back = f"read back: field manager {FIELD_MANAGER}{'' if FIELD_MANAGER in managers(found, 'f:spec') else ' NOT PROVEN'}"
            if action.unproven:
                return f"{back}; NOT PROVEN that it works: {', '.join(action.unproven)}"
            if action.kind != HPA:
                if proof := self._vertical(found, deadline):
                    return f"{back}; {proof}"
                continue
            passed = deadline.passed
            seen, judged = self.session.asked(partial(self._judged, found=found), "proof")
            # The leader still led when it had looked at all autoscalers once more.
            new = action.before is None or passed - (seen.age or 0) > self._controller.sync_period + MARGIN
            unknown = action.before is not None and seen.age is None
            one = agreement(judged, new_sync=new, unseen=_NO_LEASE if unknown else "")
            if one.proof:
                return f"{back}; {one.proof}"
            if deadline.over:
                raise NotDone(f"not proven after {deadline.passed:.0f} s: {one.missing}; see deploys/autoscaler_status.py")
            deadline.pause(LOOK_AGAIN)

    def _vertical(self, found: Object, deadline: Deadline) -> str:
        """The proof of a VerticalPodAutoscaler, "" if it needs more time. Raises NotDone, ApiError."""
        judged = self.session.asked(partial(self._judged_vertical, found=found), "proof")
        first = self._first.setdefault(judged.vertical.key, judged.scene.pods)
        one = vertical_agreement(judged, late=deadline.over, first=first)
        if not one.proof and deadline.over:
            raise NotDone(f"not proven after {deadline.passed:.0f} s: {one.missing}; see deploys/autoscaler_status.py")
        if not one.proof:
            deadline.pause(LOOK_AGAIN)
        return one.proof

    def _judged_vertical(self, api: Api, found: Object) -> JudgedVertical:
        now = cluster_time(api)
        world = read_verticals(api, self._controller.minor, {str(found["metadata"]["namespace"])})
        scene = next((one for one in world.scenes if kube.uid(one.vertical.raw) == kube.uid(found)), None)
        if scene is None:
            raise NotDone(f"it cannot be read back: {'; '.join(world.not_known) or 'it is gone'}")
        return judge_vertical(scene, now)

    def _judged(self, api: Api, found: Object) -> tuple[Leadership, JudgedAutoscaler]:
        seen = see_leader(api)
        controller = replace(self._controller, stopped=seen.stopped)
        world = read_autoscalers(api, controller, seen.now, known=[found])
        if not world.scenes:
            raise NotDone(f"it cannot be read back: {'; '.join(world.not_known)}")
        (judged,) = judge(world, controller, seen.now)
        return seen, judged

    def _whole(self, action: AutoscalerAction) -> WholeObject:
        return WholeObject(self.session, action.path, action.before, values, f"{action.kind} -n {action.namespace} {action.own_name}")


def changed(action: AutoscalerAction) -> list[Any]:
    """The fields that an action changes."""
    if action.patch is not None:
        assert action.before is not None
        return changes({path: _at(action.before, path) for path in action.after}, action.after)
    return changes(values(action.before), action.after)


def _at(item: Object, path: ObjectPath) -> Any:
    found: Any = item
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
