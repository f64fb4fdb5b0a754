"""How a deploy on objects of the cluster begins: its data, its session, and what it reads. All raise DeployError before any write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar
from urllib.parse import quote

from roles.engine import bridge
from roles.engine.api import Api, ApiFailure, Forbidden
from roles.engine.bridge import Fleet
from roles.engine.inputs import unmatched
from roles.engine.object_changes.session import Session, open_session
from roles.engine.proof import survey
from roles.engine.rollout import Options
from roles.engine.rollout.options import read_options
from roles.engine.transaction import Refusal

T = TypeVar("T")


def desired_of_cluster(
    fleet: Fleet, read: Callable[[Iterable[tuple[str, Callable[[str], Any]]]], T | None], missing: str
) -> tuple[Options, T]:
    """The options of the run, and what the data of all hosts of the inventory ask of the cluster. `read` gets each host's name and data; it
    returns None if no host has its keys (then `missing` says what to set), and raises Refusal."""
    if not fleet.targets:
        raise bridge.refuse("no host is in this run; name a control-plane node with --limit, or leave --limit out")
    options = read_options(fleet.targets)
    try:
        desired = read([(remote.name, remote.data) for remote in fleet.inventory])
    except Refusal as refusal:
        raise bridge.refusals([refusal]) from None
    if desired is None:
        raise bridge.refuse(missing)
    return options, desired


def cluster_session(fleet: Fleet, kubeconfig: str | None) -> Session:
    """A session of a deploy that needs the API alone. Nodes are read only where the operator's own identity (`kubeconfig`) needs their
    addresses: then the control-plane nodes that answer."""
    servers = [remote for remote in fleet.inventory if remote.is_control_plane] if kubeconfig is not None else []
    found = survey(fleet, [remote for remote in servers if remote.connected or remote.connect()])
    bridge.stop(found.refusals)
    return open_session(fleet, found, kubeconfig)


def check_namespaces(session: Session, asked: Collection[str] | None) -> None:
    """Raises DeployError if the cluster has not all of these namespaces. An identity that may not read namespaces cannot tell."""
    try:
        missing = [name for name in asked or () if session.fetch(f"/api/v1/namespaces/{quote(name, safe='')}") is None]
        known = [str(item["metadata"]["name"]) for item in session.fetch_all("/api/v1/namespaces")] if missing else []
    except Forbidden:
        return
    except ApiFailure as error:
        raise bridge.refusals([f"the namespaces cannot be read: {error}"]) from None
    bridge.stop(f"namespaces: {text}" for text in unmatched(missing, known, "no namespace of this cluster"))


def read_objects(session: Session, read: Callable[[Api], T]) -> T:
    """What `read` returns; it may be called again."""
    try:
        return session.asked(read)
    except ApiFailure as error:
        raise bridge.refusals([f"the cluster's objects cannot be read: {error}"]) from None
