"""Proves each budget: kube-controller-manager's numbers and daytwo's own agree."""

from __future__ import annotations

from functools import partial

from roles.disruption_budgets.plan import WORKLOADS
from roles.engine.api import Api
from roles.engine.disruption import KINDS_OF_LINT, BudgetState, DisruptionObjects, budget_states, cluster_time, read_disruption
from roles.engine.disruption.problem import HPA
from roles.engine.objects import NotDone, ObjectChange, ObjectWriter, Session
from roles.engine.timeouts import LOOK_AGAIN, Deadline


def read_live(api: Api, namespaces: set[str]) -> DisruptionObjects:
    """The budgets of these namespaces, and what decides about them. Raises ApiError."""
    return read_disruption(api, namespaces, {**WORKLOADS, HPA: KINDS_OF_LINT[HPA]})


class BudgetWriter(ObjectWriter):
    """`proof_seconds`: the time for kube-controller-manager to compute a budget."""

    def __init__(self, session: Session, *, force: bool, proof_seconds: float) -> None:
        super().__init__(session, force=force)
        self._proof_seconds = proof_seconds

    def proven(self, change: ObjectChange, of: str) -> str:
        """Wait until kube-controller-manager has computed the budget as daytwo does."""
        deadline = Deadline(self._proof_seconds)
        while True:
            state = self._state(change)
            back = self.read_back(change, of, state.budget if state else None)
            assert state is not None
            back += f"; generation {state.generation} observed"
            if state.unread and state.caught_up:
                return f"{back}; allows {state.disruptions_allowed}, NOT PROVEN by daytwo's own numbers: {state.unread}"
            # A budget that cannot be computed never gets an observedGeneration; its condition says so.
            if not state.unread and not state.differences and (state.caught_up or state.problem):
                return f"{back}; kube-controller-manager and daytwo agree: allows {state.disruptions_allowed} ({state.why})"
            if deadline.over:
                raise NotDone(f"not proven after {deadline.passed:.0f} s: {_behind(state)}; check kube-controller-manager")
            deadline.pause(LOOK_AGAIN)

    def _state(self, change: ObjectChange) -> BudgetState | None:
        live = self.session.asked(partial(read_disruption, namespaces={change.namespace}), "proof")
        return budget_states(live, self.session.asked(cluster_time, "proof")).named(change.key)


def _behind(state: BudgetState) -> str:
    parts = [] if state.caught_up else [f"generation {state.generation}, observed {state.status.observed_generation}"]
    return "; ".join([*parts, *state.differences])
