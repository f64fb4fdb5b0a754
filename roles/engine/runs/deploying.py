"""The common frame of every deploy: check data keys, refuse unreachable hosts, read its data, work once, end with the result.

    @deploying("Audit", one(AuditOptions))
    def audit(fleet: Fleet, options: AuditOptions) -> Ended:
        \"\"\"Show what is wrong on the nodes of the run.\"\"\"

    @deploying("Feature gates", read)  # read(fleet): the desired state of each host; raises DeployError
    def feature_gates(fleet: Fleet, gates: FeatureGates) -> Turns:
        return change_nodes(fleet, gates)  # the engine: roles/engine/node_changes

The work is done once for the whole run, in the turn of the first host. If it refuses, pyinfra stops before it writes to any node.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

from roles.engine import bridge
from roles.engine.bridge import Fleet, Remote
from roles.engine.inputs import read_common, unmatched
from roles.engine.runs.data_keys import unknown_key_refusals, unread_keys, wider_than_asked
from roles.engine.runs.locked_run import LockedRun
from roles.engine.runs.options import Options, read_options
from roles.engine.table import NOT_PROVEN
from roles.engine.transaction import Refusal
from roles.engine.voice import conclude, show

W = TypeVar("W")
M = TypeVar("M", bound=BaseModel)

#: The exit status of a run that is done, and whose operator has accepted that not all of it is proven.
UNPROVEN = 3


@dataclass(frozen=True)
class Turns:
    """What each host does in its turn: `work` on each of `hosts`, True if it succeeded. pyinfra shows `name`. The others have nothing to
    do."""

    hosts: Collection[str]
    work: Callable[[str], bool]
    name: str

    @classmethod
    def of(cls, run: LockedRun, fleet: Fleet, name: str) -> Turns:
        """Each host that a run involves waits for its own result."""
        return cls({remote.name for remote in fleet.targets if run.involves(remote.name)}, run.result, name)


@dataclass(frozen=True)
class Ended:
    """A deploy that has done all in its preparation: its last line ("": standard output is a document), and its exit status."""

    line: str
    code: int = 0


#: What follows the work of a deploy.
Continuation = Turns | Ended
#: The last line of a run without a step.
NOTHING_TO_DO = "NOTHING TO DO: it is as asked already"


def no_data(_: Fleet) -> None:
    """For a deploy that reads no data."""


def deploying(
    title: str, read: Callable[[Fleet], W], *, all_reachable: bool = False, of_cluster: bool = False
) -> Callable[[Callable[[Fleet, W], Continuation]], Callable[[], None]]:
    """Turns a function into a deploy. The function gets the hosts and what `read` returns for their data; it returns what follows.

    `all_reachable`: an unreachable host is refused, as `unreachable` says. (Otherwise the work reports it as not read.) `of_cluster`: the
    data of all hosts count, including those that --limit leaves out. The deploy raises DeployError if anything is refused; first, before a
    command runs on any host, if a host's data has a key that no deploy reads, or an old name that chose a part of this deploy's work, or
    --data one that this deploy does not read. `work` has the
    name of its file in deploys/, by which its models are registered.
    """

    def decorate(work: Callable[[Fleet, W], Continuation]) -> Callable[[], None]:
        def prepare(fleet: Fleet) -> Continuation:
            deploy = work.__name__
            bridge.stop([*unknown_key_refusals(fleet, of_cluster, deploy), *unread_keys(fleet, deploy), *wider_than_asked(fleet, deploy)])
            bridge.stop(unreachable(fleet) if all_reachable else ())
            outcome = work(fleet, read(fleet))
            if line := outcome.line if isinstance(outcome, Ended) else "" if outcome.hosts else NOTHING_TO_DO:
                conclude(line)
            return outcome

        @functools.wraps(work)
        def face() -> None:
            outcome = bridge.run_once(title, prepare)
            if isinstance(outcome, Turns):
                if bridge.current_host() in outcome.hosts:
                    bridge.as_deploy(title, lambda: bridge.run_on_host(outcome.work, name=outcome.name))()
            elif outcome.code:
                bridge.exit_with(outcome.code)

        return face

    return decorate


def unreachable(fleet: Fleet) -> list[str]:
    """The refusals of a change for hosts of the run that do not answer; with skip_unreachable only for those that it cannot do without.
    Raises DeployError for invalid options."""
    if not fleet.unreachable:
        return []
    skip, found = read_options(fleet.targets).skip_unreachable, []
    for remote in fleet.unreachable:
        if remote.is_control_plane:
            found.append(f"{remote.unreachable}; no change begins before every control-plane node can be read: fix the connection")
        elif remote.name == fleet.lock_host.name:
            found.append(f"{remote.unreachable}; it keeps the cluster's lock, so no change begins without it: fix the connection")
        elif not skip:
            found.append(f"{remote.unreachable}; fix the connection, or leave the host out with --data skip_unreachable=true or --limit")
    return found


def no_such_host(remotes: Sequence[Remote], asked: Iterable[str] | None) -> list[str]:
    """A sentence for each host that the data key `nodes` names and that is not one of these."""
    # A host may have the name of a group, as a file of an inventory gives its own to all its hosts: then the host is meant.
    hosts, found, others = [remote.name for remote in remotes], [], []
    for name in dict.fromkeys(asked or ()):
        if name not in hosts and (members := [remote.name for remote in remotes if name in remote.groups]):
            found.append(f"nodes: {name!r} is a group, and nodes= has names of hosts: nodes={','.join(members)}, or --limit {name}")
        else:
            others.append(name)
    return [*found, *(f"nodes: {text}" for text in unmatched(others, hosts, "no host of this run"))]


def one(model: type[M]) -> Callable[[Fleet], M]:
    """Reads the data keys of a model that apply to the whole run: hosts that have a key must have the same value."""

    def read(fleet: Fleet) -> M:
        with bridge.refusing(Refusal):
            return same(fleet.targets, model)

    return read


def with_options(model: type[M]) -> Callable[[Fleet], tuple[Options, M]]:
    """Reads the options of the run too."""
    return lambda fleet: (read_options(fleet.targets), one(model)(fleet))


def same(remotes: Iterable[Remote], model: type[M]) -> M:
    """The data keys of a model that apply to the whole run. Raises Refusal."""
    return read_common([(remote.name, remote.data) for remote in remotes], model, "set it with --data")[1]


def end_unproven(proofs: Iterable[str], consents: Collection[str]) -> None:
    """If one of the proofs of a run has NOT_PROVEN, pyinfra ends with UNPROVEN instead of 0, with or without a consent to it of the
    operator. Only a run that has not failed."""
    if any(NOT_PROVEN in proof for proof in proofs):
        accepted = f"; accepted by {' and '.join(consents)}" if consents else ""
        show(f"\n{NOT_PROVEN}: not all of it, see above{accepted}, so the exit status is {UNPROVEN}.")
        bridge.end_with(UNPROVEN)
