"""The data keys of deploys/consolidate.py for a plan that is carried out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from roles.engine.inputs import Frozen, choice


class CarryOptions(Frozen):
    """What becomes of the nodes that go, and who is asked before."""

    then: Annotated[
        Literal["power_off", "cordon"],
        choice("then", "power_off", "cordon"),
        Field(
            description="what becomes of a node that is drained. `power_off`: it is powered off if its host has the data key `power`, and"
            " stays cordoned otherwise; `cordon`: it stays cordoned",
            examples=["cordon"],
        ),
    ] = "power_off"
    verify: Annotated[
        Literal["off", "scheduler"],
        Field(
            description="`scheduler`: before the run, and again before each node, the cluster's own kube-scheduler places the replacements"
            " in a copy of the cluster. A node does not go if one finds no place. By default `scheduler`; with --dry `off`",
            examples=["off"],
        ),
    ] = "scheduler"
