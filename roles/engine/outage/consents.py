"""The consents of a drain, which every deploy reads that drains nodes; and the second one, to delete pods past their budgets: the first
one names budgets, the second exactly the pods of a plan. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from roles.engine import table
from roles.engine.inputs import LIST_OR_TEXT, Boolean, Frozen, names
from roles.engine.kube import is_ready
from roles.engine.kube.names import namespaced_name, workload_name
from roles.engine.outage.model import MOST_SECONDS, BudgetShare, DrainPlan, PodFate

DEFAULT_SECONDS = 600


def _named(key: str, value: Any) -> tuple[str, ...]:
    """A list of NAMESPACE/NAME. Raises ValueError."""
    found = []
    for one in names(value) or ():
        namespace, _, name = one.partition("/")
        try:
            found.append(_deployment(one) if key == "surge" else namespaced_name(namespace, name, "shop/web"))
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return tuple(found)


def _deployment(text: str) -> str:
    """NAMESPACE/NAME of a Deployment, which may be written with its kind. Raises ValueError."""
    namespace, *_, name = workload_name(text, ("Deployment",)).split("/")
    return f"{namespace}/{name}"


def _surge(value: Any) -> bool | tuple[str, ...]:
    """true, false, or names of Deployments. Raises ValueError."""
    text = str(value).strip().lower()
    if isinstance(value, bool) or text in ("true", "false"):
        return text == "true"
    return _named("surge", value)


class DrainConsents(Frozen):
    """The consents of a drain. `drain_timeout` in seconds, for each pod."""

    allow_local_data: Annotated[
        Boolean, Field(description="consent: a drain evicts pods with emptyDir volumes too, whose data is lost", examples=[True])
    ] = False
    allow_unmanaged: Annotated[Boolean, Field(description="consent: a drain evicts pods that nothing recreates too", examples=[True])] = (
        False
    )
    allow_pending: Annotated[
        Boolean,
        Field(description="consent: a drain evicts pods too whose replacements no other node can take; they then wait", examples=[True]),
    ] = False
    surge: Annotated[
        bool | tuple[str, ...],
        BeforeValidator(_surge),
        WithJsonSchema({"type": ["boolean", "array", "string"], "items": {"type": "string"}}),
        Field(
            description="consent: Deployments with one replica get a second pod before the first one leaves: all of them, or only"
            " those named (NAMESPACE/deployment/NAME or NAMESPACE/NAME)",
            examples=[True, "shop/web,shop/api"],
        ),
    ] = False
    drain_timeout: Annotated[
        int,
        Field(
            ge=1,
            le=MOST_SECONDS,
            description="seconds for each pod of a drain, from its turn until it is gone and its replacement is Ready",
            examples=[1800],
        ),
    ] = DEFAULT_SECONDS
    max_grace: Annotated[
        int | None,
        Field(
            ge=1,
            le=MOST_SECONDS,
            description="consent: a drain gives pods that may take longer to end only so many seconds, whatever their"
            " terminationGracePeriodSeconds; then they are killed",
            examples=[300],
        ),
    ] = None
    ignore_budgets: Annotated[
        tuple[str, ...],
        BeforeValidator(lambda value: _named("ignore_budgets", value)),
        LIST_OR_TEXT,
        Field(
            description="consent: PodDisruptionBudgets (NAMESPACE/NAME) whose pods a drain deletes if the budget refuses their eviction;"
            " it needs a second one, `confirm_ignore`",
            examples=[["shop/web"], "shop/web,shop/db"],
        ),
    ] = ()
    confirm_ignore: Annotated[
        str,
        Field(
            pattern=r"^(pods-[0-9a-f]{8})?$",
            description="consent: the second one to `ignore_budgets`, for exactly the pods of a plan, which says it",
            examples=["pods-1f0c9a7e"],
        ),
    ] = ""

    @property
    def seconds(self) -> float:
        """For each pod, as it counts."""
        return self.limit("drain_timeout")


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
    return f"budget {share.key} ({share.why}): on {', '.join(node.name for node in plan.nodes)}, {'; '.join(parts)}. It has {healthy}"
