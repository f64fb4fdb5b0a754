"""The API over a connection that may be lost at any moment, also during a write.

If the answer to a write is lost, the API server may have applied the write. The object itself shows this: its UID, its resourceVersion,
and the written fields. An error answer means that the write was not applied; but after a lost answer, 404 and 409 may be effects of the
lost write, so only the object counts.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from roles.engine import bridge
from roles.engine.api import (
    Api,
    ApiConnectionLost,
    ApiError,
    ApiFailure,
    Conflict,
    Denied,
    Forbidden,
    NotFound,
    TunnelApi,
    find_object,
    list_objects,
)
from roles.engine.api.errors import EvictionRefused, ForwardingForbidden, Invalid, KubeconfigError, Unauthorized
from roles.engine.api.kubeconfig import parse_kubeconfig
from roles.engine.bridge import Fleet, Remote, RemoteError
from roles.engine.bridge.channels import Transport
from roles.engine.bridge.tasks import Lock
from roles.engine.kube import Object, is_ending, uid, version
from roles.engine.objects.outcome import NotDone, Unknown
from roles.engine.proof import Cluster, NoApi, Survey, survey
from roles.engine.rollout import unreachable
from roles.engine.timeouts import Deadline, patient
from roles.engine.transaction import HOME, OBJECTS_KIND, RunInfo, RunRecord, change_id, parse_events

T = TypeVar("T")

# Seconds. A restarting API server is away for about 40; to retry a write that conflicts with a controller's own; between two tries.
API_WAIT = 60.0
CONFLICTS = 30.0
PAUSE = 1.0
# Of a record on the host of the lock: bytes, and seconds to read it.
MOST_RECORD, RECORD_SECONDS = 4 << 20, 30
_A_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")

#: The API server refused the request, or nothing was sent: the request was not applied.
REFUSED = (Unauthorized, Forbidden, NotFound, Conflict, Invalid, Denied, EvictionRefused, ForwardingForbidden)


class Session:
    """Requests to the API, counted, over one Api as long as it answers. Temporary errors are retried, up to `wait` seconds for each
    request. `connect` returns a new Api; it raises NoApi, ApiError or RemoteError. `cluster`: the way to other components than the API
    server; None if there is none. `keeper`: the host whose records of runs on objects count, if there is one."""

    def __init__(
        self, connect: Callable[[], Api], wait: float = API_WAIT, cluster: Cluster | None = None, keeper: Remote | None = None
    ) -> None:
        self.cluster = cluster
        self._keeper = keeper
        self._kept: dict[str, tuple[dict[str, Any], ...]] = {}
        self._connect = connect
        self._wait = wait
        self._api: Api | None = None
        self._locks: dict[str, Lock] = {}
        #: The number of requests by purpose.
        self.calls: Counter[str] = Counter()

    def recorded(self, run: str) -> tuple[dict[str, Any], ...]:
        """The events of a run, from the operator's own record, or from that of the keeper; () if neither has it, or can be read.
        `run` may be any text that an object claims."""
        if not _A_RUN.fullmatch(run):
            return ()
        with contextlib.suppress(OSError):
            return parse_events(RunRecord(RunInfo(run, "", "", "", "", "")).path.read_bytes()).events
        if run not in self._kept:
            self._kept[run] = self._of_keeper(run)
        return self._kept[run]

    def _of_keeper(self, run: str) -> tuple[dict[str, Any], ...]:
        if self._keeper is None:
            return ()
        path = f"{HOME}/changes/{change_id(run, 'cluster', OBJECTS_KIND)}/record.jsonl"
        try:
            self._keeper.ensure_connected()
            answer = self._keeper.run("sh -s", stdin=f"head -c {MOST_RECORD} {path} 2>/dev/null\n", timeout=patient(RECORD_SECONDS))
        except RemoteError:
            return ()
        return parse_events("\n".join([*answer.stdout, ""]).encode()).events

    def alone(self, key: str) -> AbstractContextManager[object]:
        """One task at a time works on what `key` names; others wait."""
        turn: AbstractContextManager[object] = self._locks.setdefault(key, Lock())
        return turn

    def asked(self, ask: Callable[[Api], T], what: str = "look") -> T:
        """The answer to a request that may be repeated. Raises ApiFailure."""
        deadline, settling = Deadline(self._wait), False
        while True:
            try:
                return self._once(ask, what)
            except ApiFailure as error:
                passing = isinstance(error, ApiConnectionLost) or error.passing
                # A restarted API server answers 403 until it has read its RBAC rules.
                if not passing and not (settling and isinstance(error, Forbidden)):
                    raise
                settling = settling or passing
                if deadline.over:
                    if isinstance(error, ApiError):
                        error.rule = f"{error.rule}, tried for {deadline.passed:.0f} s"
                    raise
            deadline.pause(PAUSE)

    def _once(self, ask: Callable[[Api], T], what: str) -> T:
        """One try. Raises ApiFailure, and never the RemoteError of a broken SSH connection."""
        try:
            if self._api is None:
                self._api = self._connect()
            self.calls[what] += 1
            return ask(self._api)
        except (Forbidden, NotFound, Conflict, Invalid, Denied, EvictionRefused):
            raise  # an answer: this Api still serves
        except RemoteError as error:
            self._api = None
            raise NoApi(str(error)) from error
        except Exception:
            # Connect again next time: this API server may never come back, and another one may serve.
            self._api = None
            raise

    def fetch(self, path: str) -> dict[str, Any] | None:
        return self.asked(lambda api: find_object(api, path))

    def fetch_all(self, path: str, fields: str = "", labels: str = "") -> list[dict[str, Any]]:
        return self.asked(lambda api: list_objects(api, path, fields=fields, labels=labels))

    def create(self, path: str, body: Mapping[str, Any], what: str, *, dry_run: bool = False) -> None:
        """Create a subresource that may be created twice, as an eviction."""
        self.asked(lambda api: api.create(path, body, dry_run=dry_run), what)

    def unconflicted(self, write: Callable[[], T]) -> T:
        """What `write` returns, which reads an object and writes the version that it has read. A controller may write the object in
        between: then it is called again, for a while. If a field has an owner, that does not help. Raises as `write`."""
        deadline = Deadline(CONFLICTS)
        while True:
            try:
                return write()
            except Conflict as error:
                if error.owners or deadline.over:
                    raise
            deadline.pause(PAUSE)

    def written(self, path: str, send: Callable[[Api], dict[str, Any]], done: Callable[[Object], bool]) -> dict[str, Any]:
        """Send an idempotent write; returns its result.

        After a lost answer, `done` checks on the object at `path` whether the write was applied. Raises an ApiError of REFUSED if it
        surely was not, and Unknown.
        """
        unknown = "there was no answer ({}); when last read, the object did not have the change"
        found = self._settled(path, send, lambda now: now is not None and done(now), unknown)
        assert found is not None  # an answer, or an object that is done
        return found

    def deleted(self, path: str, item: Object, of_version: str = "", *, grace: int | None = None) -> None:
        """Delete exactly this object (if given, at resourceVersion `of_version`, or with `grace` seconds to end). It is no error if the
        object is gone already, or is being deleted after a lost answer. Raises an ApiError of REFUSED if it surely was not deleted,
        NotDone, and Unknown."""

        def delete(api: Api) -> None:
            with contextlib.suppress(NotFound):
                if grace is None:
                    api.delete(path, uid(item), version=of_version)
                else:
                    api.delete(path, uid(item), version=of_version, grace=grace)

        def gone(now: Object | None) -> bool:
            if now is None or uid(now) != uid(item) or is_ending(now):
                return True
            if of_version and version(now) != of_version:
                raise NotDone("it was changed after daytwo read it, and is not deleted; run this again")
            return False

        self._settled(path, delete, gone, "there was no answer to its deletion ({}); when last read, it still existed")

    def _settled(
        self, path: str, send: Callable[[Api], T], done: Callable[[Object | None], bool], unknown: str
    ) -> T | dict[str, Any] | None:
        """The answer to a write, or the object if `done` says after a lost answer that the write was applied. Raises as `written`."""
        deadline, lost = Deadline(self._wait), ""
        while True:
            refused: ApiError | None = None
            try:
                return self._once(send, "patch")
            except REFUSED as error:
                # A webhook that does not answer may do so a moment later.
                again = isinstance(error, Denied) and error.passing and not deadline.over
                if not lost and not again:
                    raise
                if again:
                    deadline.pause(PAUSE)
                    continue
                refused = error
            except ApiFailure as error:
                lost = str(error)
            found = self._after(path, lost)
            if done(found):
                return found
            # A restarted API server answers 403 until it has read its RBAC rules.
            if refused is not None and not (isinstance(refused, Forbidden) and not deadline.over):
                raise refused
            if deadline.over:
                raise Unknown(unknown.format(lost))
            deadline.pause(PAUSE)

    def _after(self, path: str, lost: str) -> dict[str, Any] | None:
        """The object after an answer was lost. Raises Unknown."""
        try:
            return self.fetch(path)
        except ApiFailure as error:
            raise Unknown(f"there was no answer ({lost}), and the object could not be read afterwards: {error}") from error


@dataclass(frozen=True)
class ConnectedCluster:
    """`nodes` and `units` (the unit names of the kubelets) by the node's name in the cluster; `names` are those node names by host."""

    found: Survey
    session: Session
    nodes: dict[str, Remote]
    units: dict[str, str]
    names: dict[str, str]


