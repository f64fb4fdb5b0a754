"""What every deploy does around its own work: check data keys, read its data, refuse unreachable hosts, work once, end as it ended.

    @deploying("Audit", one(Asked))
    def audit(fleet: Fleet, asked: Asked) -> int:
        \"\"\"Show what is wrong on the nodes of the run.\"\"\"

    @deploying("Feature gates", read)  # read(fleet): what is wanted of each host; raises DeployError
    def feature_gates(fleet: Fleet, gates: FeatureGates) -> Turns:
        return change_nodes("feature gates", fleet, gates)  # the engine: nodes.py

The work is done once for the whole run, in the turn of the host that comes first; a refusal in it stops pyinfra before any node is
written to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from roles.engine import bridge
from roles.engine.bridge import Fleet, Remote
from roles.engine.inputs import sentences
from roles.engine.rollout.data_keys import unknown_key_refusals
from roles.engine.rollout.locked_run import LockedRun

W = TypeVar("W")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Turns:
    """What the hosts do when it is their turn: `work` on each of `hosts`, True where it succeeded. pyinfra shows `name` where there is
    something to do, and `what` where there is not."""

    hosts: Collection[str]
    work: Callable[[str], bool]
    what: str
    name: str

    @classmethod
    def of(cls, run: LockedRun, fleet: Fleet, what: str, name: str) -> Turns:
        """Each host that a run involves waits for what it answers for."""
        return cls([remote.name for remote in fleet.targets if run.involves(remote.name)], run.result, what, name)


#: How a deploy goes on once its work is done: with its hosts' turns, with an exit status of its own, or (None) no further.
Continuation = Turns | int | None


def no_data(_: Fleet) -> None:
    """For a deploy that reads no data."""


def deploying(
    title: str, read: Callable[[Fleet], W], *, all_reachable: bool = False, of_cluster: bool = False
) -> Callable[[Callable[[Fleet, W], Continuation]], Callable[[], None]]:
    """Makes a deploy of a function that gets the hosts and what `read` makes of their data, and returns how to go on.

    `all_reachable`: a host that is unreachable is refused. (Without, the work shows it as not read.) `of_cluster`: the data of all hosts
    count, also of those that --limit leaves out. The deploy raises DeployError where anything is refused; first, before a command runs on
    any host, where a host's data has a key that no deploy reads.
    """

    def decorate(work: Callable[[Fleet, W], Continuation]) -> Callable[[], None]:
        def prepare(fleet: Fleet) -> Continuation:
            bridge.stop(unknown_key_refusals(fleet, of_cluster))
            bridge.stop(unreachable(fleet) if all_reachable else ())
            return work(fleet, read(fleet))

        @functools.wraps(work)
        def face() -> None:
            outcome = bridge.once(title, prepare)
            if isinstance(outcome, Turns):
                bridge.drive(outcome.what, bridge.current_host() in outcome.hosts, outcome.work, name=outcome.name)
            elif outcome is not None:
                bridge.leave(outcome)

        return bridge.as_deploy(title, face)

    return decorate


def unreachable(fleet: Fleet) -> list[str]:
    """Why not to go on where hosts of the run did not answer."""
    return [f"{remote.name}: unreachable; fix the connection, or exclude it with --limit" for remote in fleet.unreachable]


def one(model: type[M]) -> Callable[[Fleet], M]:
    """Reads the data keys of a model that are the whole run's."""

    def read(fleet: Fleet) -> M:
        try:
            return same(fleet.targets, model)
        except ValueError as error:
            raise bridge.refuse(str(error)) from None

    return read


def same(remotes: Iterable[Remote], model: type[M]) -> M:
    """The data keys of a model, which say the same on all hosts. Raises ValueError."""
    given = {key: {remote.data(key) for remote in remotes} for key in model.model_fields}
    for key, values in given.items():
        if len(values) > 1:
            raise ValueError(f"{key} is not the same on all hosts: {', '.join(sorted(map(str, values)))}; give it by --data")
    try:
        return model(**{key: value for key, values in given.items() for value in values if value is not None})
    except ValidationError as error:
        raise ValueError("; ".join(sentences(error))) from None
