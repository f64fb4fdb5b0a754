"""Carries out each change of a PodDisruptionBudget: writes it, compares kube-controller-manager's numbers with its own, or reverts it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from roles.disruption_budgets.fields import changes, restoring, values
from roles.disruption_budgets.plan import WORKLOADS, BudgetAction
from roles.engine import kube
from roles.engine.api import Api
from roles.engine.context import StepContext
from roles.engine.disruption import HPA, KINDS_OF_LINT, BudgetState, DisruptionObjects, budget_states, cluster_time, read_disruption
from roles.engine.kube import FIELD_MANAGER, Object
from roles.engine.kube.field_managers import managers
from roles.engine.object_changes import LOOK_AGAIN, Gone, NotDone, ObjectPath, Session, Unknown, WholeObject
from roles.engine.rollout import ClusterStep
from roles.engine.timeouts import Deadline


def read_live(api: Api, namespaces: set[str]) -> DisruptionObjects:
    """The budgets of these namespaces, and what decides about them. Raises ApiError."""
    return read_disruption(api, namespaces, {**WORKLOADS, HPA: KINDS_OF_LINT[HPA]})


class BudgetWriter:
    """Carries out the actions of one plan. `force`: take over fields of other managers; `proof_seconds`: the time for
    kube-controller-manager to compute a budget."""

    def __init__(self, session: Session, *, force: bool, proof_seconds: float) -> None:
        self.session = session
        self._force = force
        self._proof_seconds = proof_seconds

    def steps(self, actions: Sequence[BudgetAction]) -> tuple[ClusterStep, ...]:
        return tuple(
            ClusterStep(
                action.name, action.summary, action.shown, partial(self._carry_out, action), "", action=action.what,
                about={
                    "path": action.path,
                    "uid": kube.uid(action.before) if action.before is not None else "",
                    "namespace": action.namespace,
                    "name": action.budget,
                },
            )
            for action in actions
        )  # fmt: skip

    def _carry_out(self, action: BudgetAction, context: StepContext) -> str:
        context.begin([{"path": list(one.path), "before": one.before, "after": one.after} for one in changes(action.before, action.after)])
        try:
            return self._whole(action).remove() if action.manifest is None else self._apply(action)
        except Unknown as error:
            look = f"kubectl get pdb -n {action.namespace} {action.budget} -o yaml --show-managed-fields"
            raise Unknown(f"STATE UNKNOWN: {error}; check it: {look}; the same command, run again, continues") from error

    def _apply(self, action: BudgetAction) -> str:
        assert action.manifest is not None
        whole = self._whole(action)
        whole.unchanged()
        manifest, wanted = action.manifest, action.after

        def done(found: Object) -> bool:
            return not changes(found, {**values(found), **wanted}) and FIELD_MANAGER in managers(found, "f:spec", "f:selector")

        if action.drops is not None:
            self._drop(action, action.drops)
        written: Object | None = action.before
        try:
            written = self.session.written(action.path, lambda api: api.apply(action.path, manifest, force=self._force), done)
            return self._proven(action, kube.uid(written))
        except Unknown:
            raise
        except Exception as error:
            if written is None:
                raise
            raise whole.reverted(written, changes(action.before, action.after), partial(self._restoring, action), error) from error

    def _drop(self, action: BudgetAction, path: ObjectPath) -> None:
        """Remove a field of others. Until the apply, the budget has no limit of its own, and allows no eviction."""
        assert action.before is not None
        patch = {"metadata": {"uid": kube.uid(action.before)}, "spec": {path[-1]: None}}
        self.session.written(action.path, lambda api: api.patch(action.path, patch), lambda found: path not in values(found))

    def _proven(self, action: BudgetAction, uid: str) -> str:
        """Wait until kube-controller-manager has computed the budget as daytwo does. Raises NotDone, ApiError."""
        assert action.manifest is not None
        wanted = action.after
        deadline = Deadline(self._proof_seconds)
        while True:
            state = self._state(action)
            if state is None or kube.uid(state.budget) != uid:
                raise Gone("it was applied, but does not exist when read back: someone else deletes it")
            if wrong := [one.path[-1] for one in changes(state.budget, wanted) if one.path[0] == "spec"]:
                raise NotDone(f"it is not as written when read back: {', '.join(wrong)}; a webhook or another manager changes it")
            if state.unread and state.caught_up:
                return f"{_read_back(state)}; allows {state.disruptions_allowed}, NOT PROVEN by daytwo's own numbers: {state.unread}"
            # A budget that cannot be computed never gets an observedGeneration; its condition says so.
            if not state.unread and not state.differences and (state.caught_up or state.problem):
                return f"{_read_back(state)}; kube-controller-manager and daytwo agree: allows {state.disruptions_allowed} ({state.why})"
            if deadline.over:
                raise NotDone(f"not proven after {deadline.passed:.0f} s: {_behind(state)}; check kube-controller-manager")
            deadline.pause(LOOK_AGAIN)

    def _state(self, action: BudgetAction) -> BudgetState | None:
        live = self.session.asked(partial(read_disruption, namespaces={action.namespace}), "proof")
        return budget_states(live, self.session.asked(cluster_time, "proof")).named(action.key)

    def _restoring(self, action: BudgetAction, found: Object) -> dict[str, Any]:
        manifest, kept = restoring(found, changes(action.before, action.after))
        if kept:
            raise NotDone(f"someone else owns {', '.join(path[-1] for path in kept)} too")
        return manifest

    def _whole(self, action: BudgetAction) -> WholeObject:
        return WholeObject(self.session, action.path, action.before, values, f"pdb -n {action.namespace} {action.budget}")


def _read_back(state: BudgetState) -> str:
    own = FIELD_MANAGER in managers(state.budget, "f:spec", "f:selector")
    return f"read back: field manager {FIELD_MANAGER}{'' if own else ' NOT PROVEN'}; generation {state.generation} observed"


def _behind(state: BudgetState) -> str:
    parts = [] if state.caught_up else [f"generation {state.generation}, observed {state.status.observed_generation}"]
    return "; ".join([*parts, *state.differences])
