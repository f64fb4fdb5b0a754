"""Any flag of kube-apiserver, kube-controller-manager and kube-scheduler, and the files that flags name: changed one component at a time,
proven or reverted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from roles.control_plane_flags.compliance import unmet, unmet_files, wanted_of
from roles.control_plane_flags.dangers import API_SERVER
from roles.control_plane_flags.model import DesiredFlags, read_flags
from roles.control_plane_flags.places import misplaced
from roles.control_plane_flags.plan import FlagPlan, NodeFlags, differing, differing_files, digest, judge_flags, plan_flags
from roles.engine import kubeadm_config, kubelet
from roles.engine.bridge import Fleet
from roles.engine.control_plane import COMPONENTS
from roles.engine.editing import FlagValues
from roles.engine.inputs import Changes, Declared
from roles.engine.node import FilesWanted, Observation
from roles.engine.node_changes import Basis, Capability, ComponentPlan, NodeStep, Steps, Verdicts, change_nodes, ended, from_data
from roles.engine.proof import SurveyedNode
from roles.engine.proof.effective import written
from roles.engine.runs import Turns, deploying
from roles.engine.transaction import mask_text

# The first minor whose kubeadm keeps the order of several values in all of its patches.
KEEPS_THE_ORDER = 36
_NOTHING = (
    "no host has control_plane_flags or control_plane_files in its data; set them in group_data, or with"
    " --data control_plane_flags=COMPONENT:FLAG=VALUE"
)


def _wanted(fleet: Fleet) -> ControlPlaneFlags:
    desired = from_data(fleet, lambda remote: read_flags(remote.name, remote.data), _NOTHING)
    return ControlPlaneFlags(replace(desired, wanted=wanted_files(desired.by_host)))


@deploying("Control-plane flags", _wanted)
def control_plane_flags(fleet: Fleet, flags: ControlPlaneFlags) -> Turns:
    """Set the flags and files from the inventory's data.

    Data keys: control_plane_flags, control_plane_files, only, allow_flags, and those of roles/engine/runs/options.py. Raises DeployError
    before it writes to any node, if the plan is refused.
    """
    return change_nodes(fleet, flags)


def wanted_files(by_host: Mapping[str, DesiredFlags | None]) -> FilesWanted:
    """The files to read on a node: those of a survey, and those of its data."""

    def wanted(seen: Observation) -> tuple[list[str], list[str]]:
        usual, directories = kubelet.wanted(seen)
        desired = by_host.get(seen.host)
        paths = desired.control_plane_files if desired else {}
        return [*usual, *sorted(path for path in paths if seen.file(path) is None)], directories

    return wanted


class ControlPlaneFlags(Capability[DesiredFlags, NodeFlags]):
    """Flags of control-plane components, for the engine that changes nodes (roles/engine/node_changes/capability.py)."""

    columns = ("node", "component", "flag", "before", "after")

    def plan(self, basis: Basis, node: SurveyedNode, desired: DesiredFlags) -> NodeFlags:
        return plan_flags(basis.run_id, node, desired)

    def judge(self, basis: Basis, plan: NodeFlags, verdicts: Verdicts) -> NodeFlags:
        return judge_flags(plan, verdicts, self.desired.by_host[plan.host])

    def against_plans(self, basis: Basis, plans: Sequence[NodeFlags]) -> Iterable[object]:
        """Components that no chosen node runs."""
        named = {name for desired in self.desired.by_host.values() for name in desired.control_plane_flags}
        running = {planned.component for plan in plans for planned in plan.planned}
        return [f"{name}: no chosen node runs it as a static pod; choose control-plane nodes" for name in sorted(named - running)]

    def order(self, basis: Basis, plans: Sequence[NodeFlags]) -> tuple[list[ComponentPlan], bool]:
        """API servers first, one after the other; nodes keep the inventory's order."""
        changing: list[ComponentPlan] = [planned for plan in plans for planned in plan.changing]
        return sorted(changing, key=lambda planned: COMPONENTS.index(planned.component)), True

    def writes(self, basis: Basis, plans: Sequence[NodeFlags]) -> kubeadm_config.ClusterWrites:
        """Also notes what cannot last: flags that kubeadm itself writes, and values that hold a secret."""
        cluster_writes = super().writes(basis, plans)
        if cluster_writes.lasting.by_kubeadm:
            cluster_writes.notes += _not_lasting(cluster_writes.lasting, plans)
        return cluster_writes

    def notes(self, basis: Basis, plans: Sequence[NodeFlags]) -> list[str]:
        servers = {host: node.components[API_SERVER] for host, node in basis.found.observed.items() if API_SERVER in node.components}
        return [*differing(plans, servers), *differing_files(plans, servers)]

    def rows(self, basis: Basis, plans: Sequence[NodeFlags], steps: Steps) -> list[list[str]]:
        """One row for each flag, and for each file."""
        return [
            row for plan in plans for planned in plan.planned for row in _rows(plan, planned, steps.get((plan.host, planned.component)))
        ]


