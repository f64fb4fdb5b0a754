"""The nodes' records of their changes. Pure: reads the answer of templates/history.sh.j2."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.engine.scripts import templates
from roles.engine.transaction import CLUSTER_KIND, FORMAT, HOME, NOT_IN_FLIGHT, OBJECTS_KIND, mask_text, parse_events

QUESTION_SECONDS = 60


class HistoryError(Exception):
    """A node's answer is incomplete or invalid. Names the host."""


@dataclass(frozen=True)
class Recorded:
    """One change as its node recorded it. `plan`: the record from before the change; `end`: its outcome (None: only the node knows it);
    `originals`: by number, the old bytes of its files, if requested; `number`: the position in the node's own count of changes, None if
    it has none; `damaged`: lines of the record that cannot be read (from 1); `events`: all other lines."""

    host: str
    id: str
    state: str
    reason: str
    boot: str
    deadline: str
    plan: dict[str, Any]
    end: dict[str, Any] | None
    originals: dict[int, bytes] = field(default_factory=dict)
    number: int | None = None
    damaged: tuple[int, ...] = ()
    events: tuple[dict[str, Any], ...] = ()

    @property
    def problem(self) -> str | None:
        """Why the record cannot be used; None if it can."""
        if int(self.plan.get("format") or 0) > FORMAT:
            return (
                f"a newer daytwo wrote it (format {self.plan['format']}; this one reads {FORMAT} and older); use that daytwo or a later one"
            )
        by_hand = f"the old files are on {self.host} in {HOME}/changes/{self.id}/before; restore them by hand"
        if self.plan.get("event") != "plan":
            lines = f" (line {', '.join(map(str, self.damaged))} is incomplete)" if self.damaged else ""
            return f"its plan cannot be read{lines}; {by_hand}"
        if not self.of_cluster and not _are_files(self.plan.get("files")):
            return f"its plan is incomplete; {by_hand}"
        return None

    @property
    def run_number(self) -> tuple[str, int] | None:
        """The count that numbered its run, and the number; None if it has none (format 0)."""
        found = self.plan.get("number")
        if not isinstance(found, dict) or not isinstance(found.get("number"), int):
            return None
        return str(found.get("count")), found["number"]

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
        """True for a change of the cluster itself; its host only keeps the record."""
        return self.plan.get("kind") in (CLUSTER_KIND, OBJECTS_KIND)

    @property
    def of_objects(self) -> bool:
        """True for a run on API objects (roles/engine/transaction/object_record.py)."""
        return self.plan.get("kind") == OBJECTS_KIND

    @property
    def in_flight(self) -> bool:
        return self.state not in NOT_IN_FLIGHT


def _are_files(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(file, dict) and file.keys() >= {"path", "before", "after", "mode"} for file in found)


def question(runs: Sequence[str] = ()) -> str:
    """The script that reads a node's records; with `runs`, the originals of their changes too."""
    return templates().get_template("history.sh.j2").render(home=HOME, runs=runs)


def parse(host: str, lines: Iterable[str]) -> list[Recorded]:
    """Raises HistoryError."""
    try:
        return _parse(host, lines)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, binascii.Error) as error:
        why = f"{type(error).__name__}: {error}"
        raise HistoryError(f"{host}: the record of its changes cannot be read ({why}); check {HOME}/changes on the node") from error


def _parse(host: str, lines: Iterable[str]) -> list[Recorded]:
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
        raise HistoryError(f"{host}: the record of its changes was read only in part; try again")
    return sorted(found.values(), key=lambda change: (change.number or 0, change.run, change.order, change.id))


def _bytes(text: str) -> bytes:
    # The field has one "=" more than base64, so that the field of an empty file is not empty.
    return base64.b64decode(text.removesuffix("="))


def _change(host: str, change_id: str, state: str, reason: str, record: str, number: str = "-") -> Recorded:
    values = dict(line.partition("=")[::2] for line in _bytes(state).decode("utf-8", "replace").splitlines())
    record_lines = parse_events(_bytes(record))
    # A line that a full disk or a power cut left incomplete does not hide the others.
    events = record_lines.events
    plan: dict[str, Any] = next((event for event in events if event.get("event") == "plan"), {})
    # Convert numbers here, so that an invalid one is an error of the record.
    for name in ("format", "order"):
        if name in plan:
            plan[name] = int(plan[name])
    return Recorded(
        host=host,
        id=change_id,
        state=values.get("state", "lost"),
        reason=mask_text(_bytes(reason).decode("utf-8", "replace").strip()),
        boot=values.get("boot", ""),
        deadline=values.get("deadline", ""),
        plan=plan or {"run": values.get("run", ""), "who": values.get("who", ""), "command": values.get("command", "")},
        end=next((event for event in reversed(events) if event.get("event") == "end"), None),
        number=int(number) if number.isdecimal() else None,
        damaged=record_lines.damaged,
        events=events,
    )
