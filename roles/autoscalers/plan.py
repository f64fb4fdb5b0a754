"""The plan: from the desired autoscalers, those that exist, and the API server's dry runs, to actions, refusals and notes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from roles.autoscalers.model import KINDS, SETTLED, WORKLOADS, DesiredAutoscalers, HorizontalAutoscaler, VerticalAutoscaler
from roles.engine import kube
from roles.engine.autoscaling import HPA, JudgedAutoscaler, JudgedVertical, ScalingController, ScalingRule, turns
from roles.engine.autoscaling.owners import without_replicas
from roles.engine.autoscaling.vertical import VPA
from roles.engine.findings import Finding, Severity
from roles.engine.kube import Object
from roles.engine.kube.fields import spec_of, with_meta
from roles.engine.kube.names import not_one_of
from roles.engine.objects import ObjectChange, ObjectPlan, object_diff

Entry = HorizontalAutoscaler | VerticalAutoscaler
#: Problems that only an autoscaler has that the controller has seen already.
_LATER = frozenset((ScalingRule.NOT_HANDLED, ScalingRule.STARTS_SLOWLY))
#: Likewise, of a vertical one: the proof asks for the recommendation.
_LATER_VERTICAL = frozenset((ScalingRule.NO_RECOMMENDATION, ScalingRule.UPDATER_WAITS))


def kind_of(entry: Entry) -> str:
    return HPA if isinstance(entry, HorizontalAutoscaler) else VPA


def check_only(desired: DesiredAutoscalers, plan: ObjectPlan) -> None:
    """Refuse names in `only_objects` that the data does not have, and two entries for one object."""
    for name in desired.only_objects or ():
        plan.refusals += filter(None, [not_one_of(name, desired.known, "not an entry")])
    names = [(kind_of(one), one.key) for one in desired.entries]
    for kind, key in {one for one in names if names.count(one) > 1}:
        plan.refusals.append(f"{kind} {key}: two entries of the data have this name; set `name` in one of them")


def planned(
    entry: Entry, found: Object | None, desired: DesiredAutoscalers, plan: ObjectPlan
) -> ObjectChange | None:  # fmt: skip
    """The action for one entry, before its dry run; None if there is nothing to do, or if it is refused."""
    kind = KINDS[kind_of(entry)]
    if entry.absent:
        return kind.removal((entry.namespace, entry.own_name), found, plan, force=desired.force)
    manifest = kind.manifest(entry.namespace, entry.own_name, {("spec", key): value for key, value in entry.manifest().items()})
    if found is None:
        return ObjectChange(kind, "create", entry.namespace, entry.own_name, None, manifest, "create it")
    return ObjectChange(kind, "update", entry.namespace, entry.own_name, found, with_meta(manifest, uid=kube.uid(found)), "")


def with_result(
    action: ObjectChange, result: Object, plan: ObjectPlan
) -> ObjectChange | None:  # fmt: skip
    """The action with what the dry run returned; None if nothing would change, or if the cluster would drop a field."""
    if dropped := _dropped(action, result):
        plan.refusals.append(f"{action.name}: {dropped}")
        return None
    action = replace(action, result=action.kind.values(result))
    differ = [".".join(one.path[1:]) for one in action.fields]
    if action.before is not None and not differ:
        plan.unchanged.append((action.name, action.kind.as_wanted(action.before)))
        return None
    return replace(action, summary=action.summary or f"set {', '.join(differ)}", shown=object_diff(action.before, result, action.title))


def _dropped(action: ObjectChange, result: Object) -> str:
    """The API server drops the tolerance silently while the gate is off (KEP-4951)."""
    wanted = spec_of(action.manifest or {}).get("behavior") or {}
    has = spec_of(result).get("behavior") or {}
    for direction in ("scaleUp", "scaleDown"):
        asked = (wanted.get(direction) or {}).get("tolerance")
        if asked is not None and (has.get(direction) or {}).get("tolerance") is None:
            return (
                f"behavior: {direction}: tolerance {asked}: this cluster drops it (the gate HPAConfigurableTolerance is alpha in "
                "1.33, and on from 1.35). Leave it out, or turn the gate on in kube-apiserver and kube-controller-manager "
                "(deploys/feature_gates.py), or set --horizontal-pod-autoscaler-tolerance for all autoscalers "
                "(deploys/control_plane_flags.py)"
            )
    return ""


# ---- what it means


def explain(
    action: ObjectChange,
    judged: JudgedAutoscaler,
    controller: ScalingController,
    plan: ObjectPlan,
    budgets: Sequence[Finding] = (),
    *,
    consent: bool,
) -> ObjectChange:
    """The action with what the controller would do now, and with its problems; those that keep it from working are refusals, unless
    `consent`. `budgets`: problems of budgets of scaled workloads."""
    later = _LATER if controller.idle is None else _LATER - {ScalingRule.NOT_HANDLED}
    found = [one for one in judged.problems if one.rule not in later]
    critical = [one for one in found if one.severity is Severity.critical]
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
    notes += map(_noted, found)
    target = judged.autoscaler.target
    workload = f"{target.kind} {action.namespace}/{target.name}"
    notes += [f"WARNING: {one.objects[0]}: {one}" for one in budgets if workload in one.objects]
    return replace(action, notes=(*action.notes, *notes), unproven=tuple(dict.fromkeys(unproven)))


def _noted(one: Finding) -> str:
    return f"{'WARNING: ' if one.severity is not Severity.note else ''}{one}"


def explain_vertical(
    action: ObjectChange, judged: JudgedVertical, plan: ObjectPlan, *, consent: bool
) -> ObjectChange:  # fmt: skip
    """The action on a VerticalPodAutoscaler with what its updater would do now, and with its problems; those that keep it from working are
    refusals, unless `consent`."""
    found = [one for one in judged.problems if action.what == "update" or one.rule not in _LATER_VERTICAL]
    critical = [one for one in found if one.severity is Severity.critical and one.rule not in _LATER_VERTICAL]
    if not consent:
        plan.refusals += [f"{action.name}: {one}, or apply it all the same: --data allow_problems=true" for one in critical]
    notes = [f"now: {judged.outlook.text}", *(f"recommended: {one}" for one in judged.vertical.advice or ())]
    notes += [_noted(one) for one in found if one.rule is not ScalingRule.UPDATER_WAITS]
    return replace(action, notes=(*action.notes, *notes), unproven=tuple(dict.fromkeys(one.rule for one in critical)) if consent else ())


def settling(items: Collection[tuple[str, Object]]) -> list[ObjectChange]:
    """The writes that take `replicas` out of the annotation of `kubectl apply`. `items`: kind and workload."""
    found = []
    for name, item in items:
        text = without_replicas(item)
        if text is None:
            continue
        kind = WORKLOADS[name]
        note = (
            "then an apply of a manifest without replicas leaves the count as it is; a manifest that still has replicas sets it: "
            "remove it there too"
        )
        summary = "take replicas out of the annotation of `kubectl apply`"
        found.append(replace(ObjectChange.of_fields(kind, item, {SETTLED: text}, summary), notes=(note,)))
    return found
