"""Evidence that a change of gates took effect, from the running process; and what is shown where nothing had to change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import gevent

from roles.api import ApiError, GateMetric, Pod
from roles.change import Status
from roles.control_plane import COMPONENTS, Component
from roles.feature_gates.plan import Planned
from roles.kubelet import Kubelet
from roles.proof import Cluster, NoApi
from roles.proof.workload import hurt
from roles.rollout.run import Proof

# A kubelet renews its lease every 10 s (nodeLeaseDurationSeconds / 4).
LEASE_SECONDS = 45
# A component that lost its leader's lease with its API server is started again after a back-off of up to 5 minutes
# (pkg/kubelet: MaxContainerBackOff).
BACK_OFF_SECONDS = 330


class Prover:
    """Watches one change and judges it once it is applied."""

    def __init__(
        self,
        cluster: Cluster,
        planned: Planned,
        kubelet: Kubelet,
        components: dict[str, Component],
        apiserver_changes: bool,
        unproven: bool,
    ) -> None:
        self._cluster = cluster
        self._planned = planned
        self._kubelet = kubelet
        self._components = components
        self._apiserver_changes = apiserver_changes
        self._unproven = unproven
        self._pods: list[Pod] | None = None
        self._lease: datetime | None = None

    def ready(self) -> str | None:
        """Right before the change: the workload is noted; before a manifest edit the kubelet must have reached the API since it
        started (a kubelet that has not does not clean up pods: kubernetes#112814). A text says why not."""
        try:
            if self._planned.component in COMPONENTS:
                if not self._kubelet_reached_api():
                    return f"the kubelet has not renewed its lease within {LEASE_SECONDS} s: it would not take a manifest's edit up"
                if not self._wait(self._component_runs, BACK_OFF_SECONDS):
                    return f"{self._planned.component} is not ready now, and was not within {BACK_OFF_SECONDS} s: mend that first"
            self._pods = self._cluster.pods(self._planned.node_name)
        except (ApiError, NoApi) as error:
            return None if self._unproven else f"the API cannot be asked: {error}"
        return None

    def _kubelet_reached_api(self) -> bool:
        name = self._planned.node_name
        first = self._cluster.lease_renewed(name)
        started = self._kubelet.seen.started_at(self._kubelet.process)
        if first is not None and first.timestamp() > started + 2 and self._kubelet.process.pid:
            return True
        return self._wait(lambda: self._cluster.lease_renewed(name) not in (None, first))

    def _component_runs(self) -> bool:
        component = self._components[self._planned.component]
        name = f"{component.pod.name}-{component.node_name}"
        found = [pod for pod in self._cluster.pods(component.node_name) if pod.name == name and pod.namespace == component.pod.namespace]
        return any(pod.containers and all(container.ready for container in pod.containers) for pod in found)

    def _wait(self, check: Callable[[], bool], seconds: float = LEASE_SECONDS) -> bool:
        with gevent.Timeout(seconds, False):
            while not check():
                gevent.sleep(1)
            return True
        return False

    def watch(self, text: str) -> None:
        """As soon as a new kubelet runs its lease is noted: one renewed after that is the new process's own."""
        if self._planned.component == "kubelet" and text.startswith("process: "):
            try:
                self._lease = self._cluster.lease_renewed(self._planned.node_name)
            except (ApiError, NoApi):
                self._lease = None

    def prove(self, status: Status) -> Proof:
        """The change is applied on the node; is it in effect? Names what was shown, and each problem."""
        shown = [f"PID {status.identity[0]} is new, health {status.health}, arguments as planned"]
        problems = []
        if status.identity == status.old_identity or status.identity[0] == "0":
            problems.append("the process is the old one")
        unproven: list[str] = []
        for check in (self._gates, self._reach, self._workload):
            try:
                text, problem = check()
                shown += [text] if text else []
                problems += problem
            except (ApiError, NoApi) as error:
                unproven.append(str(error))
        if unproven:
            shown.append(f"NOT PROVEN: {'; '.join(unproven)}")
            problems += [] if self._unproven else unproven
        return Proof("; ".join(shown), tuple(problems))

    def _gates(self) -> tuple[str, list[str]]:
        effective = self._cluster.effective(self._planned.host, self._planned.component, self._planned.node_name)
        return "gates in /metrics", differences(self._planned, effective)

    def _reach(self) -> tuple[str, list[str]]:
        name = self._planned.node_name
        if self._planned.component == "kubelet":
            if self._lease is None:
                self._lease = self._cluster.lease_renewed(name)
            if self._wait(lambda: self._cluster.lease_renewed(name) != self._lease):
                return "lease renewed", []
            return "", [f"the new kubelet has not renewed its lease within {LEASE_SECONDS} s"]
        if self._planned.component == "kube-apiserver":
            self._cluster.ready(self._planned.host)
            return "/readyz 200", []
        return "", []

    def _workload(self) -> tuple[str, list[str]]:
        if self._pods is None:
            return "", []
        announced = {f"{component.pod.name}-{component.node_name}" for component in self._announced()}
        problems = hurt(self._pods, self._cluster.pods(self._planned.node_name), announced)
        return f"{len(self._pods)} pods unharmed" if not problems else "", problems

    def _announced(self) -> list[Component]:
        """Static pods whose restart the plan tells: the component itself, and with an apiserver changed in this run all of the
        control plane: they lose their leader's lease while it is away, and may be back only after their back-off."""
        if self._apiserver_changes:
            return list(self._components.values())
        return [component for name, component in self._components.items() if name == self._planned.component]


def differences(planned: Planned, effective: dict[str, GateMetric]) -> list[str]:
    """Gates that the running process has otherwise than wanted. A gate that is to be absent has no value to be held to."""
    problems = []
    for name, value in planned.wanted.items():
        if value is None:
            continue
        found = effective.get(name)
        if found is None:
            problems.append(f"{planned.component} does not publish {name} (kubernetes_feature_enabled, 1.26 and later)")
        elif found.enabled != value:
            problems.append(f"{planned.component} runs with {name}={str(found.enabled).lower()}, wanted {str(value).lower()}")
    return problems
