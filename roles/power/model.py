"""The data keys of deploys/power.py."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from roles.engine.inputs import Boolean, Kubeconfig, Names
from roles.engine.inputs.values import TableOrJson
from roles.engine.outage import DrainConsents

#: Seconds. An orderly shutdown ends pods and units, each with its own patience, and a Node is NotReady 50 s after its last lease. Servers
#: check memory and controllers for many minutes before their kernel starts.
OFF_SECONDS, ON_SECONDS = 900, 1200


class PowerOptions(DrainConsents):
    """What is turned off or on; without either, the deploy shows the power of all hosts."""

    power_off: Annotated[
        Names, Field(description="the hosts to drain and turn off, by their names in the inventory", examples=[["w1", "w2"], "w1,w2"])
    ] = None
    power_on: Annotated[
        Names, Field(description="the hosts to turn on, prove and uncordon, by their names in the inventory", examples=["w1,w2"])
    ] = None
    force_off: Annotated[
        Names,
        Field(
            description="consent: the power of these hosts of `power_off` may be cut if they hang in their shutdown until off_timeout",
            examples=["w1"],
        ),
    ] = None
    allow_needed: Annotated[
        Boolean,
        Field(
            description="consent: hosts of `power_off` may be those that a consolidation has left on for the pods of the nodes that it took"
            " out",
            examples=[True],
        ),
    ] = False
    reason: Annotated[
        str, Field(max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$", description="why, for the mark on the node", examples=["for the night"])
    ] = ""
    off_timeout: Annotated[
        int,
        Field(
            ge=10,
            le=86400,
            description="seconds from the order to shut down until all witnesses say off. After that the run halts, or cuts the power with"
            " `force_off` and waits as long again",
            examples=[1800],
        ),
    ] = OFF_SECONDS
    on_timeout: Annotated[
        int,
        Field(
            ge=10,
            le=86400,
            description="seconds from power on until the host answers SSH, and as long again until its node is proven; after that the run"
            " halts, and the node stays cordoned",
            examples=[1800],
        ),
    ] = ON_SECONDS
    kubeconfig: Kubeconfig = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.power_off is not None and self.power_on is not None:
            raise ValueError("power_off and power_on are both given: one run turns nodes off or on")
        if strange := sorted(set(self.force_off or ()) - set(self.power_off or ())):
            raise ValueError(f"force_off: {', '.join(strange)} is not in power_off")
        return self

    @property
    def reads_only(self) -> bool:
        return self.power_off is None and self.power_on is None


class PowerData(PowerOptions):
    """All data keys of deploys/power.py. Other deploys that turn machines off or on have a `format` of their own."""

    format: TableOrJson = "table"

    @model_validator(mode="after")
    def _shows(self) -> Self:
        if self.format == "json" and not self.reads_only:
            raise ValueError("format=json shows the power of all hosts, and cannot be given with power_off or power_on")
        return self
