"""Carries out each change of a PodDisruptionBudget: writes it, compares kube-controller-manager's numbers with its own, or reverts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from roles.disruption_budgets.fields import changes, restoring, values
from roles.disruption_budgets.plan import WORKLOADS, BudgetAction
from roles.engine.api import FIELD_MANAGER, Api
from roles.engine.bridge import show
from roles.engine.disruption import HPA, KINDS_OF_LINT, BudgetState, DisruptionObjects, budget_states, cluster_time, read_disruption
from roles.engine.object_changes import (
    LOOK_AGAIN,
    ChangedByOthers,
    Gone,
    NotDone,
    Object,
    ObjectPath,
    RevertFailed,
    Session,
    Undone,
    Unknown,
    api_object,
    changes_text,
    is_ending,
    managers,
)
from roles.engine.rollout import ClusterStep, Fields
from roles.engine.timeouts import Deadline

# Seconds: for a deletion with finalizers.
REMOVAL = 30.0


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
                    "uid": api_object.uid(action.before) if action.before is not None else "",
                    "namespace": action.namespace,
                    "name": action.budget,
                },
            )
            for action in actions
        )  # fmt: skip

    def _carry_out(self, action: BudgetAction, begin: Callable[[Fields], None]) -> str:
        begin([{"path": list(one.path), "before": one.before, "after": one.after} for one in changes(action.before, action.after)])
        try:
            return self._remove(action) if action.manifest is None else self._apply(action)
        except Unknown as error:
            look = f"kubectl get pdb -n {action.namespace} {action.budget} -o yaml --show-managed-fields"
            raise Unknown(f"STATE UNKNOWN: {error}; check it: {look}; the same command, run again, continues") from error

    def _apply(self, action: BudgetAction) -> str:
        assert action.manifest is not None
        self._unchanged(action)
        manifest, wanted = action.manifest, action.after

        def done(found: Object) -> bool:
            return not changes(found, {**values(found), **wanted}) and FIELD_MANAGER in managers(found, "f:spec", "f:selector")

        if action.drops is not None:
            self._drop(action, action.drops)
        written: Object | None = action.before
        try:
            written = self.session.written(action.path, lambda api: api.apply(action.path, manifest, force=self._force), done)
            return self._proven(action, api_object.uid(written))
        except Unknown:
            raise
        except Exception as error:
            if written is None:
                raise
            raise self._revert(action, written, error) from error

    def _drop(self, action: BudgetAction, path: ObjectPath) -> None:
        """Remove a field of others. Until the apply, the budget has no limit of its own, and allows no eviction."""
        assert action.before is not None
        patch = {"metadata": {"uid": api_object.uid(action.before)}, "spec": {path[-1]: None}}
        self.session.written(action.path, lambda api: api.patch(action.path, patch), lambda found: path not in values(found))

    def _unchanged(self, action: BudgetAction) -> None:
        """Raises NotDone if the budget is not the one that was planned for."""
        found = self.session.fetch(action.path)
        if action.before is None:
            if found is not None:
                raise NotDone("someone else has created it since daytwo read the budgets; run this again")
        elif found is None or api_object.uid(found) != api_object.uid(action.before):
            raise Gone("it was deleted after daytwo read it; run this again")
        elif values(found) != values(action.before):
            raise NotDone("it was changed after daytwo read it; run this again")

    def _proven(self, action: BudgetAction, uid: str) -> str:
        """Wait until kube-controller-manager has computed the budget as daytwo does. Raises NotDone, ApiError."""
        assert action.manifest is not None
        wanted = action.after
        deadline = Deadline(self._proof_seconds)
        while True:
            state = self._state(action)
            if state is None or api_object.uid(state.budget) != uid:
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

    def _revert(self, action: BudgetAction, written: Object, error: Exception) -> Exception:
        """Revert what this run wrote, but nothing that someone else has set since."""
        why = str(error) or repr(error)
        show(f"  {why}")
        changed = changes(action.before, action.after)
        try:
            found = self.session.fetch(action.path)
            if found is None or api_object.uid(found) != api_object.uid(written):
                return Gone(f"{why}; it was deleted meanwhile, so there is nothing to revert")
            if other := [one for one in changed if values(found).get(one.path) not in (one.before, one.after)]:
                return ChangedByOthers(f"{why}; changed by someone else meanwhile ({changes_text(other)}): left as it is now")
            if action.before is None:
                self.session.deleted(action.path, found)
                self._gone(action.path, api_object.uid(found))
                return Undone(f"{why}; what this run created is removed: read back, it is gone")
            manifest, kept = restoring(found, changed)
            if kept:
                raise NotDone(f"someone else owns {', '.join(path[-1] for path in kept)} too")
            self.session.written(
                action.path, lambda api: api.apply(action.path, manifest, force=True), lambda one: values(one) == values(action.before)
            )
            back = self.session.fetch(action.path)
            if back is None or values(back) != values(action.before):
                raise NotDone("it differs from the old budget when read back")
        except Exception as other_error:
            look = f"kubectl get pdb -n {action.namespace} {action.budget} -o yaml"
            return RevertFailed(
                f"{why}; and the revert is not proven: {str(other_error) or repr(other_error)}; STATE UNKNOWN, check: {look}; "
                f"REPAIR BY HAND: if it has what this run set, undo it: {changes_text(changed)}"
            )
        return Undone(f"{why}; what this run wrote is reverted: read back, {changes_text(changed)}")

    def _remove(self, action: BudgetAction) -> str:
        assert action.before is not None
        self._unchanged(action)
        # No resourceVersion: kube-controller-manager writes the status of a budget all the time.
        self.session.deleted(action.path, action.before)
        self._gone(action.path, api_object.uid(action.before))
        return "read back: it is gone"

    def _gone(self, path: str, uid: str) -> None:
        """Wait until the object with this UID is gone. Raises NotDone if it still exists after the time limit."""
        deadline = Deadline(REMOVAL)
        while (found := self.session.fetch(path)) is not None and api_object.uid(found) == uid:
            if deadline.over:
                finalizers = ", ".join(found["metadata"].get("finalizers") or ()) or "none"
                ending = "deleted, but still exists" if is_ending(found) else "not deleted"
                raise NotDone(f"it was {ending} after {deadline.seconds:g} s; its finalizers: {finalizers}")
            deadline.pause(LOOK_AGAIN)


def _read_back(state: BudgetState) -> str:
    own = FIELD_MANAGER in managers(state.budget, "f:spec", "f:selector")
    return f"read back: field manager {FIELD_MANAGER}{'' if own else ' NOT PROVEN'}; generation {state.generation} observed"


def _behind(state: BudgetState) -> str:
    parts = [] if state.caught_up else [f"generation {state.generation}, observed {state.status.observed_generation}"]
    return "; ".join([*parts, *state.differences])
