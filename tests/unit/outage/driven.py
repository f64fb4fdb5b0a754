"""Drains of w1 in memory: step by step, and a whole run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roles.drain import DrainRun
from roles.engine.bridge import Fleet
from roles.engine.context import ClusterStep, Fields
from roles.engine.outage import DrainConsents, Drainer, Mark, plan_drain, reading
from tests.context import context
from tests.unit.disruption.world import NOW, budget, deployment, of_status, pod
from tests.unit.hosts import INFO, RecordHost
from tests.unit.outage.api import ClusterApi, Write
from tests.unit.outage.world import node

RUN = INFO.id
INNER = deployment(1, 1)[1]


class Drain:
    """One drain of w1, step by step. `begun` has what each step recorded before it wrote; `halted` is what `stopped` returns."""

    def __init__(self, api: ClusterApi, consents: DrainConsents | None = None) -> None:
        self.api, self.halted = api, ""
        self.begun: list[tuple[str, Sequence[Mapping[str, Any]]]] = []
        consents = consents or DrainConsents(drain_timeout=60)
        plan = plan_drain(reading.read_drain(api.session), ["w1"], consents, NOW)
        assert not plan.refusals, plan.refusals
        self.drainer = Drainer(api.session, plan, consents, Mark(RUN))

    @property
    def steps(self) -> list[ClusterStep]:
        return [step for stage in self.drainer.stages() for step in stage.steps]

    def step(self, action: str, *, halts: bool = False) -> str:
        """Carry out the only step of this kind. `halts`: the run halts while the step is recorded."""
        (found,) = (step for step in self.steps if step.action == action)

        def begin(fields: Fields) -> None:
            self.begun.append((action, fields))
            self.halted = self.halted or ("interrupted by the operator" if halts else "")

        return found.write(context(begin, stopped=lambda: self.halted))


def cluster(*, manager: str = "") -> ClusterApi:
    """Two pods on w1, which leave one after the other; their replacements come to w2."""
    api = ClusterApi(
        node("w1", manager=manager), node("w2"), *deployment(2, 2), budget(maxUnavailable=1, status=of_status(2, 1, 2, 1))
    )  # fmt: skip

    def replaced(write: Write) -> None:
        if write[0] == "create":
            api.add(pod(f"new-{len(api.evicted())}", INNER, node="w2"))

    api.after = replaced
    return api


def drive(host: RecordHost, api: ClusterApi, at: Callable[[DrainRun, Write], None] = lambda run, write: None, **more: bool) -> DrainRun:
    """The whole run. `at` is called after each write."""
    consents = DrainConsents(drain_timeout=60, allow_unmanaged=True)
    plan = plan_drain(reading.read_drain(api.session), ["w1"], consents, NOW)
    assert not plan.refusals, plan.refusals
    drainer = Drainer(api.session, plan, consents, Mark(RUN))
    remotes: list[Any] = [host]
    run = DrainRun(INFO, drainer, Fleet(remotes, [], [], remotes), "", keep_cordon=more.get("keep_cordon", False))
    controllers = api.after

    def after(write: Write) -> None:
        controllers(write)
        at(run, write)

    api.after = after
    assert run.result("cp1") is not bool(run.halted)
    return run


def refuse_second(api: ClusterApi) -> None:
    api.refuse = lambda one: "not now" if api.evicted() else ""
