"""The parts of a run that are written to kubeadm's ConfigMaps: last of a change, first of a roll-back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from roles.engine import bridge
from roles.engine.api import ApiError, list_objects
from roles.engine.bridge import Fleet, RemoteError
from roles.engine.editing import FormatError
from roles.engine.kubeadm_config import plan
from roles.engine.kubeadm_config.plan import ComponentDesired, Edited
from roles.engine.kubeadm_config.stored import CLUSTER, KEYS, KUBELET, NAMESPACE, Lasting, read
from roles.engine.kubeadm_config.write import API_WAIT, write
from roles.engine.kubelet import ask
from roles.engine.object_changes import Session
from roles.engine.proof import NoApi, Survey
from roles.engine.rollout import ClusterStep, Options
from roles.engine.timeouts import patient
from roles.engine.transaction import Refusal

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_UNKNOWN = "unrecognized feature gate"
ASK_SECONDS = 120
_LEAVE = "leave them alone by --data persist=false (what they do not say, the next `kubeadm upgrade` takes out again)"


@dataclass
class ClusterWrites:
    """What a run writes to the ConfigMaps; `notes` for the plan; `settled` the settings that they give already, by their name; `lasting`
    what they said when the plan was made."""

    steps: list[ClusterStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lasting: Lasting = field(default_factory=Lasting)
    settled: dict[str, str] = field(default_factory=dict)
    edited: dict[str, Edited] = field(default_factory=dict)

    def rows(self) -> list[list[str]]:
        """For the table of a run's end: ConfigMap, setting, before, after, outcome, seconds, proof; of what is undone ConfigMap, the change
        that is undone, outcome, seconds, proof."""
        made = []
        for step in self.steps:
            done = step.outcome == "confirmed"
            seconds = f"{step.seconds:.0f}" if step.seconds else "-"
            if step.undoes:
                made.append([step.name, step.undoes, step.outcome, seconds, step.how or step.why or "-"])
                continue
            for changed in self.edited[step.name].fields:
                before, after = plan.shown(changed.before), plan.shown(changed.after if done else changed.before)
                made.append([step.name, ".".join(changed.path), before, after, step.outcome, seconds, step.how or step.why or "-"])
        made += [[name, names, "-", "-", "no change", "0", "says so already"] for name, names in self.settled.items()]
        return made


def last(found: Survey, fleet: Fleet, members: Sequence[ComponentDesired], options: Options) -> ClusterWrites:
    """What makes the settings of a run last. Raises DeployError where that cannot be told, or not be written, with the way out."""
    connect = found.cluster.api
    try:
        api = connect()
        lasting = read(api, wait=API_WAIT)
        nodes = {str(item["metadata"]["name"]): _is_control_plane(item) for item in list_objects(api, "/api/v1/nodes", wait=API_WAIT)}
    except (ApiError, NoApi) as error:
        why = f"kubeadm's ConfigMaps {CLUSTER} and {KUBELET} cannot be read, so what of this lasts is not known: {error}"
        if options.persist and not options.allow_unproven:
            raise bridge.refusals([f"{why}; mend that, or {_LEAVE}"]) from None
        return ClusterWrites(notes=[f"WARNING {why}; they are left as they are"])
    if not lasting.by_kubeadm:
        return ClusterWrites(
            notes=[f"This cluster has no ConfigMap {NAMESPACE}/{CLUSTER}: kubeadm did not make it, and would not overwrite this."]
        )
    shared = plan.share(members, nodes, lasting)
    made = ClusterWrites(notes=list(shared.told), lasting=lasting)
    refusals: list[object] = []
    for name in KEYS:
        wanted = {component: paths for component, paths in shared.wanted.items() if (component == "kubelet") == (name == KUBELET)}
        if not wanted:
            continue
        names = _names(wanted)
        if name not in lasting.maps:
            made.notes.append(
                f"There is no ConfigMap {NAMESPACE}/{name} (kubeadm before 1.24 has one for each minor): {names} is not written."
            )
            continue
        try:
            edit = plan.editor(name, wanted, members)
            edited = edit(lasting.maps[name].data)
        except FormatError as error:
            refusals.append(f"{error.in_file(f'ConfigMap {NAMESPACE}/{name}')}: {names} could not be written there; mend that, or {_LEAVE}")
            continue
        if not edited.fields:
            made.settled[name] = names
        elif not options.persist:
            fields = ", ".join(map(str, edited.fields))
            made.notes.append(
                f"persist=false: {name} is left as it is, and the next `kubeadm upgrade` brings back what it says now; it lacks: {fields}"
            )
        else:
            if name == KUBELET and (said := _refused(found, edited.after)):
                refusals.append(f"{name}: {said}; mend that, or {_LEAVE}")
            made.edited[name] = edited
            made.steps.append(_step(name, edited, lasting, partial(write, Session(connect), name, edit)))
    if options.persist:
        bridge.stop(refusals)
    return made


def _refused(found: Survey, candidate: bytes) -> str:
    """What the kubelet of a node that kubeadm made has against kubelet-config as it would be: a node that joins would be given that.
    Gates that it does not know were judged with its node's plan."""
    for host, node in found.nodes.items():
        if node.kubelet.style != "kubeadm" or node.kubelet.config_path is None:
            continue
        argv = node.kubelet.service.known_argv or node.kubelet.process.argv
        # A command line that could not be asked with was refused when the node was looked at.
        script = ask.script([ask.ask_kubelet(node.kubelet, argv, {node.kubelet.config_path: candidate})])
        try:
            said = ask.verdicts(node.remote.run("sh -s", stdin=script, timeout=patient(ASK_SECONDS)).stdout).get("kubelet")
        except RemoteError as error:
            return str(error)
        if said is None:
            return f"the kubelet of {host} could not be asked about it: it gave no answer"
        if said and _UNKNOWN not in said:
            return f"the kubelet of {host} refuses what it would say: {said}"
        return ""
    return ""


