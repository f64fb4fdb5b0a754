"""The data keys of deploys/autoscaler_status.py."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from roles.engine.inputs import Frozen, Kubeconfig, Names


class StatusOptions(Frozen):
    """The data keys of deploys/autoscaler_status.py."""

    format: Annotated[
        Literal["table", "json"], Field(description="a table, or one JSON document on standard output", examples=["json"])
    ] = "table"
    namespaces: Annotated[Names, Field(description="only the autoscalers of these namespaces", examples=[["shop"], "shop,web"])] = None
    kubeconfig: Kubeconfig = None
