"""The pod template of a workload: its change, and the pods that this recreates. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from roles.engine.kube import Object, full_name, uid
from roles.engine.kube.fields import namespace_of, pod_template, spec_of
from roles.engine.objects import workload_rollout
from roles.pod_resize import pod_resources
from roles.pod_resize.pod_resources import KINDS, RESOURCES, Resources


@dataclass(frozen=True)
class Template:
    """A change of a workload's template: CPU and memory of its containers before and after. `item` is the workload as it was read;
    `timeout`: that of its roll-out in seconds."""

    kind: str
    item: Object
    path: str
    before: Mapping[str, Resources]
    after: Mapping[str, Resources]
    timeout: float

    @property
    def name(self) -> str:
        return f"{self.kind} {full_name(self.item)}"

    @property
    def namespace(self) -> str:
        return namespace_of(self.item)

    @property
    def uid(self) -> str:
        return uid(self.item)

    def back(self) -> Template:
        return replace(self, before=self.after, after=self.before)

    def is_of(self, found: Object) -> bool:
        """True if this is the same workload, not a recreated one."""
        return uid(found) == self.uid

    def patch(self, version: str = "") -> dict[str, Any]:
        """A strategic merge patch: a server-side apply by the same manager would remove fields that other deploys of daytwo set. The UID is
        a precondition, and so is the resourceVersion `version`, if given."""
        entries = []
        for name, after in self.after.items():
            before = self.before.get(name) or {}
            values: dict[str, dict[str, str | None]] = {}
            for kind in KINDS:
                for resource in RESOURCES:
                    old, new = (before.get(kind) or {}).get(resource), (after.get(kind) or {}).get(resource)
                    if not pod_resources.same(old, new):
                        values.setdefault(kind, {})[resource] = new
            if values:
                entries.append({"name": name, "resources": values})
        preconditions = {"uid": self.uid, **({"resourceVersion": version} if version else {})}
        return {"metadata": preconditions, "spec": {"template": {"spec": {"containers": entries}}}}

    def changed(self, found: Object) -> str:
        """Why the template is no longer as written; "" if it is."""
        other = [
            f"{name}: {one}"
            for name, wanted in self.after.items()
            for one in pod_resources.differences(of(found).get(name) or {}, wanted)
        ]  # fmt: skip
        return f"someone else changed its template meanwhile: {', '.join(other)}" if other else ""

    def is_new(self, pod: Object) -> bool:
        return all(
            pod_resources.alike(pod_resources.of(pod_resources.container(pod, name) or {}), defaulted(wanted))
            for name, wanted in self.after.items()
        )


def of(item: Object) -> dict[str, dict[str, dict[str, str]]]:
    """CPU and memory of the containers in a workload's template."""
    spec = spec_of(pod_template(item))
    return {str(one.get("name")): pod_resources.of(one) for one in spec.get("containers") or ()}


def defaulted(resources: Resources) -> dict[str, dict[str, str]]:
    """The resources that a pod gets: an unset request defaults to the limit (pkg/apis/core/v1/defaults.go: SetDefaults_Pod)."""
    limits = dict(resources.get("limits") or {})
    requests = {**limits, **(resources.get("requests") or {})}
    return {kind: values for kind, values in (("requests", requests), ("limits", limits)) if values}


def update(kind: str, item: Object, path: str, wanted: Mapping[str, Resources], timeout: float) -> Template | None:
    """The change that gives the template the pods' resources; None if it has them already."""
    there = of(item)
    before = {name: there.get(name) or {} for name in wanted}
    if all(pod_resources.alike(defaulted(before[name]), defaulted(resources)) for name, resources in wanted.items()):
        return None
    return Template(kind, item, path, before, dict(wanted), timeout)


def recreates(kind: str, item: Object, count: int) -> str:
    return f"recreates all its pods, {count} of them ({workload_rollout.how_it_rolls(kind, item)})"


def changed_since(item: Object, before: Mapping[str, Resources], after: Mapping[str, Resources]) -> str | None:
    """Why restoring a template would overwrite someone else's change; None if it has what a run set, or what it had before that run."""
    there = of(item)
    other = [
        f"{name}: {pod_resources.resources_text(there.get(name) or {})}"
        for name in before
        if not any(pod_resources.alike(there.get(name) or {}, known.get(name) or {}) for known in (before, after))
    ]
    if not other:
        return None
    return f"someone else changed its template since ({', '.join(other)}); set it by hand, or undo the later change first"
