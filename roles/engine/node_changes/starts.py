"""Would the kubelet and the components that a plan changes start: now, after their change, and on the way back?

One question to each node (roles/engine/starting), with the one to its binaries: for the plan, again right before each change, and as part
of its proof.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from roles.engine import folding, starting
from roles.engine.certificates import CertificateError, parse_own
from roles.engine.editing import FormatError
from roles.engine.kubelet.drained import DRIVER
from roles.engine.node_changes.node_plan import KUBELET, ComponentPlan, NodePlan
from roles.engine.proof import Proof, SurveyedNode
from roles.engine.remote import RemoteError, Shell
from roles.engine.starting import Cause, Needs, Obstacle, PathFact, StartFacts, Stops
from roles.engine.timeouts import patient
from roles.engine.transaction import Refusal
from roles.engine.transaction.by_hand import Repair

N = TypeVar("N", bound=NodePlan[Any])
_NOT_WHOLE = "it is not known whether its kubelet would start again, and whether new pods would start: the node gave no whole answer"


@dataclass(frozen=True)
class Starts:
    """What the starts of some changes of one node need, `before` them and `after` them. `manifests`: some are of manifests; `recreates`:
    the new kubelet creates pods again; `written`: the files that the changes write, by path (None: removed); `driver`: the cgroup driver
    that the container runtime gets with the kubelet ("": it stays as it is)."""

    host: str
    before: Needs
    after: Needs
    manifests: bool
    recreates: bool
    written: Mapping[str, bytes | None] = field(default_factory=dict)
    driver: str = ""

    @property
    def question(self) -> str:
        """A script for `sh -s`; it can stand before others."""
        return starting.question(self._asked)

    @property
    def _asked(self) -> Needs:
        return starting.together(self.before, self.after)

    def judged(self, lines: Iterable[str], *, over: bool = False) -> Judged:
        """What the node's answer means, among other lines. `over`: it is of the time after the changes."""
        facts = starting.answer(self._asked, lines)
        then = _overlaid(facts, self.written)
        if self.driver and facts.runtime is not None and not over:
            then = replace(then, runtime=replace(facts.runtime, drivers=frozenset({self.driver})))
        after = starting.judge(self.host, self.after, then)
        return Judged(self, tuple(starting.judge(self.host, self.before, facts)), tuple(after), facts)


@dataclass(frozen=True)
class Judged:
    """The obstacles of the present files and of the files after the change."""

    starts: Starts
    before: tuple[Obstacle, ...]
    after: tuple[Obstacle, ...]
    facts: StartFacts

    @property
    def refusals(self) -> list[Refusal]:
        """Why the change must not begin: something would not start after it, or could not be restarted for the way back; or no pod starts
        now, and a manifest changes."""
        present = {one.key for one in self.before}
        found = []
        for one in self.after:
            if one.key not in present and one.stops is not Stops.note:
                found.append(Refusal(one.host, f"after this change {one.rule}", one.way_out))
            elif one.key in present and self._stops(one):
                found.append(Refusal(one.host, one.rule, one.way_out))
        return found

    def _stops(self, one: Obstacle) -> bool:
        """Whether an obstacle that is there already keeps the change from its begin."""
        starts = self.starts
        # What the files name, the running kubelet may not use yet: new pods start now, and do not after its restart.
        of_files = one.cause is not Cause.runtime
        return one.stops is Stops.start or (one.stops is Stops.pods and (starts.manifests or starts.recreates or of_files))

    @property
    def unproven(self) -> list[str]:
        """What the node cannot show, in whole sentences."""
        return [one.why for one in self.after if one.cause is Cause.unproven]

    @property
    def warnings(self) -> list[str]:
        """What a change may do all the same, and what an operator should know."""
        if not self.facts.complete:
            return [_NOT_WHOLE]
        present, then = ({one.key for one in found} for found in (self.before, self.after))
        found = [
            f"with its present files {one.rule}; this change repairs that, but if it is reverted, the node is as it is now"
            for one in self.before
            if one.key not in then and one.stops is not Stops.note
        ]
        stays = [one for one in self.after if one.key in present and not self._stops(one)]
        new = [one for one in self.after if one.key not in present and one.stops is Stops.note and one.cause is not Cause.unproven]
        return [*found, *(str(one) for one in (*stays, *new) if one in new or one.stops is not Stops.note), *self.unproven]


def _overlaid(facts: StartFacts, written: Mapping[str, bytes | None]) -> StartFacts:
    """The facts once a change has written its files."""
    paths = {path: PathFact("none" if data is None else "file", True, True, False, not data) for path, data in written.items()}
    # A file that stays a program stays one.
    kept = {path: fact for path, fact in facts.paths.items() if path not in paths or (paths[path].there and fact.kind == "file")}
    pems = {path: data for path, data in written.items() if data is not None and b"-----BEGIN" in data}
    keys = {}
    for path, data in pems.items():
        if b"PRIVATE KEY" in data:
            # What cannot be read here, its own process refuses.
            with contextlib.suppress(CertificateError):
                keys[path] = parse_own(path, data)
    return replace(facts, paths={**paths, **kept}, pems={**facts.pems, **pems}, keys={**facts.keys, **keys})


