"""Flags of the three components, planned for a node that has been seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.control_plane_flags import DesiredFlags, NodeFlags, judge_flags, plan_flags, read_flags
from roles.engine.control_plane import RULES
from roles.engine.node import Observation
from roles.engine.node_changes import Verdicts
from tests.unit.node import node
from tests.unit.node.node import file_line, parse
from tests.unit.node.surveyed import surveyed

SCHEDULER, MANAGER, API = "kube-scheduler", "kube-controller-manager", "kube-apiserver"
ARGV = {
    API: (API, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"),
    MANAGER: (MANAGER, "--leader-elect=true"),
    SCHEDULER: (SCHEDULER, "--kubeconfig=/etc/kubernetes/scheduler.conf"),
}


def wanted(data: Mapping[str, Any]) -> DesiredFlags:
    found = read_flags("cp1", data.get)
    assert found is not None
    return found


def seen(
    files: Mapping[str, bytes | None] | None = None, manifests: Mapping[str, bytes] | None = None, **argv: tuple[str, ...]
) -> Observation:
    components = {**ARGV, **{f"kube-{name}": words for name, words in argv.items()}}
    written = {f"{name}.yaml": node.manifest(*words) for name, words in components.items()}
    lines = [file_line(path, data) for path, data in (files or {}).items()]
    return parse("cp1", node.answer(manifests={**written, **(manifests or {})}, components=components, extra=lines))


def plan(data: Mapping[str, Any], looked: Observation | None = None) -> NodeFlags:
    desired = wanted(data)
    return plan_flags("r1", surveyed(looked or seen(dict.fromkeys(desired.control_plane_files))), desired)


def judged(data: Mapping[str, Any], looked: Observation | None = None, **verdicts: Any) -> NodeFlags:
    made = plan(data, looked)
    answers = {name: "" for one in made.changing for name in (one.component, one.component + RULES)}
    return judge_flags(made, Verdicts(**{"against": {**answers, **verdicts.pop("against", {})}, **verdicts}), wanted(data))
