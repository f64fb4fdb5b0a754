"""The API over a connection that may be lost at any moment, in the middle of a write as well.

A write whose answer was lost may have been carried out. What became of it is read from the object itself: by its UID, its
resourceVersion, and the fields that were written. An error that the API server answered with says that it was not; but after a lost
answer 404 and 409 may be what the lost one did, and then it is the object that counts.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from roles.engine import bridge
from roles.engine.api import (
    Api,
    ApiConnectionLost,
    ApiError,
    Conflict,
    Forbidden,
    ForwardingForbidden,
    Invalid,
    KubeconfigError,
    NotFound,
    TunnelApi,
    Unauthorized,
    find_object,
    list_objects,
    parse_kubeconfig,
)
from roles.engine.bridge import Fleet, Remote, RemoteError, Transport
from roles.engine.object_changes.api_object import Object, is_ending, uid, version
from roles.engine.object_changes.outcome import NotDone, Unknown
from roles.engine.proof import NoApi, Survey, survey
from roles.engine.rollout import unreachable
from roles.engine.timeouts import Deadline

T = TypeVar("T")

# Seconds. An API server that restarts is away for about 40; the pause between two tries.
API_WAIT = 60.0
PAUSE = 1.0

#: The API server's own no, or nothing was sent at all: what was asked for was not carried out.
REFUSED = (Unauthorized, Forbidden, NotFound, Conflict, Invalid, ForwardingForbidden)


class Session:
    """Requests to the API, counted, over one Api as long as it answers. What passes by itself is waited for, up to `wait` seconds for each
    request. `connect` gives a new Api; it raises NoApi, ApiError or RemoteError."""

    def __init__(self, connect: Callable[[], Api], wait: float = API_WAIT) -> None:
        self._connect = connect
        self._wait = wait
        self._api: Api | None = None
        #: How many requests there were, by what was asked for.
        self.calls: Counter[str] = Counter()

    def asked(self, ask: Callable[[Api], T], what: str = "look") -> T:
        """The answer to what may be asked twice. Raises ApiError, NoApi."""
        deadline, settling = Deadline(self._wait), False
        while True:
            try:
                return self._once(ask, what)
            except (ApiError, NoApi) as error:
                passing = isinstance(error, (NoApi, ApiConnectionLost)) or error.passing
                # An API server that just came back answers 403 until it has read its RBAC rules.
                if not passing and not (settling and isinstance(error, Forbidden)):
                    raise
                settling = settling or passing
                if deadline.over:
                    if isinstance(error, ApiError):
                        error.rule = f"{error.rule}, tried for {deadline.passed:.0f} s"
                    raise
            deadline.pause(PAUSE)

    def _once(self, ask: Callable[[Api], T], what: str) -> T:
        """One try. Raises ApiError or NoApi, and never the RemoteError of an SSH connection that broke beneath."""
        try:
            if self._api is None:
                self._api = self._connect()
            self.calls[what] += 1
            return ask(self._api)
        except (Forbidden, NotFound, Conflict, Invalid):
            raise  # an answer: it serves
        except RemoteError as error:
            self._api = None
            raise NoApi(str(error)) from error
        except Exception:
            # Another one may serve by now, and this one may never again.
            self._api = None
            raise

    def fetch(self, path: str) -> dict[str, Any] | None:
        return self.asked(lambda api: find_object(api, path))

    def fetch_all(self, path: str, fields: str = "", labels: str = "") -> list[dict[str, Any]]:
        return self.asked(lambda api: list_objects(api, path, fields=fields, labels=labels))

    def written(self, path: str, send: Callable[[Api], T], done: Callable[[Object], bool]) -> T | dict[str, Any]:
        """Carry out a write that comes to the same when it is carried out twice; what it came to.

        `done` tells by the object at `path`, as it is read after an answer was lost, that it was carried out. Raises an ApiError of
        REFUSED where it surely was not, and Unknown.
        """
        deadline, lost = Deadline(self._wait), ""
        while True:
            refused: ApiError | None = None
            try:
                return self._once(send, "patch")
            except REFUSED as error:
                if not lost:
                    raise
                refused = error
            except (ApiError, NoApi) as error:
                lost = str(error)
            found = self._after(path, lost)
            if found is not None and done(found):
                return found
            _raise_refused(refused, deadline)
            if deadline.over:
                raise Unknown(f"there was no answer ({lost}); when last read, it was not carried out")
            deadline.pause(PAUSE)

    def deleted(self, path: str, item: Object, of_version: str = "") -> None:
        """Delete that very object (of resourceVersion `of_version`, where given); one that is gone already, or is being deleted after an
        answer was lost, is no error. Raises an ApiError of REFUSED where it surely was not deleted, NotDone, and Unknown."""
        deadline, lost = Deadline(self._wait), ""
        while True:
            refused: ApiError | None = None
            try:
                return self._once(lambda api: api.delete(path, uid(item), version=of_version), "patch")
            except NotFound:
                return None
            except REFUSED as error:
                if not lost:
                    raise
                refused = error
            except (ApiError, NoApi) as error:
                lost = str(error)
            found = self._after(path, lost)
            if found is None or uid(found) != uid(item) or is_ending(found):
                return None
            if of_version and version(found) != of_version:
                raise NotDone("it was changed since it was looked at, and is not deleted; run this again, from a new look")
            _raise_refused(refused, deadline)
            if deadline.over:
                raise Unknown(f"there was no answer to its deletion ({lost}); when last read, it was still there")
            deadline.pause(PAUSE)

    def _after(self, path: str, lost: str) -> dict[str, Any] | None:
        """The object after an answer was lost. Raises Unknown."""
        try:
            return self.fetch(path)
        except (ApiError, NoApi) as error:
            raise Unknown(f"there was no answer ({lost}), and what became of it could not be read: {error}") from error


def _raise_refused(refused: ApiError | None, deadline: Deadline) -> None:
    # An API server that just came back answers 403 until it has read its RBAC rules.
    if refused is not None and not (isinstance(refused, Forbidden) and not deadline.over):
        raise refused


@dataclass(frozen=True)
class ConnectedCluster:
    """`nodes` and `units` (of their kubelets) by the name of the node in the cluster, `names` of those nodes by host."""

    found: Survey
    session: Session
    nodes: dict[str, Remote]
    units: dict[str, str]
    names: dict[str, str]


def connect_cluster(fleet: Fleet, kubeconfig: str | None, wait: float = API_WAIT) -> ConnectedCluster:
    """The nodes looked at, whether --limit left them out or not (those of the inventory that answer), and a way to the API, which may be
    away for `wait` seconds. Raises DeployError."""
    bridge.stop(unreachable(fleet))
    if not fleet.targets:
        raise bridge.refuse("no host is in this run; name a control-plane node with --limit, or none at all")
    found = survey(fleet, [remote for remote in fleet.inventory if remote.connected or remote.connect()])
    bridge.stop(found.refusals)
    return ConnectedCluster(
        found,
        open_session(fleet, found, kubeconfig, wait),
        {node.kubelet.node_name: node.remote for node in found.nodes.values()},
        {node.kubelet.node_name: node.kubelet.unit_name for node in found.nodes.values()},
        {host: node.kubelet.node_name for host, node in found.nodes.items()},
    )


def open_session(fleet: Fleet, found: Survey, kubeconfig: str | None, wait: float = API_WAIT) -> Session:
    """Through any control-plane node. With a `kubeconfig`, a file of the operator's, its identity is used, and the control-plane nodes must
    be among the nodes that were looked at. Raises DeployError where there is no way."""
    servers = [remote for remote in fleet.inventory if remote.is_control_plane]
    if kubeconfig is None:
        if not found.cluster.apiservers:
            raise bridge.refusals([_no_apiserver(servers)])

        def through_any() -> Api:
            for remote in servers:
                # One that stays away is passed over: the others are asked.
                with contextlib.suppress(RemoteError):
                    remote.ensure_connected()
            return found.cluster.api()

        return Session(through_any, wait)
    try:
        credentials = parse_kubeconfig(Path(kubeconfig).expanduser().read_bytes())
    except (OSError, KubeconfigError) as error:
        raise bridge.refusals([f"kubeconfig={kubeconfig}: {error}"]) from None
    nodes = {host: node for host, node in found.nodes.items() if "kube-apiserver" in node.components}

    def as_operator() -> Api:
        tried: list[str] = []
        forbidden: list[ForwardingForbidden] = []
        for host, node in nodes.items():
            try:
                transport = _transport(node.remote)
                if transport is None:
                    tried.append(f"{host}: there is no SSH connection to go through")
                    continue
                # Where forwarding is forbidden there is no other way: these credentials are not for the node's disk.
                api = TunnelApi(transport, credentials, node.components["kube-apiserver"].address, host)
                api.probe()
                return api
            except ForwardingForbidden as error:
                forbidden.append(error)
            except (ApiError, RemoteError) as error:
                tried.append(str(error))
        if forbidden and not tried:
            raise forbidden[0]  # which no wait changes
        raise NoApi("; ".join([*tried, *map(str, forbidden)]) or _no_apiserver(servers))

    return Session(as_operator, wait)


def _no_apiserver(servers: Sequence[Remote]) -> str:
    if not servers:
        return "the inventory has no control-plane node to reach the API by; have them in a group named control_plane"
    names = ", ".join(remote.name for remote in servers)
    return f"the API is down: no kube-apiserver runs on {names}; look there: `crictl ps -a`, `journalctl -u kubelet`"


def _transport(remote: Remote) -> Transport | None:
    """The connection to a node, made again where it was lost. Raises RemoteError."""
    remote.ensure_connected()
    return remote.transport
