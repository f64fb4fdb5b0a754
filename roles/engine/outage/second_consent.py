"""The second consent to delete pods past their budgets: the first one names budgets, this one exactly the pods of a plan. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

from roles.engine.kube import is_ready
from roles.engine.outage.keys import DrainConsents
from roles.engine.outage.model import BudgetShare, DrainPlan, PodFate
from roles.engine.rollout import table


def past_budgets(plan: DrainPlan, consents: DrainConsents) -> list[PodFate]:
    """The pods that leave and that the drain may delete past their budgets: those that are refused now, and those that may be refused in
    their turn."""
    named = consents.ignore_budgets
    return [one for one in plan.pods if one.fate in ("deleted", "evicted") and one.budgets and all(key in named for key in one.budgets)]


def second_consent(pods: Collection[PodFate]) -> str:
    """The second consent: for these budgets and these pods, by their UIDs. It begins with a letter: pyinfra reads `1e5` as a number."""
    lines = sorted({" ".join((*sorted(one.budgets), one.name, one.uid)) for one in pods})
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"pods-{digest[:8]}"


def ask_again(plans: Iterable[DrainPlan], consents: DrainConsents) -> list[str]:
    """What the drains of a run would do past budgets, and the consent that is missing; empty if it was given, or if they do no such thing.
    For plans without refusals: another consent may add pods."""
    plans = list(plans)
    pods = {one.uid: one for plan in plans for one in past_budgets(plan, consents)}
    code = second_consent(pods.values())
    if not pods or consents.confirm_ignore == code:
        return []
    effects = [text for plan in plans for share in plan.budgets if (text := _effect(plan, share, consents))]
    other = f" (confirm_ignore={consents.confirm_ignore} is for other pods)" if consents.confirm_ignore else ""
    what = "exactly this pod" if len(pods) == 1 else f"exactly these {len(pods)} pods"
    return [*dict.fromkeys(effects), f"ignore_budgets needs a second consent, for {what}: add --data confirm_ignore={code}{other}"]


def _effect(plan: DrainPlan, share: BudgetShare, consents: DrainConsents) -> str:
    own = [one for one in past_budgets(plan, consents) if share.key in one.budgets]
    if not own:
        return ""
    now, later = ([one.name for one in own if one.fate == fate] for fate in ("deleted", "evicted"))
    parts = [f"{', '.join(now)} would be deleted"] if now else []
    parts += [f"{', '.join(later)} would be evicted, or deleted if still refused after {consents.seconds:g} s"] if later else []
    left = max(0, share.healthy - sum(is_ready(one.pod) for one in own))
    healthy = f"{table.counted(share.healthy, 'healthy pod')}, at worst {left} until the replacements are Ready"
    return f"budget {share.key} ({share.why}): on {', '.join(node.name for node in plan.nodes)}, {'; '.join(parts)}; it has {healthy}"
