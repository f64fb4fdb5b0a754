"""Labels and taints of nodes: planned by the API server's dry run, written with the field manager daytwo, read back, undone by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet
from roles.engine.folding import counted
from roles.engine.inputs import Changes, Declared, Undo
from roles.engine.kube import Object, is_ending, uid
from roles.engine.kube.fields import name_of
from roles.engine.object_runs import Consents, ObjectRun, connect_cluster, planned_run
from roles.engine.objects import NotDone, ObjectChange, ObjectWriter, Session, undo_plan
from roles.engine.runs import Options, Turns, deploying
from roles.engine.runs.options import read_options
from roles.engine.timeouts import LOOK_AGAIN, Deadline
from roles.engine.transaction import ObjectsRecord, Refusal
from roles.node_labels.plan import (
    NODE,
    DesiredLabels,
    NodeChange,
    evicted_pods,
    plan_labels,
    plan_undo,
    read_labels,
)

#: The name in the records of runs that this package undoes.
CAPABILITY = "node_labels"
# Seconds to wait for the deletion of all pods that are evicted at once: the controller evicts them one after another.
EVICTION = 60.0


def _read(fleet: Fleet) -> tuple[Options, dict[str, DesiredLabels]]:
    options = read_options(fleet.targets)
    with bridge.refusing(Refusal):
        desired = read_labels([(remote.name, remote.data) for remote in fleet.targets])
    if not desired:
        raise bridge.refuse("no host of this run has node_labels or node_taints in its data; set them there, or with --limit and --data")
    return options, desired


@deploying("Node labels", _read)
def node_labels(fleet: Fleet, asked: tuple[Options, dict[str, DesiredLabels]]) -> Turns:
    """Set the labels and taints that the data of the nodes names.

    Data keys: those of roles/node_labels/plan.py, and take_over (roles/engine/runs/options.py). Raises DeployError before any write if
    the plan is refused.
    """
    options, desired = asked
    force, _, kubeconfig = next(iter(desired.values())).of_run
    reached = connect_cluster(fleet, kubeconfig)
    names = {host: reached.names[host] for host in desired}
    nodes, pods = _read_nodes(reached.session, (NODE.path_of("", name) for name in names.values()))
    plan = plan_labels(desired, names, nodes, pods)
    wanted = {host: one.model_dump() for host, one in desired.items()}
    run = planned_run(fleet, options, plan, NodeWriter(reached.session, force=force), wanted, CAPABILITY, "changes")
    return Turns.of(run, fleet, "apply, and read back")


def undo(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a run of this deploy. Raises DeployError if someone else has changed the same fields since."""
    session = connect_cluster(fleet, consents.kubeconfig).session
    nodes, pods = _read_nodes(session, (one.path for one in record.objects))
    back = undo_plan(record, [NODE], nodes, force=consents.force)
    plan = plan_undo(back, pods, force=consents.force, allow_evictions=consents.allow_evictions)
    return planned_run(fleet, options, plan, NodeWriter(session, force=consents.force), record, CAPABILITY, "changes")


def _read_nodes(session: Session, paths: Iterable[str]) -> tuple[dict[str, Object], dict[str, list[dict[str, Any]]]]:
    """The nodes, and their pods, by the path of the node. Raises DeployError."""
    with bridge.refusing(ApiFailure, "the nodes cannot be read: "):
        nodes: dict[str, Object] = {path: found for path in paths if (found := session.fetch(path)) is not None}
        return nodes, {path: _pods(session, node) for path, node in nodes.items()}


def _pods(session: Session, node: Object) -> list[dict[str, Any]]:
    return session.fetch_all("/api/v1/pods", fields=f"spec.nodeName={name_of(node)}")


class NodeWriter(ObjectWriter):
    """Writes labels and taints."""

    def ready(self, change: ObjectChange) -> None:
        """Only pods that the plan named may be evicted."""
        assert isinstance(change, NodeChange) and change.before is not None
        known = {one.uid for one in change.evicted}
        now = evicted_pods(_pods(self.session, change.before), change.after)
        if new := [one.name for one in now if one.uid not in known]:
            raise NotDone(f"it would also evict {', '.join(new)}, which came to the node after daytwo read it; run this again")

    def followed(self, change: ObjectChange) -> str:
        """The evicted pods. Pods that tolerate the taint for some time are evicted later, and do not count."""
        assert isinstance(change, NodeChange) and change.before is not None
        now = {one.uid: one.name for one in change.evicted if not one.after}
        if not now:
            return ""
        deadline = Deadline(EVICTION)
        while left := {uid(pod) for pod in _pods(self.session, change.before) if uid(pod) in now and not is_ending(pod)}:
            if deadline.over:
                names = ", ".join(name for one, name in now.items() if one in left)
                why = f"not evicted after {deadline.passed:.0f} s; check kube-controller-manager, which evicts for taints"
                self.warnings.append((change.name, f"{change.name}: {names}: {why}"))
                return f"{counted(len(left), 'pod')} STILL THERE"
            deadline.pause(LOOK_AGAIN)
        return f"evicted: {', '.join(now.values())}"


DATA_KEYS = (Declared(DesiredLabels, ("node_labels",), changes=Changes.OBJECTS, undo=Undo(undo, (NODE.writable,))),)

__all__ = ["CAPABILITY", "DATA_KEYS", "node_labels", "undo"]
