"""The data of deploys/drain.py and deploys/uncordon.py: which nodes, and the consents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from pydantic import Field

from roles.engine.inputs import Boolean, Frozen, Kubeconfig, Names, unmatched
from roles.engine.outage import DrainConsents
from roles.engine.proof import claimed_names

_Nodes = Annotated[
    Names,
    Field(
        description="the nodes, by their names in the inventory or in the cluster; without it, those that --limit chooses",
        examples=[["w1", "w2"], "w1,w2"],
    ),
]


class DrainOptions(DrainConsents):
    """The data keys of deploys/drain.py, with the consents of every drain."""

    nodes: _Nodes = None
    keep_cordon: Annotated[
        Boolean, Field(description="if the drain halts, the nodes stay cordoned, so that the same command continues later", examples=[True])
    ] = False
    verify: Annotated[
        Literal["off", "scheduler"],
        Field(
            description="`scheduler`: the cluster's own kube-scheduler first places the replacements in a copy of the cluster (a shadow"
            " control plane); the drain is refused if one finds no node",
            examples=["scheduler"],
        ),
    ] = "off"
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
        raise ValueError("nodes are named twice, by --data nodes= and by --limit: keep one of them")
    given = asked or tuple(limited)
    if not given:
        raise ValueError("no nodes are named: --data nodes=w1,w2, or --limit w1,w2")
    claimed = dict(claimed_names(by_host, by_host))
    if wrong := [f"{name}: {claimed[name]}" for name in given if name in claimed]:
        raise ValueError("; ".join(wrong))
    if problems := unmatched(given, {*by_host, *known}, "no host of the inventory and no node"):
        raise ValueError("; ".join(problems))
    return tuple(dict.fromkeys(by_host.get(name, name) for name in given))
