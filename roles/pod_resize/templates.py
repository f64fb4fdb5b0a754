"""The pod template of a workload: its change, and the pods that this recreates. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roles.engine.api import Api
from roles.engine.kube import Object, full_name, preconditions
from roles.engine.kube.fields import containers_of, pod_template
from roles.engine.objects import TemplateChange, workload_rollout
from roles.engine.transaction import ChangedObject
from roles.pod_resize import pod_resources
from roles.pod_resize.pod_resources import Resources


@dataclass(frozen=True)
class Template(TemplateChange):
    """CPU and memory of the containers in a workload's template, before and after; `reverts`: it is the revert of another change."""

    kind: str
    item: Object
    path: str
    before: Mapping[str, Resources]
    after: Mapping[str, Resources]
    timeout: float
    reverts: bool = False
    said = "resources"

    @property
    def fields(self) -> list[dict[str, Any]]:
        """For the record."""
        return [
            {"path": ["spec", "template", "spec", "containers", name, "resources"], "before": self.before.get(name) or {}, "after": after}
            for name, after in self.after.items()
        ]

    def back(self) -> Template:
        return replace(self, before=self.after, after=self.before, reverts=True)

    def send(self, api: Api, of_version: str = "") -> Object:
        return api.patch(self.path, self.patch(of_version))

    def dry_run(self, api: Api) -> Object:
        return api.patch(self.path, self.patch(), dry_run=True)

    def patch(self, version: str = "") -> dict[str, Any]:
        """A strategic merge patch: a server-side apply by the same manager would remove fields that other deploys of daytwo set. The UID is
        a precondition, and so is the resourceVersion `version`, if given."""
        entries = pod_resources.patch_of((name, self.before.get(name) or {}, after) for name, after in self.after.items())
        return {"metadata": preconditions(self.uid, version), "spec": {"template": {"spec": {"containers": entries}}}}

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

    def proof(self, pods: Sequence[Object]) -> str:
        return "rolled out; pods that were resized in place keep their resources" if self.reverts else super().proof(pods)

    def reverted(self, proof: str) -> str:
        return f"reverted and {proof}"


def of(item: Object) -> dict[str, dict[str, dict[str, str]]]:
    """CPU and memory of the containers in a workload's template."""
    return {str(one.get("name")): pod_resources.of(one) for one in containers_of(pod_template(item))}


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


def of_template(changed: ChangedObject, side: str) -> dict[str, Resources]:
    """The resources in a recorded change of a template, by container: `side` is before or after."""
    return {field.path[4]: dict(getattr(field, side) or {}) for field in changed.fields if field.path[0] == "spec"}


def restored(
    kind: str, item: Object, path: str, changed: ChangedObject, timeout: float, *, force: bool
) -> tuple[Template | None, list[str]]:  # fmt: skip
    """The change that gives a template the resources of before a recorded one, if that changed it; and why it is refused."""
    before, after = of_template(changed, "before"), of_template(changed, "after")
    why = changed_since(item, before, after) if before and not force else None
    return update(kind, item, path, before, timeout) if before else None, [f"{kind} {full_name(item)}: {why}"] if why else []
