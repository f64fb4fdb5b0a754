"""The data keys of deploys/reboot.py."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from roles.engine.inputs import Boolean, Kubeconfig, OfNodes
from roles.engine.outage import DrainConsents

#: Seconds. Servers check memory and controllers for many minutes before their kernel starts.
REBOOT_SECONDS = 1200


class RebootOptions(OfNodes, DrainConsents):
    """Which nodes of a run reboot, how long daytwo waits for them, and the consents of their drains."""

    allow_unneeded: Annotated[Boolean, Field(description="consent: also reboot nodes that do not need it", examples=[True])] = False
    reboot_timeout: Annotated[
        int,
        Field(
            ge=10,
            le=86400,
            description="seconds from the order to reboot until the node answers SSH in a new boot, and as long again until it is proven;"
            " after that the run halts. Servers check their memory and controllers first",
            examples=[1800],
        ),
    ] = REBOOT_SECONDS
    kubeconfig: Kubeconfig = None
