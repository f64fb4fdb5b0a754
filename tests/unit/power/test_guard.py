"""What a consolidation has left on is not turned off by name, as long as what it took out is out of service."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.outage import Mark
from roles.engine.transaction.record import OBJECTS_KIND
from roles.power.guard import KEEPS, needed_by
from tests.unit.outage.world import node

RUN, OLD = "r20260102-000000-bbbb", "r20260101-000000-aaaa"


class Records:
    """A session that has the records of runs."""

    def __init__(self, **keeps: Any) -> None:
        self.keeps = keeps

    def recorded(self, run: str) -> list[dict[str, Any]]:
        found = self.keeps.get(run.partition("-")[0], ...)
        return [] if found is ... else [{"event": "begin"}, {"kind": OBJECTS_KIND, "about": found}]


def nodes(**marks: str) -> dict[str, Any]:
    """w1 to w3, and who has taken them out."""
    found = {name: node(name) for name in ("w1", "w2", "w3")}
    return found | {name: node(name, manager="daytwo", mark=Mark(run, "consolidation").text()) for name, run in marks.items()}


def asked(there: dict[str, Any], *names: str, **keeps: Any) -> list[str]:
    session: Any = Records(**keeps)
    return needed_by(session, there, {name: f"host-{name}" for name in names})


def test_a_node_that_was_left_on_is_needed_until_the_others_are_back() -> None:
    keeps = {"r20260102": {KEEPS: ["cp1", "w2"]}}
    (found,) = asked(nodes(w1=RUN), "w2", "w3", **keeps)
    assert found.startswith(f"host-w2: run {RUN} left it on when it took w1 out")
    assert f"run={RUN}" in found and "nodes=host-w2" in found and "allow_needed=true" in found
    assert asked(nodes(), "w2", **keeps) == [] and asked(nodes(w1=OLD), "w2", **keeps) == []
    assert asked(nodes(w2=RUN), "w2", **keeps) == [], "it is out of service itself"


@pytest.mark.parametrize("about", [{}, {KEEPS: "w2"}, {KEEPS: [1, None]}, {KEEPS: {"w2": 1}}, None, ["w2"]])
def test_a_record_that_says_nothing_keeps_nothing_on(about: Any) -> None:
    assert asked(nodes(w1=RUN), "w2", r20260102=about) == []
