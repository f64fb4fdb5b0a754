"""xdist's interface of a scheduler over `schedule.Plan`: gives a lane its next unit when the one in its hands is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import pytest

from tests.lanes.schedule import Lane, LanesError, Plan, Unit


class Listener(Protocol):
    """Who makes the plan, and hears of it."""

    def plan(self) -> Plan: ...
    def unit_began(self, lane: str, unit: Unit) -> None: ...
    def unit_ended(self, lane: str, unit: Unit) -> None: ...


class Dispatch:
    """The names are those of xdist.scheduler.protocol.Scheduling. A node is an xdist worker; a lane gets a new one after a crash."""

    def __init__(self, lanes: Sequence[Lane], listener: Listener, lane_of: Callable[[Any], str]) -> None:
        self.lanes, self.listener, self.lane_of = lanes, listener, lane_of
        self.plan: Plan | None = None
        self._pending: dict[Any, list[int]] = {}
        self._tests: dict[Any, list[str]] = {}
        self._collected: set[str] = set()

    @property
    def nodes(self) -> list[Any]:
        return list(self._pending)

    @property
    def collection_is_completed(self) -> bool:
        return len(self._collected) == len(self.lanes)

    @property
    def has_pending(self) -> bool:
        return bool((self.plan and self.plan.left) or any(self._pending.values()))

    @property
    def tests_finished(self) -> bool:
        return self.plan is not None and not self.has_pending

    def add_node(self, node: Any) -> None:
        self._pending[node] = []

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self._tests[node] = list(collection)
        self._collected.add(self.lane_of(node))

    def schedule(self) -> None:
        """When all lanes have collected, and again for a worker that takes another's place."""
        try:
            if self.plan is None:
                self.plan = self.listener.plan()
            self._idle()
        except LanesError as error:
            raise pytest.UsageError(str(error)) from error

    def _idle(self) -> None:
        """Work for all that have none in hand; some may wait for what others do."""
        order = [lane.name for lane in self.lanes]
        for node in sorted(self.nodes, key=lambda node: order.index(self.lane_of(node))):
            if node in self._tests and not self._pending[node] and not node.shutting_down:
                self._next(node)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        assert self.plan
        self._pending[node].remove(item_index)
        if self._pending[node]:
            return
        self.listener.unit_ended(self.lane_of(node), self.plan.running[self.lane_of(node)])
        if not node.shutting_down:
            # Its next unit, and of those that wait for it or for its last one.
            self._next(node)
            self._idle()

    def _next(self, node: Any) -> None:
        assert self.plan
        lane = self.lane_of(node)
        if self.plan.waits(lane):
            return
        unit = self.plan.next(lane)
        if unit is None:
            node.shutdown()
            return
        numbers = {test: number for number, test in enumerate(self._tests[node])}
        missing = [test for test in unit.tests if test not in numbers]
        if missing:
            raise LanesError(f"lane {lane} has not collected {missing[0]}, as another lane has: its id or its module's markers vary")
        self._pending[node] = [numbers[test] for test in unit.tests]
        self.listener.unit_began(lane, unit)
        node.send_runtest_some(self._pending[node])

    def remove_node(self, node: Any) -> str | None:
        """The worker is gone. The test that it ran, if it crashed: that one is not run again, the rest of its unit is."""
        pending = self._pending.pop(node)
        tests = [self._tests[node][number] for number in pending]
        # Only a worker that came to its end has sent an output; that it left tests then is because the run was stopped.
        crashed = tests[0] if tests and not hasattr(node, "workeroutput") else None
        if self.plan and crashed:
            self.plan.lost(self.lane_of(node), tests[1:])
        return crashed

    def mark_test_pending(self, item: str) -> NoReturn:
        raise NotImplementedError

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> NoReturn:
        raise NotImplementedError
