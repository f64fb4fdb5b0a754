"""The data keys that all deploys with changes read: pace, time limits, consents."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from roles.engine.bridge import Remote, refusing
from roles.engine.inputs import Boolean, Changes, Names, read_model
from roles.engine.runs.pace import Pace, parse_max_unavailable
from roles.engine.timeouts import LEAST, MOST, parse
from roles.engine.transaction import Refusal
from roles.engine.transaction.model import LEAST_CONFIRM_SECONDS


class Options(BaseModel):
    """`confirm_timeout`, `soak` in seconds; `max_unavailable` a number or a percentage of workers; `take_over` the run whose lock is taken
    over, after its holder died; `patience` how many times longer than usual everything may take (roles/engine/timeouts.py);
    `skip_unreachable` leaves out workers that do not answer; `allow_unproven` continues if something cannot be proven; `allow_new_binary`
    lets a restart start another binary than the one that runs; `allow_skew_of`: nodes outside the inventory whose versions may violate the
    skew policy; `allow_pairs`: pairs of settings that need not fit; `persist`: settings that all nodes share are also written to kubeadm's
    ConfigMaps, on clusters that kubeadm created."""

    model_config = ConfigDict(frozen=True)

    confirm_timeout: Annotated[
        int | None,
        Field(
            ge=LEAST_CONFIRM_SECONDS,
            le=86400,
            description="seconds from the first touch of a node until the node itself reverts an unconfirmed change. By default 210 for a"
            " kubelet and 360 for a control-plane component; the soak is added",
            examples=[600],
        ),
    ] = None
    soak: Annotated[
        int,
        Field(ge=0, le=86400, description="seconds to watch the canary, still unconfirmed, before the other nodes change", examples=[120]),
    ] = 0
    max_unavailable: Annotated[
        str,
        BeforeValidator(parse_max_unavailable),
        WithJsonSchema({"type": ["integer", "string"], "minimum": 1, "pattern": "^([1-9][0-9]*|[1-9][0-9]?%|100%)$"}),
        Field(
            description="how many workers may change at the same time after the canary: a number, or a percentage of the workers of the"
            " run (rounded down, at least one)",
            examples=[2, "25%"],
        ),
    ] = "1"
    take_over: Annotated[
        str,
        Field(
            description="the run whose lock to take over, if its operator's side is gone; the refusal names it",
            examples=["r20260131-235900-1a2b"],
        ),
    ] = ""
    patience: Annotated[
        float,
        BeforeValidator(parse),
        WithJsonSchema({"type": "number", "minimum": LEAST, "maximum": MOST}),
        Field(
            description="how many times longer than usual everything may take, for nodes that are emulated or short of processor time",
            examples=[10],
        ),
    ] = LEAST
    skip_unreachable: Annotated[
        bool,
        Field(
            description="consent: leave out workers that do not answer, and end with exit status 1; a control-plane node is never left out",
            examples=[True],
        ),
    ] = False
    allow_unproven: Annotated[
        bool, Field(description="consent: continue if something cannot be proven; the table then says NOT PROVEN", examples=[True])
    ] = False
    allow_new_binary: Annotated[
        Boolean,
        Field(
            description="consent: a restart may start another binary of a kubelet or a component than the one that runs, because its file"
            " or its image was replaced meanwhile. No revert brings the old binary back",
            examples=[True],
        ),
    ] = False
    allow_skew_of: Annotated[
        Names,
        Field(
            description="consent: the versions of these nodes, which are outside the inventory, may violate the version skew policy",
            examples=["edge-1,edge-2", ["edge-1"]],
        ),
    ] = None
    allow_pairs: Annotated[
        Names,
        Field(
            description="consent: continue although these settings do not fit what they must fit; names of pairs, as the refusal has them"
            " (docs/reference/pairs.md)",
            examples=[["services-apart-from-pods"], "services-apart-from-pods,pods-trust-the-api"],
        ),
    ] = None
    persist: Annotated[
        Boolean,
        Field(
            description="write the settings to kubeadm's ConfigMaps too, so that the next `kubeadm upgrade` keeps them; false leaves the"
            " ConfigMaps unchanged",
            examples=[False],
        ),
    ] = True

    @property
    def pace(self) -> Pace:
        return Pace(self.max_unavailable, self.soak)


#: By key, the least that a deploy changes if it reads the key; a test compares it with the models.
READ_FROM = {
    "patience": Changes.NOTHING,
    "skip_unreachable": Changes.DAYTWO,
    "take_over": Changes.OBJECTS,
    **dict.fromkeys(("soak", "max_unavailable", "allow_unproven", "allow_new_binary", "allow_skew_of", "allow_pairs"), Changes.BOOTS),
    **dict.fromkeys(("confirm_timeout", "persist"), Changes.NODES),
}


def read_options(remotes: list[Remote]) -> Options:
    """The options of a run. Raises DeployError if a value is invalid, or if two hosts have different values."""
    with refusing(Refusal):
        return _read(remotes)


def _read(remotes: list[Remote]) -> Options:
    found: dict[Options, str] = {}
    for remote in remotes:
        found.setdefault(read_model(remote.name, remote.data, Options), remote.name)
    if len(found) > 1:
        (one, first_host), (other, second_host) = list(found.items())[:2]
        keys = [key for key in Options.model_fields if getattr(one, key) != getattr(other, key)]
        raise Refusal(second_host, f"{', '.join(keys)} is not the same as on {first_host}", "set the same value for all hosts")
    return next(iter(found), Options())
