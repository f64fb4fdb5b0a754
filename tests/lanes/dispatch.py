"""xdist's scheduler of whole groups of tests over `schedule.Plan`: a lane gets its next unit when the one in its hands is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.lanes.schedule import LanesError, Plan, Unit


class Listener(Protocol):
    """Who makes the plan, and hears of it."""

    def plan(self) -> Plan: ...
    def unit_began(self, lane: str, unit: Unit) -> None: ...
    def unit_ended(self, lane: str, unit: Unit) -> None: ...


class Dispatch(LoadScopeScheduling):
    """A node is an xdist worker; a lane gets a new one after a crash. The queue of loadscope is the plan's, and the scope of a test its
    unit."""

    def __init__(self, config: pytest.Config, log: Producer, listener: Listener, lane_of: Callable[[Any], str]) -> None:
        super().__init__(config, log)
        self.listener, self.lane_of = listener, lane_of
        self.plan: Plan | None = None
        self._scopes: dict[str, str] = {}

    @property
    def tests_finished(self) -> bool:
        return self.plan is not None and not self.has_pending

    def _split_scope(self, nodeid: str) -> str:
        return self._scopes[nodeid]

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self.registered_collections[node] = list(collection)

    def schedule(self) -> None:
        """When all lanes have collected, and again for a worker that takes another's place."""
        try:
            if self.plan is None:
                self.plan = self.listener.plan()
                self._queue(self.plan.left)
            self._idle()
        except LanesError as error:
            raise pytest.UsageError(str(error)) from error

    def _queue(self, units: Sequence[Unit]) -> None:
        for unit in units:
            self.workqueue[unit.title] = dict.fromkeys(unit.tests, False)
            self._scopes.update(dict.fromkeys(unit.tests, unit.title))

    def _idle(self) -> None:
        """Work for all that have none in hand; some may wait for what others do."""
        assert self.plan
        order = [lane.name for lane in self.plan.lanes]
        for node in sorted(self.nodes, key=lambda node: order.index(self.lane_of(node))):
            if node in self.registered_collections:
                self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        assert self.plan
        lane = self.lane_of(node)
        if node.shutting_down or self._pending_of(self.assigned_work[node]) or self.plan.waits(lane):
            return
        unit = self.plan.next(lane)
        if unit is None:
            node.shutdown()
            return
        if missing := set(unit.tests).difference(self.registered_collections[node]):
            raise LanesError(f"lane {lane} has not collected {min(missing)}, as another lane has: its id or its module's markers vary")
        self.assigned_work[node].clear()
        self.workqueue.move_to_end(unit.title, last=False)
        self.listener.unit_began(lane, unit)
        self._assign_work_unit(node)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        assert self.plan
        test = self.registered_collections[node][item_index]
        self.assigned_work[node][self._scopes[test]][test] = True
        if self._pending_of(self.assigned_work[node]):
            return
        self.listener.unit_ended(self.lane_of(node), self.plan.running[self.lane_of(node)])
        if not node.shutting_down:
            # Its next unit, and of those that wait for it or for its last one.
            self._reschedule(node)
            self._idle()

    def remove_node(self, node: Any) -> str | None:
        """The worker is gone. The test that it ran, if it crashed: that one is not run again, the rest of its unit is."""
        work = self.assigned_work.pop(node)
        tests = [test for unit in work.values() for test, done in unit.items() if not done]
        # Only a worker that came to its end has sent an output; that it left tests then is because the run was stopped.
        if not self.plan or not tests or hasattr(node, "workeroutput"):
            return None
        self.plan.lost(self.lane_of(node), tests[1:])
        self._queue(self.plan.left[:1] if tests[1:] else [])
        return tests[0]
