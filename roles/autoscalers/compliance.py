"""Compares the desired autoscalers with those of the cluster: what deploys/checks.py asks. Pure.

The plan compares by the API server's dry run, which knows its defaults; here they are filled in as it fills them in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roles.autoscalers.model import HorizontalAutoscaler, VerticalAutoscaler
from roles.engine.autoscaling import HPA, Autoscaler, Behavior
from roles.engine.autoscaling.vertical import VPA
from roles.engine.findings import Unmet
from roles.engine.kube import Object, namespace_and_name
from roles.engine.kube.fields import spec_of


def unmet_autoscaler(
    item: HorizontalAutoscaler | VerticalAutoscaler, live: Mapping[str, Sequence[Object]]
) -> Unmet | None:  # fmt: skip
    """How the autoscaler differs from the data; None if it does not. `live`: the autoscalers by kind."""
    kind = HPA if isinstance(item, HorizontalAutoscaler) else VPA
    found = next((one for one in live.get(kind, ()) if namespace_and_name(one) == (item.namespace, item.own_name)), None)
    if item.absent:
        return None if found is None else Unmet(item.key, why="exists, wanted absent")
    if found is None:
        return Unmet(item.key, why="does not exist")
    if not item.kind:
        return Unmet(item.key, why=f"the kind of {item.data_key} could not be read")
    try:
        differ = _horizontal(item, found) if isinstance(item, HorizontalAutoscaler) else _vertical(item, found)
    except ValueError as error:
        return Unmet(item.key, why=f"it cannot be read: {error}")
    return Unmet(item.key, tuple(differ)) if differ else None


def _horizontal(item: HorizontalAutoscaler, found: Object) -> list[str]:
    wanted = Autoscaler.of({"metadata": {"namespace": item.namespace, "name": item.own_name}, "spec": item.manifest()})
    has = Autoscaler.of(found)
    pairs: dict[str, tuple[Any, Any]] = {
        "scaleTargetRef": ((wanted.target.kind, wanted.target.name), (has.target.kind, has.target.name)),
        "maxReplicas": (wanted.maximum, has.maximum),
        "metrics": (wanted.metrics, has.metrics),
    }
    if item.min is not None:
        pairs["minReplicas"] = (wanted.minimum, has.minimum)
    if item.behavior is not None:
        pairs["behavior"] = (_rounded(wanted.behavior), _rounded(has.behavior))
    return [name for name, (one, other) in pairs.items() if one != other]


def _rounded(behavior: Behavior | None) -> Behavior | None:
    """With tolerances that do not depend on how they are written: 0.07 and 70m."""
    if behavior is None:
        return None
    rules = [replace(one, tolerance=None if one.tolerance is None else round(one.tolerance, 9)) for one in (behavior.up, behavior.down)]
    return Behavior(*rules)


def _vertical(item: VerticalAutoscaler, found: Object) -> list[str]:
    has = spec_of(found)
    return [name for name, wanted in item.manifest().items() if has.get(name) != wanted]
