"""What the cluster's own scheduler says of a drain before it begins, in a shadow control plane."""

from __future__ import annotations

from roles.engine import bridge
from roles.engine.disruption import DisruptionObjects
from roles.engine.outage import DrainConsents, DrainPlan, places
from roles.engine.proof import Survey
from roles.engine.screen import wrapped
from roles.engine.shadow import Move, ShadowError, Verdict, shadow_control_plane

_HOW = "verify=scheduler"


def ask_scheduler(found: Survey, live: DisruptionObjects, plan: DrainPlan) -> Verdict:
    """Where kube-scheduler puts the replacements, wave by wave. `live` has all kinds of KINDS_OF_SHADOW. Raises DeployError if it cannot be
    asked."""
    with bridge.refusing(ShadowError, f"{_HOW}: "), shadow_control_plane(found.observed.values(), live.objects) as shadow:
        return shadow.ask(waves(plan, live), cordon=[node.name for node in plan.nodes])


def waves(plan: DrainPlan, live: DisruptionObjects) -> list[list[Move]]:
    """The moves of a drain, for a shadow control plane."""
    return [[Move(one.pod, new, first=one.fate == "surged") for one, new in wave] for wave in places.replacements(plan, live)]


def refusals(verdict: Verdict, consents: DrainConsents) -> list[str]:
    """Why the drain must not begin: a replacement finds no node."""
    if consents.allow_pending:
        return []
    return [
        f"pod {one.name}: kube-scheduler finds no node for its replacement, as a shadow control plane shows: {one.why}. Make room, drain"
        " fewer nodes, or allow it with --data allow_pending=true"
        for one in verdict.of("pending")
    ]


def text(verdict: Verdict) -> str:
    """Its answer, for the plan."""
    doubts = [*verdict.of("pending"), *verdict.of("not judged")]
    return "\n".join(["", wrapped(str(verdict)), *(wrapped(f"WARNING: {_HOW}: {one}") for one in doubts)])