def starts_of(plan: NodePlan[Any], planned: Collection[ComponentPlan] | None = None) -> Starts | None:
    """What the changes of a plan need, or only these; None if nothing changes. What cannot be read is judged by others."""
    changing = [one for one in plan.changing if planned is None or one in planned]
    kubelet = next((one for one in changing if one.component == KUBELET), None)
    components = [one for one in changing if one.component in plan.components]
    if not changing:
        return None
    try:
        now = starting.kubelet_needs(plan.kubelet)
        # A kubelet that runs on has reached its API server, which may be what changes.
        now = now if kubelet else replace(now, reaches="")
        then = now if kubelet is None else _changed_kubelet(plan, kubelet, now)
        before = starting.together(now, *(starting.component_needs(plan.components[one.component]) for one in components))
        after = starting.together(then, *(_changed_component(plan, one) for one in components))
    except (FormatError, Refusal):
        return None
    recreates = kubelet is not None and (kubelet.recreates_pods or kubelet.recreates_static_pods or bool(kubelet.needs_drain))
    written = {edit.path: edit.after for one in changing if one.change for edit in one.change.files}
    driver = str(then.settings.get(DRIVER) or "") if kubelet is not None and _with_its_runtime(kubelet) else ""
    return Starts(plan.host, before, after, bool(components), recreates, written, driver)


def _with_its_runtime(planned: ComponentPlan) -> bool:
    """The runtime gets the driver of the kubelet. An undo is judged before that is planned, and refused then if the runtime cannot."""
    return planned.change is not None and (planned.change.runtime is not None or (bool(planned.undoes) and DRIVER in planned.settings))


def _changed_kubelet(plan: NodePlan[Any], planned: ComponentPlan, now: Needs) -> Needs:
    change = planned.change
    assert change is not None
    runtime = change.runtime.path if change.runtime else ""
    changed = {edit.path: edit.after for edit in change.files if edit.path != runtime}
    needs = starting.kubelet_needs(plan.kubelet, changed, change.new_argv)
    # What the change removes cannot stop the new kubelet. An undo learns later which ones: those whose policy it changes.
    kept = now.checkpoints.items() & needs.checkpoints.items()
    return replace(needs, checkpoints={path: policy for path, policy in kept if path not in change.checkpoints})


def _changed_component(plan: NodePlan[Any], planned: ComponentPlan) -> Needs:
    assert planned.change is not None
    return starting.component_needs(plan.components[planned.component], planned.change.files[-1].after or b"")


def present_refusals(node: SurveyedNode) -> list[Refusal]:
    """Why a node that cannot be planned for would not start again with its present files. It may be the reason: a kubelet without its
    runtime gives no usage. Raises RemoteError."""
    needs = starting.node_needs(node.kubelet, node.components.values())
    if needs is None:
        return []
    lines = node.remote.run("sh -s", stdin=starting.question(needs), timeout=patient(starting.SECONDS + 30)).stdout
    found = starting.judge(node.remote.name, needs, starting.answer(needs, lines))
    return [Refusal(one.host, one.rule, one.way_out) for one in found if one.stops is Stops.start and not one.is_of_record]


def would_not_start(node: SurveyedNode) -> bool:
    """Whether a node would not start again with its present files; False if that is not known."""
    try:
        return bool(present_refusals(node))
    except RemoteError:
        return False


def with_warnings(plan: N, judged: Judged | None) -> N:
    """The plan with what its node's answer warns of (None: it gave none)."""
    return plan if judged is None else replace(plan, warnings=(*plan.warnings, *judged.warnings))


class StartWatch:
    """The judgement of one change right before it, and after it."""

    def __init__(self, remote: Shell, plan: NodePlan[Any], planned: ComponentPlan, *, allow_unproven: bool) -> None:
        self._remote, self._allow_unproven = remote, allow_unproven
        self._starts = starts_of(plan, [planned])
        self._before: Judged | None = None

    def recheck(self) -> str | None:
        """Right before the change; a text if it must not begin. Raises RemoteError."""
        if self._starts is None:
            return None
        self._before = self._starts.judged(self._ask(self._starts))
        return "; ".join(str(one) for one in self._before.refusals) or None

    @property
    def epoch(self) -> int:
        """The node's clock right before the change, in seconds; 0: not known."""
        return self._before.facts.epoch if self._before else 0

    @property
    def pauses(self) -> tuple[str, ...]:
        """Images for a probe pod that the node has."""
        health = self._before.facts.runtime if self._before else None
        return health.pauses if health else ()

    def proof(self) -> Proof:
        """After the change: what stands in the way of the next start, or of new pods, and did not before."""
        if self._starts is None:
            return Proof("")
        try:
            after = self._starts.judged(self._ask(self._starts), over=True)
            why = "" if after.facts.complete else "the node gave no whole answer"
        except RemoteError as error:
            after, why = None, str(error)
        if after is None or why:
            unproven = f"whether it would start again: {why}"
            return Proof(f"NOT PROVEN: {unproven}", () if self._allow_unproven else (unproven,))
        known = {one.key for one in (self._before.after if self._before else ())}
        # The record has its space since before the change began, and a revert needs none.
        new = [one for one in after.after if one.key not in known and one.stops is not Stops.note and not one.is_of_record]
        return Proof(folding.once_each(("would start again", *after.unproven)), tuple(map(str, new)))

    def blocking(self) -> list[Repair]:
        """After a revert that failed: what keeps the old process from its start now, by its node, and the commands that repair it."""
        if self._starts is None:
            return []
        try:
            found = self._starts.judged(self._ask(self._starts)).before
        except RemoteError:
            return []
        stops = (Stops.start, Stops.pods) if self._starts.manifests else (Stops.start,)
        return [
            Repair(one.why if one.commands else f"{one.why} ({one.way_out})", one.commands)
            for one in found
            if one.stops in stops and not one.is_of_record
        ]

    def _ask(self, starts: Starts) -> Sequence[str]:
        return self._remote.run("sh -s", stdin=starts.question, timeout=patient(starting.SECONDS + 30)).stdout
