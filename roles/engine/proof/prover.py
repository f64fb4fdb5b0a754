"""Evidence that a change took effect: the running process is new, healthy, and has the desired effective values."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from roles.engine.api import ApiFailure
from roles.engine.api.nodes import PodStatus
from roles.engine.bridge.tasks import Timeout, sleep
from roles.engine.control_plane import COMPONENTS, Component
from roles.engine.editing import FlagChanges, any_flag
from roles.engine.folding import counted, once_each, shortened
from roles.engine.harmless import one_line
from roles.engine.kubelet import drained, idle
from roles.engine.named_paths import KUBELET
from roles.engine.pairs import is_way
from roles.engine.proof.cluster import REACH_SECONDS, Cluster
from roles.engine.proof.effective import changed_fields, unmet_fields, unmet_gates, written
from roles.engine.proof.kept import ANY, APISERVER
from roles.engine.proof.no_sign import no_sign, no_signs
from roles.engine.proof.signs import Found, Sign, signs_of
from roles.engine.proof.workload import count, evicted_pods, harmed_pods, not_recreated, static_pods_away
from roles.engine.table import NOT_PROVEN
from roles.engine.timeouts import patient
from roles.engine.transaction import Status, mask_text
from roles.engine.transaction.model import ABSENT

# A kubelet renews its lease every 10 s (nodeLeaseDurationSeconds / 4).
LEASE_SECONDS = 45
# A component that lost its leader lease together with its API server is restarted after a back-off of up to 5 minutes
# (pkg/kubelet: MaxContainerBackOff).
BACK_OFF_SECONDS = 330
# An API server that has just changed must serve again within this time.
SETTLE_SECONDS = 90
# A pod that its kubelet creates again: the grace period of the old one, and its start.
RECREATE_SECONDS = 90
# The kubelet's probes of a component must pass within this time after it is healthy: kubeadm's startup probe begins after 10 s and
# comes every 10 s, and after a restart of the only API server the kubelet posts the new pod at its next look at it.
PROBES_SECONDS = 90
# How many changed fields of a component's configuration are shown.
_MOST_FIELDS = 12


@dataclass(frozen=True)
class Proof:
    """The proof of a change: `how` it was proven, in a few words, and the problems; without problems it is proven."""

    how: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RequiredProof:
    """What the new process of a component must show. `gates`, `settings` (fields of a KubeletConfiguration, dots between their parts; None:
    not set) and `flags` of a control-plane component (None: not given) are the values that it must run with; `checkpoints` are the policies
    that the kubelet must have written into its checkpoints, by path, in the order of the change; `may_be_evicted` are the pods
    (NAMESPACE/NAME) that may be evicted, as announced in the plan and with consent; `recreates_pods`: the new kubelet ends the pods that a
    drain leaves, and each must run again; `recreates_static_pods`: the plan announces that it may recreate the static ones, and each must
    run then."""

    gates: Mapping[str, bool] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    flags: FlagChanges = field(default_factory=dict)
    checkpoints: Mapping[str, str] = field(default_factory=dict)
    may_be_evicted: frozenset[str] = frozenset()
    recreates_pods: bool = False
    recreates_static_pods: bool = False


@dataclass(frozen=True)
class ChangedProcess:
    """The component of a node that changes. `components` are those of the node's control plane; `apiserver_changes` says whether this run
    changes an API server; `files` are the sha256 of the change's files by path, of which the last is its manifest; `undoes`: the change
    restores what was there before, whose signs may be missing as they were."""

    host: str
    node_name: str
    component: str
    components: Mapping[str, Component] = field(default_factory=dict)
    apiserver_changes: bool = False
    allow_unproven: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    undoes: bool = False


# Reads the signs of the new process: what they show, by sign.
LookAtSigns = Callable[[Status, list[str]], list[tuple[Sign, Found]]]


class Prover:
    """Watches one change and proves it once it is applied."""

    def __init__(self, cluster: Cluster, process: ChangedProcess, owed: RequiredProof, look: LookAtSigns | None = None) -> None:
        self._cluster = cluster
        self._process = process
        self._look = look
        self._owed = owed
        self._pods: list[PodStatus] | None = None
        self._answered: dict[str, list[str]] = {}
        self._lease: datetime | None = None
        self._configuration: dict[str, Any] | None = None
        #: The configuration that the new kubelet shows.
        self._running: dict[str, Any] = {}

    @property
    def _named(self) -> list[str]:
        """The settings whose signs are looked at."""
        return list(self._owed.settings if self._process.component == KUBELET else self._owed.flags)

    @property
    def unseen(self) -> list[str]:
        """What nothing will show of the change, besides its values, as far as that is known before it."""
        return [no_sign(one) for one in no_signs(self._process.component, self._named)]

    def ready(self) -> str | None:
        """Right before the change: note the workload. Before a manifest edit, the rest of the control plane must be healthy, and the
        kubelet must reach the API (a restarted kubelet that has not reached it yet does not clean up pods: kubernetes#112814).
        Returns a text if the change must not begin."""
        owed, process = self._owed, self._process
        try:
            if process.component in COMPONENTS:
                if problem := self._cluster.control_plane_ready(
                    process.host, patient(SETTLE_SECONDS), allow_unproven=process.allow_unproven
                ):
                    return problem
                if not self._renewed_from_now():
                    return (
                        f"the kubelet has not renewed its lease within {patient(LEASE_SECONDS):g} s: it would not apply an edited manifest"
                    )
                if not _wait(self._component_runs, patient(BACK_OFF_SECONDS)):
                    return f"{process.component} was not ready for {patient(BACK_OFF_SECONDS):g} s and is not ready now: fix that first"
            self._pods = self._cluster.pods(process.node_name)
            self._answered = {host: [name for name, why in found.items() if not why] for host, found in self._through(0.0)}
            if owed.flags or process.files:
                self._configuration = self._cluster.component_configuration(process.host, process.component)
        except ApiFailure as error:
            return None if process.allow_unproven else f"the API cannot be asked: {error}"
        return None

    def _renewed_from_now(self) -> bool:
        """True if the lease is renewed from now on: then the current kubelet has renewed it."""
        first = self._cluster.lease_renewed(self._process.node_name)
        return _wait(lambda: self._cluster.lease_renewed(self._process.node_name) not in (None, first), patient(LEASE_SECONDS))

    def _component_runs(self, cgroup: str = "") -> bool:
        """The component's pod is ready; with the cgroup of a process: that one's container is in it."""
        component = self._process.components[self._process.component]
        name = f"{component.pod.name}-{component.node_name}"
        found = [pod for pod in self._cluster.pods(component.node_name) if pod.name == name and pod.namespace == component.pod.namespace]
        return any(
            pod.containers
            and all(container.ready for container in pod.containers)
            and (not cgroup or any(_within(cgroup, container.id) for container in pod.containers))
            for pod in found
        )

    def watch(self, text: str) -> None:
        """Note the lease as soon as a new kubelet runs: the new process then makes any later renewal."""
        if self._process.component == "kubelet" and text.startswith("process: "):
            try:
                self._lease = self._cluster.lease_renewed(self._process.node_name)
            except ApiFailure:
                self._lease = None

    def prove(self, status: Status) -> Proof:
        """Prove that an applied change is in effect. Names each proof and each problem."""
        shown = [f"PID {status.identity[0]} is new, health {status.health}, arguments as planned"]
        problems = []
        if status.identity == status.old_identity or status.identity[0] == "0":
            problems.append("the process is still the old one")
        text, problem = self._checkpoints(status)
        shown += [text] if text else []
        problems += problem
        unproven: list[str] = []
        flags, probes = (lambda: self._flags(status)), (lambda: self._probes(status))
        for check in (self._gates, self._settings, flags, probes, self._reach, self._ways, self._recreated, self._workload):
            try:
                text, problem = check()
                shown += [text] if text else []
                problems += problem
            except ApiFailure as error:
                unproven.append(str(error))
        if unproven:
            shown.append(f"{NOT_PROVEN}: {once_each(unproven)}")
            problems += [] if self._process.allow_unproven else unproven
        if not problems:
            texts, problems = self._signs(status)
            shown += texts
        return Proof(once_each(shown), tuple(dict.fromkeys(problems)))

    def _signs(self, status: Status) -> tuple[list[str], list[str]]:
        """What shows that the settings work, besides their values; and what does not. A sign that cannot be read reverts nothing."""
        process = self._process
        unused = idle(self._running, self._named)
        named = [name for name in self._named if name not in unused]
        without = [f"an effect of {name}: {why}" for name, why in unused.items()] + no_signs(process.component, named)
        shown, unproven, problems = [], [], []
        try:
            found = self._look(status, named) if self._look and signs_of(process.component, named) else []
        except ApiFailure as error:
            found, unproven = [], [f"whether it works: {error}"]
        for sign, one in found:
            if one.kind == "shown":
                shown.append(one.text)
            elif one.kind == "nothing" or (one.kind == "missing" and sign.absent == "no sign"):
                without.append(one.text)
            elif one.kind == "unknown" or sign.absent == NOT_PROVEN or process.undoes:
                unproven.append(one.text)
            else:
                problems.append(mask_text(one.text))
        shown += [mask_text(no_sign(one)) for one in without]
        return shown + ([mask_text(f"{NOT_PROVEN}: {once_each(unproven)}")] if unproven else []), problems

    def _checkpoints(self, status: Status) -> tuple[str, list[str]]:
        """The kubelet's own files, as the node has shown them."""
        wanted = self._owed.checkpoints
        problems = []
        for number, (path, policy) in enumerate(wanted.items()):
            data = status.checkpoints[number] if number < len(status.checkpoints) else b""
            try:
                if (stored := drained.stored_policy(data)) != policy:
                    problems.append(f"{path} has the policy {one_line(stored)}, not {policy}")
            except ValueError as error:
                problems.append(f"the kubelet has not created {path}" if not data else f"{path} cannot be read: {error}")
        if problems or not wanted:
            return "", problems
        return ", ".join(f"{policy} in {posixpath.basename(path)}" for path, policy in wanted.items()), []

    def _gates(self) -> tuple[str, list[str]]:
        if not self._owed.gates and (self._owed.settings or self._owed.flags or self._process.files):
            return "", []
        effective = self._cluster.effective(self._process.host, self._process.component, self._process.node_name)
        return "gates in /metrics", [str(one) for one in unmet_gates(self._process.component, self._owed.gates, effective)]

    def _settings(self) -> tuple[str, list[str]]:
        if not self._owed.settings:
            return "", []
        configuration = self._running = self._cluster.configuration(self._process.node_name)
        return f"{', '.join(self._owed.settings)} in /configz", [str(one) for one in unmet_fields(self._owed.settings, configuration)]

    def _flags(self, status: Status) -> tuple[str, list[str]]:
        """The arguments of the process, and the files in its container; then what the component itself tells, which is shown, but proves
        nothing alone: no rule says which field of a configuration a flag sets."""
        owed, process = self._owed, self._process
        if not owed.flags and not process.files:
            return "", []
        given = {name: any_flag.given(status.argv, name, values) for name, values in owed.flags.items()}
        problems = [
            mask_text(f"its arguments have {written(name, given[name])}, planned {written(name, values)}")
            for name, values in owed.flags.items()
            if not any_flag.same(given[name], values)
        ]
        # The manifest, the last file, is not in the container.
        files = list(process.files.items())[:-1]
        for (path, digest), inside in zip(files, (*status.inside, *[""] * len(files)), strict=False):
            if digest != inside:
                problems.append(f"the container of {process.component} does not have the planned {path}")
        shown = [f"{', '.join(mask_text(written(name, values)) for name, values in owed.flags.items())} in /proc/PID/cmdline"]
        if files:
            shown.append(f"{', '.join(path for path, digest in files if digest != ABSENT) or 'no such file'} in its container")
        return f"{', and '.join(shown if owed.flags else shown[1:])}; {self._told()}", problems

    def _probes(self, status: Status) -> tuple[str, list[str]]:
        """A component with other flags may be healthy for whoever has credentials, and refuse its kubelet's probes, which have none: then
        the kubelet kills it minutes later (kubeadm: after 240 s), and again and again."""
        owed, process = self._owed, self._process
        if process.component not in COMPONENTS or not (owed.flags or process.files):
            return "", []
        if _wait(lambda: self._component_runs(status.cgroup), patient(PROBES_SECONDS)):
            return "its kubelet's probes pass", []
        return "", [f"its pod is not ready {patient(PROBES_SECONDS):g} s later: its kubelet's probes do not pass, and would have it killed"]

    def _told(self) -> str:
        """What the component says of these flags: its /flagz, or the fields of its /configz that changed."""
        owed, process = self._owed, self._process
        flagz = self._cluster.flagz(process.host, process.component)
        values = [f"{name} is {mask_text(f'--{name}={flagz[name]}').partition('=')[2]}" for name in owed.flags if name in flagz]
        after = self._cluster.component_configuration(process.host, process.component)
        changed = changed_fields(self._configuration or {}, after or {}) if self._configuration and after else []
        parts = [f"in its /flagz {', '.join(values)}"] if values else []
        if changed:
            parts.append(f"in its /configz {mask_text(shortened(changed, _MOST_FIELDS, ';'))}")
        return "; ".join(parts) or "it tells no more: neither /flagz nor a change in /configz"

    def _reach(self) -> tuple[str, list[str]]:
        name = self._process.node_name
        if self._process.component == "kubelet":
            if self._lease is None:
                self._lease = self._cluster.lease_renewed(name)
            if _wait(lambda: self._cluster.lease_renewed(name) != self._lease, patient(LEASE_SECONDS)):
                return "lease renewed", []
            return "", [f"the new kubelet has not renewed its lease within {patient(LEASE_SECONDS):g} s"]
        if self._process.component == "kube-apiserver":
            self._cluster.ready(self._process.host)
            return "/readyz 200", []
        return "", []

    def _through(self, wait: float) -> Iterator[tuple[str, dict[str, str]]]:
        """Whether kubelets answer through the API, by the host of each API server concerned, if the change touches what that goes through:
        all of them through the one that changes, or the one that changes through all of them."""
        owed, process, cluster = self._owed, self._process, self._cluster
        if not any(is_way(process.component, name) for name in (*owed.flags, *owed.settings)):
            return
        if process.component == "kubelet":
            for host in cluster.serving():
                yield host, cluster.answering([process.node_name], (host, APISERVER), wait)
        else:
            at = (process.host, APISERVER) if process.host in cluster.serving() else ANY
            yield process.host, cluster.answering(cluster.ready_nodes(), at, wait)

    def _ways(self) -> tuple[str, list[str]]:
        """What daytwo itself goes through: kubelets that answered before still do."""
        shown, problems = [], []
        for host, found in self._through(patient(REACH_SECONDS)):
            lost = [name for name in self._answered.get(host, ()) if found.get(name)]
            if lost:
                names = ", ".join(one_line(name) for name in lost[:_MOST_FIELDS]) + (", ..." if len(lost) > _MOST_FIELDS else "")
                problems.append(f"kubelets no longer answer through the API server of {host}, as before: {names}: {found[lost[0]]}")
            shown.append(f"{sum(not why for why in found.values())} of {len(found)} kubelets answer through the API server of {host}")
        return ("; ".join(shown) if not problems else ""), problems

    def _recreated(self) -> tuple[str, list[str]]:
        """The pods that ran right before the change run again, in new containers."""
        before = self._pods
        if before is None:
            return "", []
        if self._owed.recreates_static_pods:
            # Which of them are recreated depends on their requests. Each that ran before must run, recreated or not.
            number, away, what, again = len(static_pods_away(before, [])), static_pods_away, "static pod", ""
        elif self._owed.recreates_pods:
            number, away, what, again = len(not_recreated(before, before)), not_recreated, "pod", " again"
        else:
            return "", []
        if _wait(lambda: not away(before, self._cluster.pods(self._process.node_name)), patient(RECREATE_SECONDS)):
            done = " created again" if again else " runs" if number == 1 else " run"
            return f"{counted(number, what)}{done}" if number else "", []
        left = away(before, self._cluster.pods(self._process.node_name))
        return "", [f"{what} {one_line(name)} does not run{again} after {patient(RECREATE_SECONDS):g} s" for name in left]

    def _workload(self) -> tuple[str, list[str]]:
        if self._pods is None:
            return "", []
        announced = {f"{component.pod.name}-{component.node_name}" for component in self._announced()}
        if self._owed.recreates_pods:
            announced |= {pod.name for pod in self._pods}
        if self._owed.recreates_static_pods:
            announced |= {pod.name for pod in self._pods if pod.mirror}
        after = self._cluster.pods(self._process.node_name)
        problems = harmed_pods(self._pods, after, announced, self._owed.may_be_evicted)
        counted = count(self._pods, after, announced, self._owed.may_be_evicted)
        new_kubelet = self._process.component == "kubelet" and bool(self._owed.settings or counted.missing)
        if new_kubelet and not self._owed.may_be_evicted and (evicted := self._cluster.evictions(self._process.node_name)):
            # An evicted pod that its controller has deleted is no longer listed; but the new kubelet has counted its eviction.
            counts = ", ".join(f"{number} for {signal}" for signal, number in evicted.items())
            problems.append(f"the new kubelet has evicted or preempted pods: {counts}")
        if problems:
            return "", problems
        ended = evicted_pods(self._pods, after, self._owed.may_be_evicted)
        return f"{counted}; gone, as announced: {', '.join(ended)}" if ended else str(counted), []

    def _announced(self) -> list[Component]:
        """Static pods whose restart the plan announces: the component itself. If this run changes an apiserver, all of the control
        plane: they lose their leader lease while it is down, and may restart only after their back-off."""
        if self._process.apiserver_changes:
            return list(self._process.components.values())
        return [component for name, component in self._process.components.items() if name == self._process.component]


def _within(cgroup: str, container: str) -> bool:
    """Whether a process's cgroup is that of a container (runtime://ID); each runtime has the ID in the path."""
    name = container.rpartition("/")[2]
    return bool(name) and name in cgroup


def _wait(check: Callable[[], bool], seconds: float) -> bool:
    with Timeout(seconds, False):
        while not check():
            sleep(1)
        return True
    return False
