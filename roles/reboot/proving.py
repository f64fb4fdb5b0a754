"""The proof that a node serves again since a boot: its kubelet, its lease, its pods, its clock, its control plane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from roles.engine import folding
from roles.engine.api import ApiFailure
from roles.engine.api.nodes import node_lease
from roles.engine.bridge import Remote
from roles.engine.kube import Object, is_ready, uid
from roles.engine.kube.fields import status_of
from roles.engine.kube.workloads import node_path
from roles.engine.objects import NotDone, Session
from roles.engine.proof import Cluster
from roles.engine.remote import RemoteError
from roles.engine.timeouts import LOOK_AGAIN, Deadline
from roles.reboot import facts
from roles.reboot.facts import Boot
from roles.reboot.plan import Booted, Expected, clock_problem, unready_pods

# One question during the reboot: a node that is ending may take it and never answer.
STATE_SECONDS = 15


class NotBack(NotDone):
    """The node has the order to reboot, and it is not proven that it is back: it stays cordoned. Says what is missing, and what to do."""


class BootProof:
    """The proof of one boot. `servers` are the control-plane nodes of the inventory; `limit` begins the time for one proof."""

    def __init__(
        self,
        session: Session,
        cluster: Cluster,
        remotes: Mapping[str, Remote],
        servers: Mapping[str, Remote],
        limit: Callable[[], Deadline],
        *,
        allow_unproven: bool,
    ) -> None:
        self._session, self._cluster, self._remotes, self._servers = session, cluster, remotes, servers
        self._limit, self._allow_unproven = limit, allow_unproven

    def prove(self, node: Booted, boot: Boot, expected: Expected, offset: float | None) -> str:
        """How it is proven that the node serves again. Waits; raises NotBack with what is missing."""
        deadline, first = self._limit(), None
        others = self._other_clocks(node)
        while True:
            missing: list[str] = []
            passing: list[str] = []
            try:
                found, renewed, pods = self._look(node)
                first = first or renewed
                missing += _kubelet_problems(found, node, boot)
                missing += ["its kubelet has not renewed its lease since"] if renewed == first else []
                passing += unready_pods(expected, pods, boot.began)
                if problem := self._clock(node, boot.id, offset, others):
                    passing.append(problem)
                missing += self._control_plane_problems(node)
            except (ApiFailure, RemoteError) as error:
                missing.append(str(error))
            if not missing and not passing:
                return _proven(node, boot)
            if deadline.over:
                if self._allow_unproven and not missing:
                    return f"{_proven(node, boot)}; NOT PROVEN: {folding.once_each(passing)}"
                raise NotBack(f"not proven after {deadline.passed:.0f} s: {folding.once_each([*missing, *passing])}")
            deadline.pause(LOOK_AGAIN)

    def _look(self, node: Booted) -> tuple[Object | None, datetime | None, list[dict[str, Any]]]:
        """The node, when its lease was renewed, and its pods. Raises ApiFailure."""
        found = self._session.fetch(node_path(node.name))
        renewed = self._session.asked(lambda api: node_lease(api, node.name)).renewed
        return found, renewed, self.pods(node)

    def pods(self, node: Booted) -> list[dict[str, Any]]:
        return self._session.fetch_all("/api/v1/pods", fields=f"spec.nodeName={node.name}")

    def _other_clocks(self, node: Booted) -> dict[str, float]:
        """The clocks of the other control-plane nodes that answer, against the operator's."""
        found = {}
        for host, remote in self._servers.items():
            if host != node.host:
                try:
                    remote.ensure_connected()
                    found[host] = facts.ask_clock(remote)
                except RemoteError:
                    continue
        return found

    def _clock(self, node: Booted, boot_id: str, before: float | None, others: Mapping[str, float]) -> str:
        remote = self._remotes[node.host]
        remote.ensure_connected()
        now = facts.ask_state(remote, STATE_SECONDS).boot
        if now.id != boot_id:
            raise NotBack("it rebooted once more, by itself")
        return clock_problem(before, now.offset, others)

    def _control_plane_problems(self, node: Booted) -> list[str]:
        if not node.is_control_plane:
            return []
        if node.host in self._servers and node.has_apiserver:
            self._cluster.ready(node.host)
        problem = self._cluster.control_plane_ready("", 0, allow_unproven=self._allow_unproven)
        return [problem] if problem else []


def _kubelet_problems(found: Object | None, node: Booted, boot: Boot) -> list[str]:
    if found is None or uid(found) != node.uid:
        return ["its Node object was deleted or recreated"]
    reported = str((status_of(found).get("nodeInfo") or {}).get("bootID", ""))
    if reported != boot.id:
        return ["its kubelet has not reported the new boot"]
    return [] if is_ready(found) else ["its node is not Ready"]


def _proven(node: Booted, boot: Boot) -> str:
    own = "; API server and etcd well" if node.is_control_plane else ""
    return f"boot {boot.id[:8]} by SSH and by its kubelet, lease renewed, pods Ready, clock {boot.offset:+.1f} s{own}"
