"""The cgroup driver: a kubelet and its container runtime must have the same one, or no pod starts. The rules are pure; two functions ask.

With containerd, both change in one transaction. A runtime's new driver "must be accompanied by removal of all pods" (k8s.io/cri-api,
LinuxRuntimeConfiguration): so the kubelet stops, the pods that a drain leaves end, the files are placed (that of the runtime only if it has
the other driver), the runtime restarts, and then the kubelet; a revert takes the same steps with the old files. Every other runtime must
have the wanted driver already, and the kubelet itself ends and creates the pods (pkg/kubelet/kubelet.go, SyncPod). On a control-plane node
the whole control plane would end at the same time, so such a node is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from roles.engine.bridge import Remote
from roles.engine.bridge.tasks import Timeout, sleep
from roles.engine.commands import command
from roles.engine.editing import FormatError
from roles.engine.harmless import one_line
from roles.engine.kube.fields import meta_of, name_of
from roles.engine.kube.pods import is_static
from roles.engine.kubelet import Kubelet, KubeletState, runtime, runtime_file
from roles.engine.kubelet.drained import DRIVER, RuntimeEdit
from roles.engine.node import ObservationError, is_younger, look
from roles.engine.node_changes import ComponentPlan
from roles.engine.proof import Proof, Survey
from roles.engine.remote import RemoteError
from roles.engine.timeouts import patient
from roles.engine.transaction import Change, FileEdit, Refusal, RuntimeRestart

# For the last processes of pods that ended: the kubelet gives each its grace period.
END_SECONDS = 60
_PODS_END = (
    "while it restarts no pod runs on the node; those that a drain leaves end as at a reboot (SIGTERM, SIGKILL after 30 s, no preStop hook)"
)


def ask(remote: Remote, kubelet: Kubelet, configuration: Mapping[str, Any]) -> runtime.Runtime:
    """What the node's container runtime says of itself; without an answer, with the `problem`."""
    try:
        script = runtime.question(runtime.socket(kubelet, configuration))
        answer = remote.run("sh -s", stdin=script, timeout=patient(runtime.SECONDS))
    except (ValueError, RemoteError) as error:
        return runtime.Runtime(problem=one_line(str(error)))
    return runtime.parse(answer.stdout)


def with_runtime(remote: Remote, state: KubeletState) -> KubeletState:
    """The state with what its container runtime says, and with the runtime's configuration file."""
    found = ask(remote, state.kubelet, state.configuration)
    if found.path and not found.problem:
        # A file that cannot be read is not changed.
        with contextlib.suppress(ObservationError, RemoteError):
            found = replace(found, file=look(remote, lambda _: ([found.path], [])).file(found.path))
    return replace(state, runtime=found)


def check(state: KubeletState, components: Collection[str], after: Mapping[str, Any], *, may_edit: bool = True) -> RuntimeEdit | None:
    """How the runtime takes part in the change to the cgroup driver of the configuration `after`; None if it has that driver, and daytwo
    does not know how to restart it. `components`: those of the node's control plane. Raises Refusal if it has another driver and its file
    cannot be edited, or must not be (`may_edit`)."""
    wanted = str(after.get(DRIVER) or runtime.CGROUPFS)
    if own := [*components, *_etcd(state)]:
        raise Refusal(
            state.host,
            f"{DRIVER} {wanted}: the kubelet would end the control plane's pods ({', '.join(own)}) at the same time",
            "by hand, one such node after the other: drain it, stop its kubelet, set the driver of runtime and kubelet, reboot it",
        )
    found = state.runtime
    if found is None or found.problem:
        problem = found.problem if found else "it was not asked"
        raise Refusal(
            state.host,
            f"{DRIVER} {wanted}: it is not known which driver the container runtime has ({problem}); with another one no pod would start",
            "make it answer (compare `crictl info` on the node), or change both by hand on a drained node, and reboot it",
        )
    if found.drivers == {wanted}:
        note = f"{found.name} has {wanted}, and restarts, too: {_PODS_END}"
        return RuntimeEdit(wanted, RuntimeRestart(found.unit, found.path), None, note) if found.unit else None
    try:
        if may_edit:
            return _edit(found, wanted)
        why = ""
    except FormatError as error:
        why = f"; daytwo does not change it: {error}"
    raise Refusal(state.host, f"{DRIVER} {wanted}: {_disagreement(found, wanted)}{why}", _way_out(state, found, wanted))