def connect_cluster(fleet: Fleet, kubeconfig: str | None, wait: float = API_WAIT) -> ConnectedCluster:
    """Read all nodes of the inventory that answer, also those that --limit excludes (a refused worker of these is left out, with a
    warning), and open a session to the API, which may be away for `wait` seconds. Raises DeployError."""
    bridge.stop(unreachable(fleet))
    if not fleet.targets:
        raise bridge.refuse("no host is in this run; name a control-plane node with --limit, or leave --limit out")
    skipped = {remote.name for remote in fleet.unreachable}
    found = survey(fleet, [remote for remote in fleet.inventory if remote.name not in skipped and (remote.connected or remote.connect())])
    bridge.stop(found.refusals)
    for why in found.left_out:
        bridge.show(f"WARNING --limit leaves this host out, and nothing that it says counts in this run: {why}")
    return ConnectedCluster(
        found,
        open_session(fleet, found, kubeconfig, wait),
        {node.kubelet.node_name: node.remote for node in found.nodes.values()},
        {node.kubelet.node_name: node.kubelet.unit_name for node in found.nodes.values()},
        {host: node.kubelet.node_name for host, node in found.nodes.items()},
    )


def open_session(fleet: Fleet, found: Survey, kubeconfig: str | None, wait: float = API_WAIT) -> Session:
    """Connect through any control-plane node. `kubeconfig` is a file on the operator's machine whose identity is used; then `found` must
    include the control-plane nodes. Raises DeployError if no way to the API exists."""
    servers = [remote for remote in fleet.inventory if remote.is_control_plane]
    if kubeconfig is None:
        if not found.cluster.apiservers:
            raise bridge.refusals([_no_apiserver(servers)])

        def through_any() -> Api:
            for remote in servers:
                # Skip a node that stays away, and try the others.
                with contextlib.suppress(RemoteError):
                    remote.ensure_connected()
            return found.cluster.api()

        return Session(through_any, wait, found.cluster, fleet.keeper)
    try:
        credentials = parse_kubeconfig(Path(kubeconfig).expanduser().read_bytes())
    except (OSError, KubeconfigError) as error:
        raise bridge.refusals([f"kubeconfig={kubeconfig}: {error}"]) from None
    nodes = {host: node for host, node in found.nodes.items() if node.remote.is_control_plane and "kube-apiserver" in node.components}

    def as_operator() -> Api:
        tried: list[str] = []
        forbidden: list[ForwardingForbidden] = []
        for host, node in nodes.items():
            try:
                transport = _transport(node.remote)
                if transport is None:
                    tried.append(f"{host}: there is no SSH connection to forward through")
                    continue
                # If forwarding is forbidden there is no other way: daytwo never writes these credentials to the node's disk.
                api = TunnelApi(transport, credentials, node.components["kube-apiserver"].address, host)
                api.probe()
                return api
            except ForwardingForbidden as error:
                forbidden.append(error)
            except (ApiError, RemoteError) as error:
                tried.append(str(error))
        if forbidden and not tried:
            raise forbidden[0]  # waiting does not help
        raise NoApi("; ".join([*tried, *map(str, forbidden)]) or _no_apiserver(servers))

    return Session(as_operator, wait, found.cluster, fleet.keeper)


def _no_apiserver(servers: Sequence[Remote]) -> str:
    if not servers:
        return "the inventory has no control-plane node to reach the API through; add the nodes to a group named control_plane"
    names = ", ".join(remote.name for remote in servers)
    return f"the API is down: no kube-apiserver runs on {names}; check there: `crictl ps -a`, `journalctl -u kubelet`"


def _transport(remote: Remote) -> Transport | None:
    """The connection to a node; reconnects if it was lost. Raises RemoteError."""
    remote.ensure_connected()
    return remote.transport
