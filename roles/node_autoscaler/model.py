"""The data keys of deploys/node_autoscaler.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field

from roles.consolidation import hours
from roles.engine.inputs import TEXT, Boolean, Frozen, Kubeconfig, choice
from roles.engine.inputs.values import file_path
from roles.node_autoscaler.decision import Limits

_UTC = ZoneInfo("UTC")


def _checked(value: object) -> str:
    """Raises ValueError."""
    text = str(value).strip()
    if text:
        hours.parse_hours(text, _UTC)
    return text


class NodeAutoscalerOptions(Frozen):
    """How the loop decides, and how often."""

    watch: Annotated[
        Boolean, Field(description="pass after pass, until it is stopped (SIGTERM, Ctrl-C); without it, one pass", examples=[True])
    ] = False
    pass_interval: Annotated[int, Field(ge=5, le=3600, description="with `watch`: seconds between two passes", examples=[30])] = 60
    idle: Annotated[
        int,
        Field(ge=60, le=7 * 86400, description="seconds that a node must not have been needed before it is taken away", examples=[3600]),
    ] = 1800
    cool_down: Annotated[
        int,
        Field(
            ge=0,
            le=86400,
            description="seconds without a consolidation after machines were woken, and before what failed is tried again, twice as long"
            " after each further failure",
            examples=[1200],
        ),
    ] = 600
    nodes_at_once: Annotated[
        int, Field(ge=1, le=100, description="nodes that one consolidation takes away, of each failure domain one at most", examples=[2])
    ] = 1
    spare_nodes: Annotated[
        int,
        Field(ge=0, le=1000, description="so many nodes more than the pods need stay: that many may fail, and all pods run", examples=[2]),
    ] = 1
    hours: Annotated[
        str,
        BeforeValidator(_checked),
        Field(
            description="when nodes may be taken away, in UTC, with days or without; machines are woken at any time",
            examples=["Mo-Fr 19:00-07:00"],
        ),
    ] = ""
    verify: Annotated[
        Literal["off", "scheduler"],
        choice("verify", "off", "scheduler"),
        Field(
            description="`scheduler`: before a machine is woken, the cluster's own kube-scheduler places the pods in a copy of the cluster",
            examples=["off"],
        ),
    ] = "scheduler"
    metrics: Annotated[
        Path | None,
        file_path("metrics", "/var/lib/node_exporter/daytwo.prom"),
        TEXT,
        Field(
            description="a path on the operator's machine for metrics in Prometheus' text form, for the textfile collector",
            examples=["/var/lib/node_exporter/daytwo.prom"],
        ),
    ] = None
    kubeconfig: Kubeconfig = None

    @property
    def limits(self) -> Limits:
        when = hours.parse_hours(self.hours, _UTC) if self.hours else None
        return Limits(float(self.idle), float(self.cool_down), self.nodes_at_once, self.spare_nodes, when)
