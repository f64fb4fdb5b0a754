"""Compares the desired budgets with those of the cluster: one answer for the plan and for the checks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.disruption_budgets.model import BUDGET, MAX, MIN, Budget
from roles.engine.disruption import PDB, DisruptionObjects
from roles.engine.findings import Unmet
from roles.engine.inputs import did_you_mean
from roles.engine.kube import Object, namespace_and_name
from roles.engine.kube.fields import name_of, spec_of
from roles.engine.kube.names import whole_name
from roles.engine.kube.selectors import label_selector
from roles.engine.objects import ObjectPath, changed


class NoSelector(Exception):
    """Why a budget's workload gives it no selector, with the way out."""


def unmet_budget(item: Budget, live: DisruptionObjects) -> Unmet | None:
    """How the budget differs from the data; None if it does not. `live`: budgets and workloads of its namespace."""
    found = live.find(PDB, item.namespace, item.name)
    if item.absent:
        return None if found is None else Unmet(item.key, why="exists, wanted absent")
    if found is None:
        return Unmet(item.key, why="does not exist")
    try:
        differ = differences(item.manifest(selector_of(item, live)), found, other_limit(item, found))
    except NoSelector as error:
        return Unmet(item.key, why=str(error))
    return Unmet(item.key, tuple(differ)) if differ else None


def differences(manifest: Mapping[str, Any], found: Object, drops: ObjectPath | None) -> list[str]:
    """The names of the fields that an apply of `manifest` changes. `drops`: a field of others that is removed before."""
    after = {path: value for path, value in BUDGET.after_apply(manifest, found).items() if path != drops}
    return [one.path[-1] for one in changed(BUDGET.values(found), after)]


def other_limit(item: Budget, found: Object) -> ObjectPath | None:
    """minAvailable or maxUnavailable, whichever the data does not have, if the budget has it and someone else owns it."""
    path = MIN if item.max_unavailable is not None else MAX
    return path if path in BUDGET.values(found) and BUDGET.others(found, path) else None


def selector_of(item: Budget, live: DisruptionObjects) -> Mapping[str, Any]:
    """The selector of the budget, perhaps that of its workload. Raises NoSelector."""
    if item.selector is not None:
        return item.selector
    kind, name = item.kind_and_name
    if not kind:
        try:
            kind = whole_name(f"{item.namespace}/{name}", lambda kind, *place: live.find(kind, *place) is not None).split("/")[1]
        except ValueError as error:
            raise NoSelector(f"workload: {error}") from None
    found = live.find(kind, item.namespace, name)
    if found is None:
        there = [name_of(one) for one in live.of(kind) if namespace_and_name(one)[0] == item.namespace]
        near = did_you_mean(name, there) or f"; that namespace has {', '.join(sorted(there)) or 'none'}"
        raise NoSelector(f"{kind} {item.namespace}/{name} does not exist{near}")
    selector: Mapping[str, Any] = spec_of(found).get("selector") or {}
    if label_selector(selector).matches_everything:
        raise NoSelector(f"{kind} {item.namespace}/{name} has no selector; write one into the data")
    return selector
