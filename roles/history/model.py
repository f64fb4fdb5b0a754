"""The options of a roll-back: which run to undo, and the consents."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from roles.engine.bridge import Remote, refusals
from roles.engine.inputs import Boolean, Frozen, Kubeconfig, read_model
from roles.engine.transaction import Refusal

_RUN = r"^r\d{8}-\d{6}-[0-9a-f]{4}$"


def _run(value: object) -> str:
    text = str(value)
    if not re.fullmatch(_RUN, text):
        raise ValueError(f"run={text} is not the name of a run (such as r20260131-235900-1a2b; deploys/changes.py lists them)")
    return text


class RollbackOptions(Frozen):
    """The data keys of deploys/rollback.py. `run`: None for the newest; `force`: undo also what was changed since; `allow_evictions`:
    undo also if that evicts pods; for runs on API objects `allow_restarts`, and `kubeconfig` for the API."""

    run: Annotated[
        str | None,
        BeforeValidator(_run),
        WithJsonSchema({"type": "string", "pattern": _RUN}),
        Field(description="the run to undo; default: the newest one", examples=["r20260131-235900-1a2b"]),
    ] = None
    force: Annotated[
        Boolean, Field(description="consent: undo also a file or a field of an object that was changed since", examples=[True])
    ] = False
    allow_evictions: Annotated[
        Boolean,
        Field(description="consent: undo also if pods would be evicted, or not admitted again by the restarted kubelet", examples=[True]),
    ] = False
    allow_restarts: Annotated[
        Boolean,
        Field(description="consent: undo a resize also if it restarts containers, by their resizePolicy", examples=[True]),
    ] = False
    kubeconfig: Kubeconfig = None


def read_rollback(remote: Remote) -> RollbackOptions:
    """The options, the same on every host of the run. Raises DeployError."""
    try:
        return read_model(remote.name, remote.data, RollbackOptions)
    except Refusal as refusal:
        raise refusals([refusal.text]) from None
