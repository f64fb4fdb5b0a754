"""What an operator asks of the history: which run is to be undone, and with which consent."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from roles.engine.bridge import Remote, refusals
from roles.engine.inputs import Boolean, sentences

_RUN = r"^r\d{8}-\d{6}-[0-9a-f]{4}$"


def _run(value: object) -> str:
    text = str(value)
    if not re.fullmatch(_RUN, text):
        raise ValueError(f"run={text} is not the name of a run (such as r20260131-235900-1a2b; deploys/changes.py lists them)")
    return text


class RollbackOptions(BaseModel):
    """The data keys of deploys/rollback.py. `run`: None for the newest one; `force`: also where a file or a field was changed since;
    `allow_evictions`: also where pods would have to go for it; of a run on API objects `allow_restarts`, and `kubeconfig` for the API."""

    model_config = ConfigDict(frozen=True)

    run: Annotated[
        str | None,
        BeforeValidator(_run),
        WithJsonSchema({"type": "string", "pattern": _RUN}),
        Field(description="the run that is undone; without it the newest one", examples=["r20260131-235900-1a2b"]),
    ] = None
    force: Annotated[
        Boolean, Field(description="consent: also where a file or a field of an object was changed since", examples=[True])
    ] = False
    allow_evictions: Annotated[
        Boolean, Field(description="consent: also where pods would have to go for the settings of before", examples=[True])
    ] = False
    allow_restarts: Annotated[
        Boolean,
        Field(
            description="consent: also containers that are restarted when a resize is undone, as their resizePolicy has it", examples=[True]
        ),
    ] = False
    kubeconfig: Annotated[
        str | None,
        WithJsonSchema({"type": "string"}),
        Field(
            description="a file on the operator's machine whose identity is used, instead of the control plane's own",
            examples=["~/.kube/config"],
        ),
    ] = None


def read_rollback(remote: Remote) -> RollbackOptions:
    """Raises DeployError. The keys are those of a run: any host of it has them."""
    values = {key: remote.data(key) for key in RollbackOptions.model_fields}
    try:
        return RollbackOptions(**{key: value for key, value in values.items() if value is not None})
    except ValidationError as error:
        raise refusals(sentences(error)) from None