def _not_lasting(lasting: kubeadm_config.StoredSettings, plans: Sequence[NodeFlags]) -> list[str]:
    lines: dict[str, None] = {}
    for node, planned in ((made, one) for made in plans for one in made.planned):
        extras = lasting.extras.get(planned.component)
        for name, values in planned.wanted.items():
            flag = f"{planned.component} --{name}"
            if values is None and planned.now[name] is not None and (extras is None or name not in extras.flags):
                lines[f"{flag}: kubeadm writes it itself, and the next `kubeadm upgrade` brings it back; run this again after it"] = None
            if _sorted_by_kubeadm(planned, name, node.process(planned.component).minor):
                order = ", ".join(mask_text(written(name, (value,))) for value in sorted(values or ()))
                lines[
                    f"WARNING {planned.component}: a kubeadm that sorts the values of a flag (before 1.36 without the fix of kubeadm#3261)"
                    f" gives {order} in an upgrade. If their order counts, run this again after the upgrade"
                ] = None
            if (kubeadm_config.ARGUMENTS, name) not in planned.lasting:
                lines[f"{flag} looks like a secret: it is not kept in kubeadm's ConfigMap, and does not survive an upgrade"] = None
        for path, file in planned.files.items():
            if file is not None and planned.lasting.get((kubeadm_config.VOLUMES, path)):
                lines[f"{path} is on these nodes only: a control-plane node that joins needs it before `kubeadm join`"] = None
    return list(lines)


def _sorted_by_kubeadm(planned: FlagPlan, name: str, minor: int | None) -> bool:
    """Whether several values, in another order than that of their letters, may be sorted by the kubeadm of this minor
    (cmd/kubeadm/app/util/arguments.go, ArgumentsToCommand; kubernetes#135400)."""
    kept = planned.lasting.get((kubeadm_config.ARGUMENTS, name)) or []
    return list(kept) != sorted(kept) and (minor is None or minor < KEEPS_THE_ORDER)


def _rows(plan: NodeFlags, planned: FlagPlan, step: NodeStep | None) -> list[list[str]]:
    done = step is None or step.outcome == "confirmed"
    end = ended(step, "arguments of the running process")
    rows = []
    for name, values in planned.wanted.items():
        before, after = planned.now[name], values if done else planned.now[name]
        rows.append([plan.host, planned.component, f"--{name}", _shown(name, before), _shown(name, after), *end])
    for path, file in planned.files.items():
        now = digest(plan.kubelet.seen.data(path))
        wanted = digest(None if file is None else file.content)
        rows.append([plan.host, planned.component, path, now, wanted if done else now, *end])
    return rows


def _shown(name: str, values: FlagValues) -> str:
    if values is None:
        return "absent"
    return " ".join(mask_text(written(name, (value,))).partition("=")[2] for value in values)


DATA_KEYS = (Declared(DesiredFlags, ("control_plane_flags",), changes=Changes.NODES),)

__all__ = [
    "DATA_KEYS",
    "DesiredFlags",
    "control_plane_flags",
    "misplaced",
    "read_flags",
    "unmet",
    "unmet_files",
    "wanted_files",
    "wanted_of",
]
