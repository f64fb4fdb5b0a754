"""What the nodes have recorded of the changes made on them. Pure: reads the answer of templates/history.sh.j2."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.change.bundle import HOME
from roles.change.inflight import NOT_IN_FLIGHT
from roles.change.mask import mask_text
from roles.change.record import CLUSTER_KIND
from roles.scripts import templates

QUESTION_SECONDS = 60


class HistoryError(Exception):
    """A node's answer that is not whole. Names the host."""


@dataclass(frozen=True)
class Recorded:
    """One change as its node recorded it. `plan` is the record made beforehand, `end` how it ended (None: the node alone knows),
    `originals` the bytes of its files before by their number, where they were asked for."""

    host: str
    id: str
    state: str
    reason: str
    boot: str
    deadline: str
    plan: dict[str, Any]
    end: dict[str, Any] | None
    originals: dict[int, bytes] = field(default_factory=dict)

    @property
    def run(self) -> str:
        return str(self.plan.get("run", ""))

    @property
    def order(self) -> int:
        return int(self.plan.get("order", 0))

    @property
    def component(self) -> str:
        return str(self.plan.get("component", "?"))

    @property
    def of_cluster(self) -> bool:
        """True for a change of the cluster itself; its host is no more than who keeps the record."""
        return self.plan.get("kind") == CLUSTER_KIND

    @property
    def in_flight(self) -> bool:
        return self.state not in NOT_IN_FLIGHT


def question(runs: Sequence[str] = ()) -> str:
    """The script to ask a node with; with `runs`, the originals of their changes too."""
    return templates().get_template("history.sh.j2").render(home=HOME, runs=runs)


def parse(host: str, lines: Iterable[str]) -> list[Recorded]:
    """Raises HistoryError."""
    found: dict[str, Recorded] = {}
    whole = False
    for line in lines:
        name, *fields = line.split(" ")
        match name:
            case "change":
                found[fields[0]] = _change(host, *fields)
            case "original":
                found[fields[0]].originals[int(fields[1])] = _bytes(fields[2])
            case "end":
                whole = True
    if not whole:
        raise HistoryError(f"{host}: the record of its changes could not be read to the end; try again")
    return sorted(found.values(), key=lambda change: (change.run, change.order, change.id))


def _bytes(text: str) -> bytes:
    # One "=" more than base64 has, so that an empty file is still a field.
    return base64.b64decode(text.removesuffix("="))


def _change(host: str, change_id: str, state: str, reason: str, record: str) -> Recorded:
    values = dict(line.partition("=")[::2] for line in _bytes(state).decode("utf-8", "replace").splitlines())
    events = []
    for line in _bytes(record).decode("utf-8", "replace").splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue  # a line that a full disk cut short
    plan: dict[str, Any] = next((event for event in events if event.get("event") == "plan"), {})
    return Recorded(
        host=host,
        id=change_id,
        state=values.get("state", "lost"),
        reason=mask_text(_bytes(reason).decode("utf-8", "replace").strip()),
        boot=values.get("boot", ""),
        deadline=values.get("deadline", ""),
        plan=plan or {"run": values.get("run", ""), "who": values.get("who", ""), "command": values.get("command", "")},
        end=next((event for event in reversed(events) if event.get("event") == "end"), None),
    )
