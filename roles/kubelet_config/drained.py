"""Changes that only a drained node can take, and the checkpoints that they remove. Pure; one rule for all deploys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from roles.engine.commands import command
from roles.engine.folding import shortened
from roles.engine.harmless import one_line
from roles.engine.kube import full_name
from roles.engine.kube.fields import meta_of, spec_of
from roles.engine.kube.pods import left_by_drain
from roles.engine.kubelet import KubeletState, drained
from roles.engine.transaction import Change, Refusal
from roles.kubelet_config import cgroups

# The refusal names this many pods.


def needed(state: KubeletState, components: Collection[str], after: Mapping[str, Any]) -> drained.Needed | None:
    """What this kubelet needs to run with `after`, compared with what it runs with; None if a restart is enough. `components`: those of
    the node's control plane. Raises Refusal if it would not start at all, if no pod would start there, or if a value cannot be parsed."""
    try:
        found = drained.needed(state.configuration, after, swap_on=state.kubelet.seen.swap != 0)
    except ValueError as error:
        raise Refusal(state.host, f"{error}; the kubelet would not start", "correct the value") from None
    if found is not None and (problems := drained.problems(after)):
        raise Refusal(state.host, "; ".join(problems))
    if found is not None and found.recreates and (edit := cgroups.check(state, components, after)) is not None:
        return replace(found, runtime=edit, notes=(*found.notes, edit.note))
    return found


def check(state: KubeletState, wanted: drained.Needed) -> None:
    """Raises Refusal unless the node is cordoned and only pods of DaemonSets and static pods are left on it."""
    why = []
    if not spec_of(state.node).get("unschedulable"):
        why.append("it is not cordoned")
    left = [full_name(pod) for pod in state.pods if not left_by_drain(pod)]
    if left:
        why.append(f"{len(left)} {'pod runs' if len(left) == 1 else 'pods run'} there ({one_line(shortened(left))})")
    if why:
        node = meta_of(state.node).get("name") or state.kubelet.node_name
        raise Refusal(
            state.host,
            f"{'; '.join(wanted.why)}. So the node must be drained, but {' and '.join(why)}",
            f"drain it first with `{command('drain', nodes=one_line(str(node)))}`, and run this again; or let this run do it with"
            " --data drain=auto",
        )


def complete(state: KubeletState, change: Change, wanted: drained.Needed) -> tuple[Change, dict[str, str]]:
    """The change that also removes the checkpoints, and restarts the container runtime with its new file; and, by their paths, the policies
    that the new checkpoints must have. Raises Refusal."""
    policies = {f"{state.kubelet.root_directory}/{name}": policy for name, policy in wanted.checkpoints.items()}
    if wanted.runtime is not None:
        change = cgroups.with_runtime_edit(change, wanted.runtime)
    return replace(change, checkpoints=tuple(policies)), policies


def warnings(wanted: drained.Needed, *, by_this_run: bool) -> list[str]:
    """What an operator should know about such a change; `by_this_run`: its run drains and uncordons the node."""
    cordoned = "the node stays cordoned; uncordon it when this and all other work on it is done"
    return [*wanted.notes, *([] if by_this_run else [cordoned])]
