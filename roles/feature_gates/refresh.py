"""Write the shipped table of gates (gates.json) from the collected facts: python -m roles.feature_gates.refresh FACTS.yaml >gates.json

The facts are a YAML document with `meta` and `gates`; docs/reference/feature-gates.md lists its keys and the source of each.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
# The facts' names for code that is built into more than one component.
_SHARED = {
    "client-go(all)": COMPONENTS,
    "shared-library:component-base": COMPONENTS,
    "shared-library:controller-manager": ("kube-controller-manager",),
    "shared-library:pkg/credentialprovider": ("kubelet",),
    "shared-library:pkg/security": ("kubelet",),
    "volume-plugins(kubelet,kube-controller-manager)": ("kube-controller-manager", "kubelet"),
}
# Registration is global, except for packages that a component does not import; observed on the binaries.
_UNKNOWN_TO = {"ControllerManagerReleaseLeaderElectionLockOnExit": ["kube-scheduler"]}
# Corrections to the facts, from the binaries and sources of Kubernetes itself: a gate's first minor, and how releases shipped it.
_CORRECTED: Mapping[str, Mapping[str, Any]] = {
    # Its default is a constant, which a search for literals missed.
    "ContextualLogging": {"first_seen": "1.24"},
    # Only a fork has them before 1.33.
    "StreamingCollectionEncodingToJSON": {"first_seen": "1.33", "as_shipped_differs": {}},
    "StreamingCollectionEncodingToProtobuf": {"first_seen": "1.33", "as_shipped_differs": {}},
}
_ABOUT = [
    "Feature gates of Kubernetes by minor release. Facts only; docs/reference/feature-gates.md says how to update them.",
    "stages: [minor, stage, default] with `locked` (it cannot be set to the other value): from that minor on; 0: before the gate existed.",
    "shipped: minors whose last patch release has a stage or default that differs from what later versions list.",
    "from, to: the first minor that knows the gate, and the first that no longer does. A component stops at a name it does not know.",
    "readers: the components whose code names the gate, in the newest minor that has any; others: readers that daytwo does not configure.",
    "kep: components by the gate's KEP. needs: gates that must be on with it, as the minor `in` has it; checked since 1.35.",
    "unknown_to: components that do not know it though the others do.",
]


def table(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The table as in gates.json. Raises KeyError or ValueError if the facts do not have the known form."""
    meta = facts["meta"]
    sources: dict[str, list[str]] = {}
    for source in meta["sources"]:
        what = str(source.get("minor") or source["what"])
        found = " ".join(str(source[key]) for key in ("repo", "ref", "path") if key in source)
        commit = source.get("commit") or source.get("commit_1_36")
        patch = f" ({source['patch']})" if source.get("patch") else ""
        sources.setdefault(what, []).append(f"{found}{patch} @{commit}")
    provisional = _minor(meta["provisional_minor"])
    return {
        "about": _ABOUT,
        "as_of": max(str(source["date"]) for source in meta["sources"] if "date" in source),
        "sources": sources,
        "minors": [_minor(minor) for minor in meta["kubernetes_minors"]],
        "newest": _minor(meta["newest_stable_minor"]),
        "provisional": provisional,
        "gates": {name: _gate(name, found, provisional) for name, found in sorted(facts["gates"].items())},
    }


def _gate(name: str, facts: Mapping[str, Any], provisional: int) -> dict[str, Any]:
    facts = {**facts, **_CORRECTED.get(name, {})}
    stages = [_stage(_minor(step["version"]), step) for step in facts["stages"]]
    gate: dict[str, Any] = {"from": _minor(facts["first_seen"]) if "first_seen" in facts else provisional}
    if "removed_in" in facts:
        gate["to"] = _minor(facts["removed_in"])
    next_stage = facts.get(f"dev_1_{provisional}")
    if next_stage == "removed":
        gate["to"] = provisional
    elif next_stage is not None and (not stages or stages[-1][1:] != _stage(provisional, next_stage)[1:]):
        stages.append(_stage(provisional, next_stage))
    if not stages:
        raise ValueError(f"{name} has no stage in any minor")
    gate["stages"] = stages
    if shipped := facts.get("as_shipped_differs"):
        gate["shipped"] = {str(_minor(minor)): _shipped(stage) for minor, stage in shipped.items()}
    if "readers" in facts:
        of = {component for reader in facts["readers"] for component in _SHARED.get(reader, (reader,))}
        gate["readers"] = {"in": _minor(facts["readers_in"]), "of": [known for known in COMPONENTS if known in of]}
        if others := sorted(of - {*COMPONENTS}):
            gate["others"] = others
    if kep := sorted({*facts.get("kep_components", ())} & {*COMPONENTS}):
        gate["kep"] = kep
    if "depends_on" in facts:
        gate["needs"] = {"in": _minor(facts["depends_on_in"]), "of": sorted(facts["depends_on"])}
    if name in _UNKNOWN_TO:
        gate["unknown_to"] = _UNKNOWN_TO[name]
    return gate


def _minor(version: object) -> int:
    found = re.fullmatch(r"1\.([0-9]+)", version) if isinstance(version, str) else None
    if not found:
        raise ValueError(f"{version!r} is not a minor such as 1.36; quote it, or YAML drops a trailing zero")
    return int(found.group(1))


def _stage(minor: int, facts: Mapping[str, Any]) -> list[Any]:
    step: list[Any] = [minor, str(facts["stage"]), bool(facts["default"])]
    if facts["lockToDefault"]:
        step.append("locked")
    if "min_compat" in facts:
        raise ValueError("min_compat: an entry that holds only for a --min-compatibility-version; this table cannot hold it yet")
    return step


def _shipped(text: str) -> list[Any]:
    stage, _, default = text.partition("/")
    return [stage, {"true": True, "false": False}[default]]


def text(content: Mapping[str, Any]) -> str:
    """The table as text, with one gate per line: a diff then shows what a new minor changes."""
    head = [f' "{key}": {_head(value)},' for key, value in content.items() if key != "gates"]
    gates = [f"  {json.dumps(name)}: {json.dumps(gate)}" for name, gate in content["gates"].items()]
    return "\n".join(["{", *head, ' "gates": {', ",\n".join(gates), " }", "}", ""])


def _head(value: Any) -> str:
    """One item per line for names and sentences; numbers on one line."""
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(item)}" for key, item in value.items()) + "\n }"
    if isinstance(value, list) and isinstance(value[0], str):
        return "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n ]"
    return json.dumps(value)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.write(text(table(YAML(typ="safe").load(Path(sys.argv[1])))))
