"""The API server's answer to an eviction, computed from what the API shows. Pure.

kubernetes 1.36, pkg/registry/core/pod/storage/eviction.go: Create, canIgnorePDB, checkAndDecrement. Permissions, preconditions and webhooks
are not judged here: a request with `dryRun: [All]` asks the API server itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roles.engine.disruption.budgets import ALWAYS_ALLOW, BudgetState, budgets_of
from roles.engine.kube import Object, is_ending, is_ready
from roles.engine.kube.fields import status_of
from roles.engine.kube.pods import is_alive

#: MaxDisruptedPodSize
_MOST_DISRUPTED = 2000
_STALE_SECONDS = 10


@dataclass(frozen=True)
class EvictionAnswer:
    """The answer to POST pods/NAME/eviction. `code`: 201 (the pod is deleted), 403, 429 (try again later) or 500; `why`: the reason, in the
    words of the API server if it has some. `budget`: NAMESPACE/NAME of the budget that decides, "" if none is asked. `takes`: the eviction
    takes one from disruptionsAllowed. `retry_after` in seconds. `never`: why trying again does not help, as long as the budget and the
    scales stay; "" if it may."""

    code: int
    why: str
    budget: str = ""
    takes: bool = False
    retry_after: int = 0
    never: str = ""

    @property
    def allowed(self) -> bool:
        return self.code == 201


def eviction_answer(pod: Object, states: Sequence[BudgetState]) -> EvictionAnswer:
    """The answer for a pod of the API, by the statuses of the budgets in `states` that select it: the API server computes nothing."""
    phase = status_of(pod).get("phase")
    if not is_alive(pod) or phase == "Pending":
        what = "ending already" if is_ending(pod) else str(phase)
        return EvictionAnswer(201, f"the pod is {what}: no budget is asked")
    found = budgets_of(pod, states)
    if not found:
        return EvictionAnswer(201, "no budget selects it")
    if len(found) > 1:
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        keys = ", ".join(state.key for state in found)
        return EvictionAnswer(500, f"{why} ({keys})", keys, never=f"{len(found)} budgets select it: {keys}")
    state = found[0]
    return _unhealthy(pod, state) or _by_budget(pod, state)


def _unhealthy(pod: Object, state: BudgetState) -> EvictionAnswer | None:
    """What the unhealthyPodEvictionPolicy means for a pod; None if the budget decides."""
    if is_ready(pod):
        return None
    if state.policy == ALWAYS_ALLOW:
        return EvictionAnswer(201, f"the pod is not Ready, and {ALWAYS_ALLOW} lets such pods go", state.key)
    now = state.status.numbers
    if now.current_healthy >= now.desired_healthy > 0:
        why = f"the pod is not Ready, and the budget is met without it ({now.current_healthy} healthy, needs {now.desired_healthy})"
        return EvictionAnswer(201, why, state.key)
    return None


def _by_budget(pod: Object, state: BudgetState) -> EvictionAnswer:
    now, status, key = state.status.numbers, state.status, state.key
    if not state.caught_up:
        why = f"The disruption budget {state.name} is still being processed by the server."
        # A new budget that kube-controller-manager cannot compute never gets an observedGeneration.
        return EvictionAnswer(429, why, key, retry_after=_STALE_SECONDS, never=state.never)
    if now.disruptions_allowed < 0:
        return EvictionAnswer(403, "pdb disruptions allowed is negative", key)
    if len(now.disrupted) > _MOST_DISRUPTED:
        return EvictionAnswer(403, "DisruptedPods map too big - too many evictions not confirmed by PDB controller", key)
    if now.disruptions_allowed > 0:
        return EvictionAnswer(201, f"{state.name} allows {now.disruptions_allowed}, and this takes one of them", key, takes=True)
    if status.sync_failed and status.message:
        why = f"The disruption budget {state.name} does not allow evicting pods currently because it failed sync: {status.message}"
    elif now.current_healthy <= now.desired_healthy:
        why = f"The disruption budget {state.name} needs {now.desired_healthy} healthy pods and has {now.current_healthy} currently"
    elif status.message:
        why = f"The disruption budget {state.name} does not allow evicting pods currently ({status.reason}): {status.message}"
    else:
        why = f"The disruption budget {state.name} does not allow evicting pods currently"
    if not is_ready(pod):
        why += f"; the pod is not Ready, and with {state.policy} it goes only while the budget is met without it"
    return EvictionAnswer(429, why, key, never=state.never)
