"""Evidence that a change took effect, from the running process: new, healthy, with the effective values it was to have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from roles.engine.api import ApiError, PodStatus
from roles.engine.bridge import Timeout, sleep
from roles.engine.control_plane import COMPONENTS, Component
from roles.engine.proof.cluster import Cluster, NoApi
from roles.engine.proof.effective import unmet_fields, unmet_gates
from roles.engine.proof.workload import count, gone, hurt
from roles.engine.timeouts import patient
from roles.engine.transaction import Status

# A kubelet renews its lease every 10 s (nodeLeaseDurationSeconds / 4).
LEASE_SECONDS = 45
# A component that lost its leader's lease with its API server is started again after a back-off of up to 5 minutes
# (pkg/kubelet: MaxContainerBackOff).
BACK_OFF_SECONDS = 330
# An API server that was changed just before serves again within this, or is not well.
SETTLE_SECONDS = 90


@dataclass(frozen=True)
class Proof:
    """What was shown of a change: `how` in a few words, and the problems; without problems it is proven."""

    how: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Owed:
    """What is to be shown of one component of one node. `gates` and `settings` (fields of a KubeletConfiguration, dots between
    their parts; None: not set) are the values it must run with; `components` are those of the node's control plane;
    `apiserver_changes` whether an API server is changed in this run; `may_go` the pods (NAMESPACE/NAME) of which the plan told, with
    consent, that they may have to go."""

    host: str
    node_name: str
    component: str
    gates: Mapping[str, bool]
    settings: Mapping[str, Any]
    components: Mapping[str, Component]
    apiserver_changes: bool
    allow_unproven: bool = False
    may_go: frozenset[str] = frozenset()


class Prover:
    """Watches one change and judges it once it is applied."""

    def __init__(self, cluster: Cluster, owed: Owed) -> None:
        self._cluster = cluster
        self._owed = owed
        self._pods: list[PodStatus] | None = None
        self._lease: datetime | None = None

    def ready(self) -> str | None:
        """Right before the change: the workload is noted; before a manifest edit the rest of the control plane must be well, and the
        kubelet must reach the API (one that was restarted and has not since does not clean up pods: kubernetes#112814). A text
        says why not."""
        owed = self._owed
        try:
            if owed.component in COMPONENTS:
                if problem := self._cluster.control_plane_ready(owed.host, patient(SETTLE_SECONDS), allow_unproven=owed.allow_unproven):
                    return problem
                if not self._renewed_from_now():
                    return (
                        f"the kubelet has not renewed its lease within {patient(LEASE_SECONDS):g} s: it would not take a manifest's edit up"
                    )
                if not _wait(self._component_runs, patient(BACK_OFF_SECONDS)):
                    return f"{owed.component} is not ready now, and was not within {patient(BACK_OFF_SECONDS):g} s: fix that first"
            self._pods = self._cluster.pods(owed.node_name)
        except (ApiError, NoApi) as error:
            return None if owed.allow_unproven else f"the API cannot be asked: {error}"
        return None

    def _renewed_from_now(self) -> bool:
        """A lease that is renewed while one looks was renewed by the kubelet that runs now."""
        first = self._cluster.lease_renewed(self._owed.node_name)
        return _wait(lambda: self._cluster.lease_renewed(self._owed.node_name) not in (None, first), patient(LEASE_SECONDS))

    def _component_runs(self) -> bool:
        component = self._owed.components[self._owed.component]
        name = f"{component.pod.name}-{component.node_name}"
        found = [pod for pod in self._cluster.pods(component.node_name) if pod.name == name and pod.namespace == component.pod.namespace]
        return any(pod.containers and all(container.ready for container in pod.containers) for pod in found)

    def watch(self, text: str) -> None:
        """As soon as a new kubelet runs its lease is noted: one renewed after that is the new process's own."""
        if self._owed.component == "kubelet" and text.startswith("process: "):
            try:
                self._lease = self._cluster.lease_renewed(self._owed.node_name)
            except (ApiError, NoApi):
                self._lease = None

    def prove(self, status: Status) -> Proof:
        """The change is applied on the node; is it in effect? Names what was shown, and each problem."""
        shown = [f"PID {status.identity[0]} is new, health {status.health}, arguments as planned"]
        problems = []
        if status.identity == status.old_identity or status.identity[0] == "0":
            problems.append("the process is the old one")
        unproven: list[str] = []
        for check in (self._gates, self._settings, self._reach, self._workload):
            try:
                text, problem = check()
                shown += [text] if text else []
                problems += problem
            except (ApiError, NoApi) as error:
                unproven.append(str(error))
        if unproven:
            shown.append(f"NOT PROVEN: {'; '.join(unproven)}")
            problems += [] if self._owed.allow_unproven else unproven
        return Proof("; ".join(shown), tuple(problems))

    def _gates(self) -> tuple[str, list[str]]:
        if not self._owed.gates and self._owed.settings:
            return "", []
        effective = self._cluster.effective(self._owed.host, self._owed.component, self._owed.node_name)
        return "gates in /metrics", [str(one) for one in unmet_gates(self._owed.component, self._owed.gates, effective)]

    def _settings(self) -> tuple[str, list[str]]:
        if not self._owed.settings:
            return "", []
        configuration = self._cluster.configuration(self._owed.node_name)
        return f"{', '.join(self._owed.settings)} in /configz", [str(one) for one in unmet_fields(self._owed.settings, configuration)]

    def _reach(self) -> tuple[str, list[str]]:
        name = self._owed.node_name
        if self._owed.component == "kubelet":
            if self._lease is None:
                self._lease = self._cluster.lease_renewed(name)
            if _wait(lambda: self._cluster.lease_renewed(name) != self._lease, patient(LEASE_SECONDS)):
                return "lease renewed", []
            return "", [f"the new kubelet has not renewed its lease within {patient(LEASE_SECONDS):g} s"]
        if self._owed.component == "kube-apiserver":
            self._cluster.ready(self._owed.host)
            return "/readyz 200", []
        return "", []

    def _workload(self) -> tuple[str, list[str]]:
        if self._pods is None:
            return "", []
        announced = {f"{component.pod.name}-{component.node_name}" for component in self._announced()}
        after = self._cluster.pods(self._owed.node_name)
        problems = hurt(self._pods, after, announced, self._owed.may_go)
        counted = count(self._pods, after, announced, self._owed.may_go)
        new_kubelet = self._owed.component == "kubelet" and bool(self._owed.settings or counted.missing)
        if new_kubelet and not self._owed.may_go and (evicted := self._cluster.put_out(self._owed.node_name)):
            # One that its controller has deleted since is not among the pods any more; the kubelet, which is new, has counted it.
            told = ", ".join(f"{number} for {signal}" for signal, number in evicted.items())
            problems.append(f"the new kubelet has put pods out: {told}")
        if problems:
            return "", problems
        went = gone(self._pods, after, self._owed.may_go)
        return f"{counted}; went, as was announced: {', '.join(went)}" if went else str(counted), []

    def _announced(self) -> list[Component]:
        """Static pods whose restart the plan tells: the component itself, and with an apiserver changed in this run all of the
        control plane: they lose their leader's lease while it is away, and may be back only after their back-off."""
        if self._owed.apiserver_changes:
            return list(self._owed.components.values())
        return [component for name, component in self._owed.components.items() if name == self._owed.component]


def _wait(check: Callable[[], bool], seconds: float) -> bool:
    with Timeout(seconds, False):
        while not check():
            sleep(1)
        return True
    return False
