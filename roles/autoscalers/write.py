"""Proves each autoscaler: the controller's count and daytwo's own agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from roles.autoscalers.agreement import agreement, vertical_agreement
from roles.engine import kube
from roles.engine.api import Api
from roles.engine.autoscaling import (
    HPA,
    JudgedAutoscaler,
    JudgedVertical,
    ScalingController,
    judge,
    judge_vertical,
    read_autoscalers,
    read_verticals,
)
from roles.engine.autoscaling.controller import Leadership, see_leader
from roles.engine.disruption import cluster_time
from roles.engine.kube import Object
from roles.engine.kube.fields import namespace_of
from roles.engine.objects import NotDone, ObjectChange, ObjectWriter, Session
from roles.engine.timeouts import LOOK_AGAIN, Deadline
from roles.engine.transaction import ChangedField

# Seconds, more than a sync, for the controller's answer to an update.
MARGIN = 2.0
_NO_LEASE = "the lease of kube-controller-manager, which shows that one leads, cannot be read"


class AutoscalerWriter(ObjectWriter):
    """`proof_seconds`: the time for kube-controller-manager to handle an autoscaler."""

    def __init__(self, session: Session, controller: ScalingController, *, force: bool, proof_seconds: float) -> None:
        super().__init__(session, force=force)
        self._controller = controller
        self._proof_seconds = proof_seconds
        self._first: dict[str, Sequence[Object]] = {}

    def in_effect(self, change: ObjectChange, fields: Sequence[ChangedField], found: Object, proof: str, *, back: bool) -> str:
        """Of a workload, whose annotation is all that daytwo patches here."""
        return "read back: the annotation is as written; the count and the template are not touched"

    def proven(self, change: ObjectChange, of: str) -> str:
        """Wait until the controller handles it as daytwo computes."""
        deadline = Deadline(self._proof_seconds)
        while True:
            found = self.session.fetch(change.path)
            back = self.read_back(change, of, found)
            assert found is not None
            if change.unproven:
                return f"{back}; NOT PROVEN that it works: {', '.join(change.unproven)}"
            if change.kind.name != HPA:
                if proof := self._vertical(found, deadline):
                    return f"{back}; {proof}"
                continue
            passed = deadline.passed
            seen, judged = self.session.asked(partial(self._judged, found=found), "proof")
            # The leader still led when it had looked at all autoscalers once more.
            new = change.before is None or passed - (seen.age or 0) > self._controller.sync_period + MARGIN
            unknown = change.before is not None and seen.age is None
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
        world = read_verticals(api, self._controller.minor, {namespace_of(found)})
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
