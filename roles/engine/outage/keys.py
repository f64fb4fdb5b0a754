"""The data keys that every deploy reads that drains nodes: its consents."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from roles.engine.inputs import LIST_OR_TEXT, Boolean, Frozen, names
from roles.engine.kube.names import namespaced_name
from roles.engine.outage.model import MOST_SECONDS
from roles.engine.timeouts import unless_set

DEFAULT_SECONDS = 600


def _named(key: str, value: Any) -> tuple[str, ...]:
    """A list of NAMESPACE/NAME. Raises ValueError."""
    found = []
    for one in names(value) or ():
        namespace, _, name = one.partition("/")
        try:
            found.append(namespaced_name(namespace, name, "shop/web"))
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return tuple(found)


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
            " those named (NAMESPACE/NAME)",
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
        return unless_set(self.drain_timeout, "drain_timeout" in self.model_fields_set)
