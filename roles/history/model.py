"""The options of the list of changes and of a roll-back: which runs, and the consents."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from roles.engine.bridge import Remote, refusals
from roles.engine.inputs import Boolean, Frozen, Kubeconfig, Names, read_model
from roles.engine.inputs.values import TableOrJson
from roles.engine.runs import ChangeReport, Document
from roles.engine.transaction import Refusal

_RUN = r"^r[0-9]{8}-[0-9]{6}-[0-9a-f]{4}$"


def _run(value: object) -> str:
    text = str(value)
    if not re.fullmatch(_RUN, text):
        raise ValueError(f"run={text} is not the name of a run (such as r20260131-235900-1a2b; deploys/changes.py lists them)")
    return text


_Run = Annotated[str | None, BeforeValidator(_run), WithJsonSchema({"type": "string", "pattern": _RUN})]
_SINCE = r"^[1-9][0-9]{0,4}[mhd]$"
_SECONDS = {"m": 60, "h": 3600, "d": 86400}


def _since(value: object) -> str:
    if not re.fullmatch(_SINCE, str(value)):
        raise ValueError(f"since={value} is no age; write a number and m, h or d: 90m, 36h, 7d")
    return str(value)


class ChangesOptions(Frozen):
    """The data keys of deploys/changes.py, which choose the runs that are listed. What is not over is always listed."""

    run: Annotated[_Run, Field(description="list this run alone", examples=["r20260131-235900-1a2b"])] = None
    since: Annotated[
        str | None,
        BeforeValidator(_since),
        WithJsonSchema({"type": "string", "pattern": _SINCE}),
        Field(description="list only runs of this age or younger, in minutes, hours or days", examples=["36h", "7d"]),
    ] = None
    last: Annotated[int, Field(ge=1, le=10000, description="list so many runs, the newest", examples=[100])] = 20

    nodes: Annotated[Names, Field(description="list only changes of these hosts", examples=[["w1"], "w1,w2"])] = None
    format: TableOrJson = "table"

    @property
    def seconds(self) -> float | None:
        return None if self.since is None else int(self.since[:-1]) * _SECONDS[self.since[-1]]


class ChangesReport(Document):
    """The JSON document of deploys/changes.py."""

    form: Literal[1] = 1
    changes: tuple[ChangeReport, ...] = Field(description="the newest last")
    not_listed: int = Field(description="runs that `last`, `since` or `run` leave out; 0 with `nodes`")
    would_undo: tuple[str, ...] = Field(description="what deploys/rollback.py would undo without a name")
    warnings: tuple[str, ...] = Field(description="records that are not believed, or cannot be used")
    not_known: str | None = Field(description="why it is not known which run is the newest")
    failures: tuple[str, ...] = Field(description="nodes that could not be read; then the exit status is 1")


class RollbackOptions(Frozen):
    """The data keys of deploys/rollback.py. `run`: None for the newest; `force`: undo also what was changed since; `allow_evictions`:
    undo also if that evicts pods; for runs on API objects `allow_restarts`, and `kubeconfig` for the API."""

    run: Annotated[_Run, Field(description="the run to undo; default: the newest one", examples=["r20260131-235900-1a2b"])] = None
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
