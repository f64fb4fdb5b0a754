"""The resize of one workload as a part of another run: its pods in place, one after the other, and its template. Each part can be put back.
The run that it belongs to has the lock and the record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from roles.engine.api import Api, ApiError, NoApi
from roles.engine.bridge import Fleet
from roles.engine.context import StepContext
from roles.engine.folding import shortened
from roles.engine.kube import Object, full_name, namespace_and_name, uid
from roles.engine.object_runs import ConnectedCluster
from roles.engine.objects import Gone, RevertFailed, RollOuts, Undone, Unknown, workload_rollout
from roles.engine.timeouts import patient
from roles.engine.transaction import ChangedObject, Refusal
from roles.engine.voice import show
from roles.pod_resize import facts, model, pod_resources, templates
from roles.pod_resize.abilities import Ability
from roles.pod_resize.facts import Selected
from roles.pod_resize.model import DesiredResources
from roles.pod_resize.plan import PodStep, ResizePlan, ResourceChange, plan_resize, plan_undo
from roles.pod_resize.pod_resources import Resources
from roles.pod_resize.templates import Template
from roles.pod_resize.write import ResizeWriter, Watcher

_KEYS = {kind: key for key, kind in model.KINDS.items()}
#: The first part of the path of a recorded field that is of a pod: then its UID, and the container.
POD = "pods"


@dataclass
class WorkloadResize:
    """`steps` are its pods, in order; `template` its new template, or None; `kept`: the template is to stay; `done` the steps that are
    carried out."""

    kind: str
    item: Object
    path: str
    steps: Sequence[PodStep]
    template: Template | None
    writer: ResizeWriter
    rolling: RollOuts
    notes: Sequence[str] = ()
    kept: bool = False
    done: list[PodStep] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.kind} {full_name(self.item)}"

    @property
    def restarts(self) -> bool:
        """Containers are restarted by their resizePolicy."""
        return any(change.restarts for step in self.steps for change in step.changes.values())

    def fields(self) -> list[dict[str, Any]]:
        """What it changes, for the record: of each pod's containers, and of the template's."""
        found: list[dict[str, Any]] = [
            {"path": [POD, step.uid, name, "resources"], "before": change.before, "after": change.after}
            for step in self.steps
            for name, change in step.changes.items()
        ]
        return [*found, *(self.template.fields if self.template is not None else ())]

    def about(self) -> dict[str, Any]:
        """What else its undo needs, for the record."""
        namespace, name = namespace_and_name(self.item)
        return {
            "path": self.path,
            "uid": uid(self.item),
            "kind": self.kind,
            "namespace": namespace,
            "name": name,
            "pods": {step.uid: [step.name, step.node] for step in self.steps},
        }

    def resize(self, context: StepContext) -> str:
        """All pods, in place; returns the proof. The run has recorded them. Raises Undone if all pods have their old resources again,
        RevertFailed, and NotDone if nothing was changed."""
        proofs = []
        for step in self.steps:
            try:
                proofs.append(self.writer.carry_out(self.writer.change(step), context.beginning()))
                self.done.append(step)
            except Gone:
                continue  # its replacement has the template's resources
            except Exception as error:
                why = f"{step.where}: {str(error) or repr(error)}"
                if isinstance(error, (RevertFailed, Unknown)):
                    raise RevertFailed("; ".join([why, *self._put_back(why)])) from error
                if not self.done:
                    raise
                raise self.put_back(why) from error
        return "; ".join(dict.fromkeys(proofs)) or "its pods were replaced meanwhile"

    def put_back(self, why: str) -> Exception:
        """Revert the pods that are resized, last one first; the error says how that ended: Undone or RevertFailed."""
        failed = self._put_back(why)
        if failed:
            return RevertFailed("; ".join([why, *failed]))
        return Undone(f"{why}; its pods have their old resources again, read in their cgroups")

    def _put_back(self, why: str) -> list[str]:
        """Why pods could not be put back."""
        failed = []
        for step in reversed(self.done):
            ended = self.writer.put_back(self.writer.change(step), why, show)
            if not isinstance(ended, (Undone, Gone)):
                failed.append(f"{step.where}: {str(ended).removeprefix(f'{why}; ')}")
        self.done.clear()
        return failed

    def update_template(self, reverting: Callable[[], object] = lambda: None) -> str:
        """`reverting` is called before a failed roll-out is reverted, and raises nothing. Raises as RollOuts.carry_out."""
        if self.template is None:
            return "its template stays as it is" if self.kept else "its template has it already"
        return self.rolling.carry_out(self.template, reverting)


class Resizer:
    """Plans the resize of workloads of one cluster. `ability`: of all nodes with pods."""

    def __init__(self, fleet: Fleet, reached: ConnectedCluster, *, allow_restarts: bool, template: bool) -> None:
        self.reached = reached
        self._fleet, self._allow_restarts, self._template = fleet, allow_restarts, template
        self.rolling = RollOuts(reached.session, show)
        self._ability: Ability | None = None

    @property
    def ability(self) -> Ability:
        """Raises ApiFailure."""
        if self._ability is None:
            self._ability = self.reached.session.asked(lambda api: facts.read_ability(self.reached.found, api), "plan")
        return self._ability

    def plan(self, kind: str, namespace: str, name: str, wanted: Mapping[str, Resources]) -> tuple[WorkloadResize, list[str]]:
        """The resize of a workload's containers to `wanted` (what is not named in it stays), and why it is refused, by the API server too.
        Nothing is written. Raises Refusal if there is no such workload, ApiFailure."""
        resize, refusals = self.judge(kind, namespace, name, wanted)
        return resize, refusals or tried(resize.writer, resize.steps, resize.template)

    def judge(self, kind: str, namespace: str, name: str, wanted: Mapping[str, Resources]) -> tuple[WorkloadResize, list[str]]:
        """As `plan`, without the API server: for a plan that it has accepted, right before the write. Raises as `plan`."""
        desired = DesiredResources(**{_KEYS[kind]: f"{namespace}/{name}"}, allow_restarts=self._allow_restarts)
        selected = self.reached.session.asked(lambda api: facts.select(api, desired), "plan")
        assert selected.workload is not None  # select refuses
        seconds = patient(model.DEFAULT_RESIZE_SECONDS)
        plan, writer = plan_pods(self._fleet, self.reached, self.ability, selected, desired, seconds, wanted=wanted)
        refusals, item = list(plan.refusals), selected.workload
        template = None
        if self._template:
            before = templates.of(item)
            after = {one: pod_resources.merged(before.get(one) or {}, resources) for one, resources in wanted.items()}
            template = templates.update(kind, item, desired.path, after, desired.limit("rollout_timeout"))
            if template is not None:
                refusals += workload_rollout.rollout_problems(kind, item)
        return self._resize(kind, item, desired, plan, template, writer), refusals

    # ---- the undo

    def plan_back(self, changed: ChangedObject, *, force: bool) -> tuple[WorkloadResize | None, list[str]]:
        """The undo of a recorded workload (`fields`, `about` of WorkloadResize): its template, if the run changed it, and the pods that
        it resized and that are still there. None if the workload is gone. Raises ValueError if the record is incomplete, ApiError,
        NoApi."""
        kind, namespace, name = (str(changed.about[key]) for key in ("kind", "namespace", "name"))
        desired = DesiredResources(**{_KEYS[kind]: f"{namespace}/{name}"}, allow_restarts=self._allow_restarts)
        try:
            selected = self.reached.session.asked(lambda api: facts.select(api, desired), "plan")
        except Refusal:
            return None, []
        item = selected.workload
        if item is None or uid(item) != changed.uid:
            return None, []
        steps = recorded_steps(changed)
        back = Back(steps, {step.uid: changed.outcome for step in steps}, force)
        seconds = patient(model.DEFAULT_RESIZE_SECONDS)
        plan, writer = plan_pods(self._fleet, self.reached, self.ability, selected, desired, seconds, back=back)
        template, refused = templates.restored(kind, item, desired.path, changed, desired.limit("rollout_timeout"), force=force)
        return self._resize(kind, item, desired, plan, template, writer), [*plan.refusals, *refused]

    def _resize(
        self, kind: str, item: Object, desired: DesiredResources, plan: ResizePlan, template: Template | None, writer: ResizeWriter
    ) -> WorkloadResize:  # fmt: skip
        return WorkloadResize(kind, item, desired.path, plan.steps, template, writer, self.rolling, plan.notes, not self._template)


@dataclass(frozen=True)
class Back:
    """The steps of a recorded run, and how they ended, by UID, as far as recorded. `force`: overwrite later changes of others."""

    steps: Sequence[PodStep]
    outcomes: Mapping[str, str]
    force: bool


def plan_pods(
    fleet: Fleet, reached: ConnectedCluster, ability: Ability, selected: Selected, desired: DesiredResources, seconds: float, *,
    wanted: Mapping[str, Resources] | None = None, back: Back | None = None,
) -> tuple[ResizePlan, ResizeWriter]:  # fmt: skip
    """The plan for the selected pods, and what writes it: to `wanted`, or to the amounts in `desired`, or `back`. `seconds`: for each pod,
    never scaled."""
    held, problems = facts.read_held(fleet, reached.nodes, selected.pods)
    if back is None:
        plan = plan_resize(desired, selected.pods, ability, held, reached.nodes, wanted)
    else:
        plan = plan_undo(back.steps, selected.pods, ability, held, reached.nodes, desired, back.outcomes, force=back.force)
    plan.refusals += problems
    watcher = Watcher(reached.session, selected.namespace, selected.labels)
    writer = ResizeWriter(
        reached.session, watcher, ability, reached.nodes, reached.units, seconds, lambda text: show(f"  {text}"), held
    )  # fmt: skip
    return plan, writer


def tried(writer: ResizeWriter, steps: Iterable[PodStep], template: Template | None) -> list[str]:
    """What the API server refuses in a dry run, with its admission, in its own words."""
    refused: dict[str, list[str]] = {}
    tries: list[tuple[str, str, Callable[[Api], object]]] = []
    tries += [(step.where, step.name, partial(writer.patched, writer.change(step))) for step in steps]
    if template is not None:
        tries.append((template.name, "", template.dry_run))
    for where, pod, ask in tries:
        try:
            writer.session.asked(ask, "dry run")
        except ApiError as error:
            why = f"the API refuses it: {error.rule}; {error.way_out}"
            refused.setdefault(why.replace(pod, "POD") if pod else why, []).append(where)
        except NoApi as error:
            return [f"the API cannot be reached: {error}"]
    return [f"{shortened(names)}: {why}" for why, names in refused.items()]


def recorded_steps(changed: ChangedObject) -> list[PodStep]:
    """Raises ValueError if the record lacks something."""
    try:
        pods: Mapping[str, Sequence[str]] = changed.about["pods"]
        changes: dict[str, dict[str, ResourceChange]] = {}
        for one in changed.fields:
            if one.path[0] == POD:
                changes.setdefault(one.path[1], {})[one.path[2]] = ResourceChange(dict(one.before), dict(one.after))
        namespace = str(changed.about["namespace"])
        return [PodStep(namespace, str(pods[uid][0]), uid, str(pods[uid][1]), found) for uid, found in changes.items()]
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"the record of {changed.name} lacks something ({type(error).__name__}: {error}); undo it by hand") from error