def _edit(found: runtime.Runtime, wanted: str) -> RuntimeEdit:
    """The runtime's file with the wanted driver. Raises FormatError: why daytwo does not change it."""
    if not found.unit:
        raise FormatError(f"it is not containerd with a unit {runtime.CONTAINERD} that serves the kubelet's socket")
    file = found.file
    if file is None or file.data is None or file.why_not_replaceable() is not None:
        why = file.why_not_replaceable() if file is not None and file.kind != "none" else None
        raise FormatError(f"{one_line(found.path)} {why or 'is no file that can be read'}")
    if others := [place for place in found.places if not place.startswith(f"{one_line(found.path)}:")]:
        raise FormatError(f"another file sets it, too ({'; '.join(others)})")
    if is_younger(file.mtime, found.started):
        raise FormatError(f"{one_line(found.path)} was written after the runtime had started, and a restart would apply all of that")
    try:
        same = runtime_file.drivers(file.data) == dict(found.handlers)
        new = runtime_file.with_driver(file.data, wanted)
    except FormatError as error:
        raise FormatError(f"{one_line(found.path)}: {error}") from None
    if not same:
        raise FormatError(f"{one_line(found.path)} does not say what it runs with")
    note = f"{found.name} changes to {wanted}, too ({'; '.join(found.places)}): {_PODS_END}"
    return RuntimeEdit(wanted, RuntimeRestart(found.unit, found.path), FileEdit(found.path, file.data, new), note)


def with_runtime_edit(change: Change, edit: RuntimeEdit) -> Change:
    """The change in which the runtime takes part. An undo may have the runtime's file already. Raises Refusal if that brings another
    driver."""
    own = next((one for one in change.files if one.path == edit.restart.path), None)
    if own is None:
        return replace(change, files=(*change.files, *([edit.file] if edit.file else [])), runtime=edit.restart)
    try:
        right = own.after is not None and {*runtime_file.drivers(own.after).values()} == {edit.driver}
    except FormatError:
        right = False
    if not right:
        raise Refusal(change.node, f"{one_line(own.path)}, as it was before, has another cgroup driver", "set the driver of both by hand")
    return replace(change, runtime=edit.restart)


def _etcd(state: KubeletState) -> list[str]:
    """The static pods of etcd, which may be alone on a node."""
    names = [name_of(pod) for pod in state.pods if is_static(pod)]
    return [one_line(name) for name in names if name.startswith("etcd")]


def _disagreement(found: runtime.Runtime, wanted: str) -> str:
    where = f"; set in {'; '.join(found.places)}" if found.places else ""
    if found.reported:
        return (
            f"{found.name} has the driver {found.reported}, which it reports to the kubelet (CRI RuntimeConfig), and the kubelet ignores"
            f" its own field{where}"
        )
    having = ", ".join(f"{handler} {driver}" for handler, driver in found.handlers.items())
    return f"{found.name} runs with another driver ({having}), and while the kubelet had {wanted} no pod would start{where}"


def _way_out(state: KubeletState, found: runtime.Runtime, wanted: str) -> str:
    line = f'cgroup_manager = "{wanted}"'
    if not found.name.startswith("cri-o"):
        line = f"SystemdCgroup = {'true' if wanted == runtime.SYSTEMD else 'false'} for each handler that starts runc"
    node = one_line(str(meta_of(state.node).get("name") or state.kubelet.node_name))
    return (
        f"the runtime first: `{command('drain', nodes=node)}`, set {line}, restart the runtime, run this again, and"
        f" `{command('uncordon', nodes=node)}`"
    )


def recheck(found: Survey, host: str, planned: ComponentPlan) -> str | None:
    """Asks the runtime again right before a change. A text if the change must no longer begin."""
    if not planned.recreates_pods or planned.state is None:
        return None
    try:
        change = planned.change
        edits = change is not None and change.runtime is not None and any(one.path == change.runtime.path for one in change.files)
        node = found.nodes[host]
        check(with_runtime(node.remote, planned.state), node.components, planned.settings, may_edit=edits)
    except Refusal as refusal:
        return str(refusal)
    return None


def proof(survey: Survey, host: str, planned: ComponentPlan) -> Proof | None:
    """That the runtime still has the kubelet's driver, and that no process of a pod is left in the cgroups of the other one. None for a
    change that has nothing to do with it."""
    if not planned.recreates_pods or planned.state is None:
        return None
    remote, wanted = survey.nodes[host].remote, str(planned.settings.get(DRIVER) or runtime.CGROUPFS)
    found = ask(remote, planned.state.kubelet, planned.state.configuration)
    with Timeout(patient(END_SECONDS), False):
        while not found.problem and _left(found, wanted):
            sleep(2)
            found = ask(remote, planned.state.kubelet, planned.state.configuration)
    return judged(found, wanted)


def judged(found: runtime.Runtime, wanted: str) -> Proof:
    """The proof from the runtime's answer after the change."""
    if found.problem:
        return Proof("", (f"the container runtime's driver is not known now: {found.problem}",))
    problems = []
    if found.drivers != {wanted}:
        problems.append(f"{found.name} has the cgroup driver {' and '.join(sorted(found.drivers))} now, not {wanted}")
    if left := _left(found, wanted):
        problems.append(f"processes of pods are still in the cgroups of the other driver ({left})")
    inside = "processes of pods only" if found.processes.get(wanted) else "no process of a pod but"
    return Proof(f"{found.name} has {wanted}, {inside} in {runtime.DIRECTORIES[wanted]}", tuple(problems))


def _left(found: runtime.Runtime, wanted: str) -> str:
    """The directories of other drivers that have processes."""
    return ", ".join(runtime.DIRECTORIES[driver] for driver, count in found.processes.items() if driver != wanted and count)
