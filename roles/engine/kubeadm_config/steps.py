"""The steps of a run that write kubeadm's ConfigMaps: last in a change, first in a roll-back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.context import ClusterStep
from roles.engine.editing import FormatError
from roles.engine.harmless import one_line
from roles.engine.kube.fields import labels_of
from roles.engine.kubeadm_config import plan
from roles.engine.kubeadm_config.plan import ComponentDesired, Edited
from roles.engine.kubeadm_config.stored import CLUSTER, KEYS, KUBELET, NAMESPACE, StoredSettings, read_stored
from roles.engine.kubeadm_config.write import write
from roles.engine.kubelet import ask
from roles.engine.node.virtual import virtual_mark
from roles.engine.objects import Session
from roles.engine.proof import Survey
from roles.engine.remote import RemoteError
from roles.engine.runs import Options
from roles.engine.timeouts import patient
from roles.engine.transaction import Refusal

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_UNKNOWN = "unrecognized feature gate"
ASK_SECONDS = 120
_LEAVE = "skip the ConfigMaps with --data persist=false (the next `kubeadm upgrade` then removes what they lack)"


@dataclass
class ClusterWrites:
    """What a run writes to the ConfigMaps. `notes` are for the plan; `settled`: by ConfigMap, the settings that it has already; `lasting`:
    the content of the ConfigMaps when the plan was made."""

    steps: list[ClusterStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lasting: StoredSettings = field(default_factory=StoredSettings)
    settled: dict[str, str] = field(default_factory=dict)
    edited: dict[str, Edited] = field(default_factory=dict)

    def rows(self) -> list[list[str]]:
        """Rows of the final table: ConfigMap, setting, before, after, outcome, seconds, proof; for an undo: ConfigMap, undone change,
        outcome, seconds, proof."""
        rows = []
        for step in self.steps:
            done = step.outcome == "confirmed"
            seconds = f"{step.seconds:.0f}" if step.seconds else "-"
            if step.undoes:
                rows.append([step.name, step.undoes, step.outcome, seconds, step.how or step.why or "-"])
                continue
            for changed in self.edited[step.name].fields:
                before, after = plan.shown(changed.before), plan.shown(changed.after if done else changed.before)
                rows.append([step.name, ".".join(changed.path), before, after, step.outcome, seconds, step.how or step.why or "-"])
        rows += [[name, names, "-", "-", "no change", "0", "has it already"] for name, names in self.settled.items()]
        return rows


def plan_writes(found: Survey, members: Sequence[ComponentDesired], options: Options) -> ClusterWrites:
    """The writes that keep the settings of a run across upgrades. Raises DeployError, with the way out, if the ConfigMaps cannot be read or
    edited."""
    connect = found.cluster.api
    try:
        lasting = read_stored(found.reading.object)
        listed = found.reading.nodes()
        nodes = {name: _is_control_plane(item) for name, item in listed.items() if virtual_mark(item) is None}
    except ApiFailure as error:
        why = f"kubeadm's ConfigMaps {CLUSTER} and {KUBELET} cannot be read, so it is unknown what survives an upgrade: {error}"
        if options.persist and not options.allow_unproven:
            raise bridge.refusals([f"{why}; fix that, or {_LEAVE}"]) from None
        return ClusterWrites(notes=[f"WARNING {why}; they are not changed"])
    if not lasting.by_kubeadm:
        return ClusterWrites(
            notes=[f"This cluster has no ConfigMap {NAMESPACE}/{CLUSTER}: kubeadm did not make it, and does not overwrite these settings."]
        )
    shared = plan.share(members, nodes, lasting)
    writes = ClusterWrites(notes=list(shared.notes), lasting=lasting)
    refusals: list[object] = []
    for name in KEYS:
        wanted = {component: paths for component, paths in shared.wanted.items() if (component == "kubelet") == (name == KUBELET)}
        if not wanted:
            continue
        names = _names(wanted)
        if name not in lasting.maps:
            writes.notes.append(
                f"ConfigMap {NAMESPACE}/{name} does not exist (kubeadm before 1.24 has one for each minor): {names} is not written."
            )
            continue
        try:
            edit = plan.editor(name, wanted, members)
            edited = edit(lasting.maps[name].data)
        except FormatError as error:
            refusals.append(f"{error.in_file(f'ConfigMap {NAMESPACE}/{name}')}: {names} cannot be written there; fix that, or {_LEAVE}")
            continue
        if not edited.fields:
            writes.settled[name] = names
        elif not options.persist:
            fields = ", ".join(map(str, edited.fields))
            writes.notes.append(
                f"persist=false: {name} is not changed, and the next `kubeadm upgrade` restores its values; it lacks: {fields}"
            )
        else:
            if name == KUBELET and (said := _refused(found, edited.after)):
                refusals.append(f"{name}: {said}; fix that, or {_LEAVE}")
            writes.edited[name] = edited
            writes.steps.append(_step(name, edited, lasting, partial(write, Session(connect), name, edit)))
    if options.persist:
        bridge.stop(refusals)
    return writes


def _refused(found: Survey, candidate: bytes) -> str:
    """Why a kubelet refuses the edited kubelet-config, or "": a node that joins gets that. Asks the first node that kubeadm made. The plan
    of the node already judges gates that its kubelet does not know."""
    for host, node in found.nodes.items():
        if node.kubelet.style != "kubeadm" or node.kubelet.config_path is None:
            continue
        argv = node.kubelet.service.known_argv or node.kubelet.process.argv
        # The survey refuses a node whose kubelet's command line cannot be used for a question.
        script = ask.script([ask.ask_kubelet(node.kubelet, argv, {node.kubelet.config_path: candidate})])
        try:
            said = ask.verdicts(node.remote.run("sh -s", stdin=script, timeout=patient(ASK_SECONDS)).stdout).get("kubelet")
        except RemoteError as error:
            return str(error)
        if said is None:
            return f"the kubelet of {host} gave no answer about its new content"
        if said and _UNKNOWN not in said:
            return f"the kubelet of {host} refuses its new content: {said}"
        return ""
    return ""


def _names(wanted: Mapping[str, Mapping[plan.ConfigMapPath, Any]]) -> str:
    names = (f"{plan.name_of(path)}={plan.shown(value)}" for paths in wanted.values() for path, value in paths.items())
    return ", ".join(dict.fromkeys(names))


def _is_control_plane(node: Mapping[str, Any]) -> bool:
    return any(label in labels_of(node) for label in _CONTROL_PLANE)


def _step(name: str, edited: Edited, lasting: StoredSettings, carry_out: Callable[..., str]) -> ClusterStep:
    fields = ", ".join(map(str, edited.fields))
    return ClusterStep(
        name,
        fields,
        plan.diff(name, lasting.maps[name].data, edited.after),
        carry_out,
        f"the nodes are as shown above, but {fields} does not survive the next `kubeadm upgrade`: upgraded nodes, and nodes that join, get"
        f" the values of {name}",
    )


def plan_undo(found: Survey, records: Mapping[str, Sequence[tuple[str, Sequence[Mapping[str, Any]]]]], force: bool) -> ClusterWrites:
    """The steps that restore values of kubeadm's ConfigMaps, and notes on ConfigMaps that have them already. `records`: by ConfigMap the
    changes to undo, newest first, each with its fields. Raises DeployError if someone else changed a value since, unless `force`."""
    connect = found.cluster.api
    steps: list[ClusterStep] = []
    notes: list[str] = []
    reasons: list[object] = []
    with bridge.refusing(ApiFailure):
        lasting = read_stored(found.reading.object)
    for name, changes in records.items():
        try:
            if name not in lasting.maps:
                raise Refusal(f"{NAMESPACE}/{one_line(name)}", "it does not exist", "skip it with --data persist=false")
            edit = plan.undo(name, plan.undoing([fields for _, fields in changes]), force)
            edited = edit(lasting.maps[name].data)
        except FormatError as error:
            reasons.append(f"{error.in_file(f'ConfigMap {NAMESPACE}/{name}')}; fix that, or skip it with --data persist=false")
            continue
        except Refusal as refusal:
            reasons.append(refusal)
            continue
        if not edited.fields:
            notes.append(f"{name} has the old values already")
            continue
        diff = plan.diff(name, lasting.maps[name].data, edited.after)
        lost = "no node was touched, and it still has the values to undo"
        undoes = changes[0][0]
        fields = ", ".join(map(str, edited.fields))
        steps.append(ClusterStep(name, f"undo {undoes} ({fields})", diff, partial(write, Session(connect), name, edit), lost, undoes))
    bridge.stop(reasons)
    return ClusterWrites(steps, notes)