def _names(wanted: Mapping[str, Mapping[plan.ConfigMapPath, Any]]) -> str:
    told = (f"{plan.name_of(path)}={plan.shown(value)}" for paths in wanted.values() for path, value in paths.items())
    return ", ".join(dict.fromkeys(told))


def _is_control_plane(node: Mapping[str, Any]) -> bool:
    return any(label in (node["metadata"].get("labels") or {}) for label in _CONTROL_PLANE)


def _step(name: str, edited: Edited, lasting: Lasting, carry_out: Callable[..., str]) -> ClusterStep:
    fields = ", ".join(map(str, edited.fields))
    return ClusterStep(
        name,
        fields,
        plan.diff(name, lasting.maps[name].data, edited.after),
        carry_out,
        f"the nodes are as told above, and {fields} does not last: the next `kubeadm upgrade` of a node brings back what {name} says,"
        " and a node that joins gets that",
    )


def undo(
    found: Survey, fleet: Fleet, records: Mapping[str, Sequence[tuple[str, Sequence[Mapping[str, Any]]]]], force: bool
) -> ClusterWrites:
    """What puts values of kubeadm's ConfigMaps back, and what is as before already. `records`: by ConfigMap the changes that are undone,
    the newest first, each with its fields. Raises DeployError where somebody else changed one since, unless `force`."""
    connect = found.cluster.api
    steps: list[ClusterStep] = []
    notes: list[str] = []
    reasons: list[object] = []
    for name, changes in records.items():
        try:
            lasting = read(connect(), wait=API_WAIT)
            if name not in lasting.maps:
                raise Refusal(f"{NAMESPACE}/{name}", "it is gone", "leave it alone by --data persist=false")
            edit = plan.undo(name, plan.undoing([fields for _, fields in changes]), force)
            edited = edit(lasting.maps[name].data)
        except FormatError as error:
            reasons.append(f"{error.in_file(f'ConfigMap {NAMESPACE}/{name}')}; mend that, or leave it alone by --data persist=false")
            continue
        except (ApiError, NoApi, Refusal) as error:
            reasons.append(error)
            continue
        if not edited.fields:
            notes.append(f"{name} is as it was already")
            continue
        diff = plan.diff(name, lasting.maps[name].data, edited.after)
        lost = "no node was touched, and it still says what is to be undone"
        undoes = changes[0][0]
        fields = ", ".join(map(str, edited.fields))
        steps.append(ClusterStep(name, f"undo {undoes} ({fields})", diff, partial(write, Session(connect), name, edit), lost, undoes))
    bridge.stop(reasons)
    return ClusterWrites(steps, notes)
