"""The plan: from the desired autoscalers, those that exist, and the API server's dry runs, to actions, refusals and notes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from roles.autoscalers.fields import changes, creators, is_ours, manifest_of, path_of, values
from roles.autoscalers.model import DesiredAutoscalers, HorizontalAutoscaler, VerticalAutoscaler
from roles.engine import disruption, kube
from roles.engine.autoscaling import HPA, LAST_APPLIED, VPA, JudgedAutoscaler, JudgedVertical, ScalingController, turns, without_replicas
from roles.engine.inputs import did_you_mean
from roles.engine.kube import Object
from roles.engine.object_changes import ObjectPath, ObjectPlan, object_diff

What = Literal["create", "update", "remove"]
Entry = HorizontalAutoscaler | VerticalAutoscaler
#: Problems that only an autoscaler has that the controller has seen already.
_LATER = frozenset(("not-handled", "starts-slowly"))
#: Likewise, of a vertical one: the proof asks for the recommendation.
_LATER_VERTICAL = frozenset(("no-recommendation", "updater-waits"))
STAYS = {
    HPA: "the count of its workload stays as it is",
    VPA: "pods keep the requests that they have; those that are created from now on get the template's",
}


@dataclass(frozen=True)
class AutoscalerAction:
    """One write. `before`: the object as it was read, None if it does not exist; `manifest`: what to apply, None: remove it, or `patch` it;
    `after`: its fields then, by the API server's dry run; `unproven`: why the controller cannot handle it now, with the consent to write it
    all the same."""

    what: What
    kind: str
    namespace: str
    own_name: str
    path: str
    before: Object | None
    manifest: Mapping[str, Any] | None
    summary: str
    after: Mapping[ObjectPath, Any] = field(default_factory=dict)
    patch: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    shown: str = ""
    unproven: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.own_name}"

    @property
    def name(self) -> str:
        return f"{self.kind} {self.key}"


def kind_of(entry: Entry) -> str:
    return HPA if isinstance(entry, HorizontalAutoscaler) else VPA


def check_only(desired: DesiredAutoscalers, plan: ObjectPlan[AutoscalerAction]) -> None:
    """Refuse names in `only` that the data does not have, and two entries for one object."""
    for name in desired.only or ():
        if name not in desired.known:
            near = did_you_mean(name, desired.known) or f"; the data has {', '.join(desired.known) or 'none'}"
            plan.refusals.append(f"only: {name!r} is not an entry of the data{near}")
    names = [(kind_of(one), one.key) for one in desired.entries]
    for kind, key in {one for one in names if names.count(one) > 1}:
        plan.refusals.append(f"{kind} {key}: two entries of the data have this name; set `name` in one of them")


def planned(
    entry: Entry, found: Object | None, desired: DesiredAutoscalers, plan: ObjectPlan[AutoscalerAction]
) -> AutoscalerAction | None:  # fmt: skip
    """The action for one entry, before its dry run; None if there is nothing to do, or if it is refused."""
    kind, name = kind_of(entry), f"{kind_of(entry)} {entry.key}"
    path = path_of(kind, entry.namespace, entry.own_name)
    if entry.absent:
        if found is None:
            plan.unchanged.append((name, "absent, as wanted"))
            return None
        if not is_ours(found) and not desired.force:
            plan.refusals.append(
                f"{name}: {creators(found)} created it, or changed it since, and daytwo removes only autoscalers that it owns; "
                "remove it there, or with --data force=true"
            )
            return None
        return AutoscalerAction(
            "remove", kind, entry.namespace, entry.own_name, path, found, None, "remove it: `absent` in the data",
            notes=(STAYS[kind],),
        )  # fmt: skip
    manifest = manifest_of(kind, entry.namespace, entry.own_name, entry.manifest())
    if found is None:
        return AutoscalerAction("create", kind, entry.namespace, entry.own_name, path, None, manifest, "create it")
    manifest["metadata"]["uid"] = kube.uid(found)
    return AutoscalerAction("update", kind, entry.namespace, entry.own_name, path, found, manifest, "")


def with_result(
    action: AutoscalerAction, result: Object, plan: ObjectPlan[AutoscalerAction]
) -> AutoscalerAction | None:  # fmt: skip
    """The action with what the dry run returned; None if nothing would change, or if the cluster would drop a field."""
    after = values(result)
    if dropped := _dropped(action, result):
        plan.refusals.append(f"{action.name}: {dropped}")
        return None
    differ = [".".join(one.path[1:]) for one in changes(values(action.before), after)]
    if action.before is not None and not differ:
        owner = "" if is_ours(action.before) else f" (created by {creators(action.before)})"
        plan.unchanged.append((action.name, f"as wanted{owner}"))
        return None
    summary = action.summary or f"set {', '.join(differ)}"
    return replace(action, after=after, summary=summary, shown=object_diff(action.before, result, f"{action.kind}/{action.key}"))


def _dropped(action: AutoscalerAction, result: Object) -> str:
    """The API server drops the tolerance silently while the gate is off (KEP-4951)."""
    wanted = ((action.manifest or {}).get("spec") or {}).get("behavior") or {}
    has = (result.get("spec") or {}).get("behavior") or {}
    for direction in ("scaleUp", "scaleDown"):
        asked = (wanted.get(direction) or {}).get("tolerance")
        if asked is not None and (has.get(direction) or {}).get("tolerance") is None:
            return (
                f"behavior: {direction}: tolerance {asked}: this cluster drops it (the gate HPAConfigurableTolerance is alpha in "
                f"1.33, and on "
                "from 1.35); leave it out, turn the gate on in kube-apiserver and kube-controller-manager "
                "(deploys/feature_gates.py), or set "
                "--horizontal-pod-autoscaler-tolerance for all autoscalers (deploys/control_plane_flags.py)"
            )
    return ""


# ---- what it means


def explain(
    action: AutoscalerAction,
    judged: JudgedAutoscaler,
    controller: ScalingController,
    plan: ObjectPlan[AutoscalerAction],
    budgets: Sequence[disruption.Problem] = (),
    *,
    consent: bool,
) -> AutoscalerAction:
    """The action with what the controller would do now, and with its problems; those that keep it from working are refusals, unless
    `consent`. `budgets`: problems of budgets of scaled workloads."""
    later = _LATER if controller.idle is None else _LATER - {"not-handled"}
    found = [one for one in judged.problems if one.rule not in later]
    critical = [one for one in found if one.severity == "critical"]
    unproven = []
    for one in critical:
        if consent:
            unproven.append(one.rule)
        else:
            plan.refusals.append(f"{action.name}: {one}, or apply it all the same: --data allow_problems=true")
    notes = [f"now: {judged.decision.text}" + (f" ({judged.decision.reason})" if judged.decision.reason else "")]
    for row in judged.decision.rows:
        asks = f"asks for {row.proposal}; {turns(row, judged, controller)}" if row.valid else row.message
        notes.append(f"{row.metric.title} {row.now}: {asks}")
    notes += [f"not known: {one}" for one in judged.decision.unknown]
    notes += [f"{'WARNING: ' if one.severity != 'note' else ''}{one}" for one in found]
    target = judged.autoscaler.target
    workload = f"{target.kind} {action.namespace}/{target.name}"
    notes += [f"WARNING: {one.objects[0]}: {one}" for one in budgets if workload in one.objects]
    return replace(action, notes=(*action.notes, *notes), unproven=tuple(dict.fromkeys(unproven)))


def explain_vertical(
    action: AutoscalerAction, judged: JudgedVertical, plan: ObjectPlan[AutoscalerAction], *, consent: bool
) -> AutoscalerAction:  # fmt: skip
    """The action on a VerticalPodAutoscaler with what its updater would do now, and with its problems; those that keep it from working are
    refusals, unless `consent`."""
    found = [one for one in judged.problems if action.what == "update" or one.rule not in _LATER_VERTICAL]
    critical = [one for one in found if one.severity == "critical" and one.rule not in _LATER_VERTICAL]
    if not consent:
        plan.refusals += [f"{action.name}: {one}, or apply it all the same: --data allow_problems=true" for one in critical]
    notes = [f"now: {judged.outlook.text}", *(f"recommended: {one}" for one in judged.vertical.advice or ())]
    notes += [f"{'WARNING: ' if one.severity != 'note' else ''}{one}" for one in found if one.rule != "updater-waits"]
    return replace(action, notes=(*action.notes, *notes), unproven=tuple(dict.fromkeys(one.rule for one in critical)) if consent else ())


def settling(items: Collection[tuple[str, str, Object]]) -> list[AutoscalerAction]:
    """The writes that take `replicas` out of the annotation of `kubectl apply`. `items`: kind, path and workload."""
    found = []
    for kind, path, item in items:
        text = without_replicas(item)
        if text is None:
            continue
        namespace, name = str(item["metadata"]["namespace"]), str(item["metadata"]["name"])
        patch = {"metadata": {"uid": kube.uid(item), "annotations": {LAST_APPLIED: text}}}
        found.append(
            AutoscalerAction(
                "update", kind, namespace, name, path, item, None, "take replicas out of the annotation of `kubectl apply`",
                after={("metadata", "annotations", LAST_APPLIED): text}, patch=patch,
                notes=(
                    "then an apply of a manifest without replicas leaves the count as it is; a manifest that still has replicas sets it: "
                    "remove it there too",
                ),
            )
        )  # fmt: skip
    return found
