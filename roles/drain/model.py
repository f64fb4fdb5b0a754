"""The data of deploys/drain.py and deploys/uncordon.py: which nodes, and the consents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from roles.engine.draining import DrainConsents
from roles.engine.inputs import LIST_OR_TEXT, Boolean, Frozen, Kubeconfig, Names, names
from roles.engine.object_changes import did_you_mean, namespaced_name
from roles.engine.timeouts import unless_set

DEFAULT_SECONDS = 600


def _objects(key: str, example: str) -> BeforeValidator:
    """Reads a list of NAMESPACE/NAME."""

    def read(value: Any) -> tuple[str, ...]:
        found = []
        for one in names(value) or ():
            namespace, _, name = one.partition("/")
            try:
                found.append(namespaced_name(namespace, name, example))
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
        return tuple(found)

    return BeforeValidator(read)


def _surge(value: Any) -> Any:
    """true, false, or names of Deployments."""
    if isinstance(value, bool) or value is None:
        return bool(value)
    text = value.strip().lower() if isinstance(value, str) else ""
    if text in ("true", "false"):
        return text == "true"
    found = []
    for one in names(value) or ():
        namespace, _, name = one.partition("/")
        try:
            found.append(namespaced_name(namespace, name, "shop/web"))
        except ValueError as error:
            raise ValueError(f"surge: {error}; or write true for all Deployments with one replica") from None
    return tuple(found)


_Nodes = Annotated[
    Names,
    Field(
        description="the nodes, by their names in the inventory or in the cluster; without it, those that --limit chooses",
        examples=[["w1", "w2"], "w1,w2"],
    ),
]


class DrainConsentKeys(Frozen):
    """The consents of a drain, in every deploy that drains nodes. `drain_timeout` in seconds, for each pod."""

    allow_local_data: Annotated[
        Boolean, Field(description="consent: evict pods with emptyDir volumes, whose data is lost", examples=[True])
    ] = False
    allow_unmanaged: Annotated[Boolean, Field(description="consent: evict pods that nothing recreates", examples=[True])] = False
    allow_pending: Annotated[
        Boolean,
        Field(description="consent: evict pods also if no other node can take their replacements, which then wait", examples=[True]),
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
            ge=1, le=86400, description="seconds for each pod, from its turn until it is gone and its replacement is Ready", examples=[1800]
        ),
    ] = DEFAULT_SECONDS
    ignore_budgets: Annotated[
        tuple[str, ...],
        _objects("ignore_budgets", "shop/web"),
        LIST_OR_TEXT,
        Field(
            description="consent: PodDisruptionBudgets (NAMESPACE/NAME) whose pods are deleted if the budget refuses their eviction",
            examples=[["shop/web"], "shop/web,shop/db"],
        ),
    ] = ()

    @property
    def consents(self) -> DrainConsents:
        return DrainConsents(
            allow_local_data=self.allow_local_data,
            allow_unmanaged=self.allow_unmanaged,
            allow_pending=self.allow_pending,
            surge=self.surge,
            ignore_budgets=self.ignore_budgets,
            seconds=unless_set(self.drain_timeout, "drain_timeout" in self.model_fields_set),
        )


class DrainOptions(DrainConsentKeys):
    """The data keys of deploys/drain.py."""

    nodes: _Nodes = None
    keep_cordon: Annotated[
        Boolean, Field(description="if the drain halts, the nodes stay cordoned, so that the same command continues later", examples=[True])
    ] = False
    kubeconfig: Kubeconfig = None


class UncordonOptions(Frozen):
    """The data keys of deploys/uncordon.py."""

    nodes: _Nodes = None
    force: Annotated[Boolean, Field(description="consent: also remove a cordon that daytwo did not set", examples=[True])] = False
    kubeconfig: Kubeconfig = None


def chosen_nodes(
    asked: tuple[str, ...] | None, limited: Collection[str], by_host: Mapping[str, str], known: Collection[str]
) -> tuple[str, ...]:
    """The names of the Nodes. `asked`: the data key; `limited`: the hosts that --limit chose, none without --limit; `by_host`: the node of
    each host that was read; `known`: all nodes of the cluster. Raises ValueError.

    Neither of both is refused: without names, a command that takes nodes out must not mean all of them.
    """
    if asked and limited:
        raise ValueError("name the nodes once: with --data nodes=..., or with --limit")
    given = asked or tuple(limited)
    if not given:
        raise ValueError("no nodes are named: --data nodes=w1,w2, or --limit w1,w2")
    unknown = [name for name in given if name not in by_host and name not in known]
    if unknown:
        names_of_all = sorted({*by_host, *known})
        raise ValueError(
            "; ".join(f"{name!r} is no host of the inventory and no node{did_you_mean(name, names_of_all)}" for name in unknown)
        )
    return tuple(dict.fromkeys(by_host.get(name, name) for name in given))
