"""What the nodes have recorded of the changes made on them. Pure: reads the answer of templates/history.sh.j2."""

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
    """A node's answer that is not whole. Names the host."""


@dataclass(frozen=True)
class Recorded:
    """One change as its node recorded it. `plan` is the record made beforehand, `end` how it ended (None: the node alone knows),
    `originals` the bytes of its files before by their number, where they were asked for. `number` is the node's own, which counts its
    changes as they come; None where it gave none. `damaged` are lines of the record that cannot be read (from 1); `events` all others."""

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
    def why_unusable(self) -> str | None:
        """Why it cannot be acted on; None where it can."""
        if int(self.plan.get("format") or 0) > FORMAT:
            return (
                f"a newer daytwo wrote it (format {self.plan['format']}; this one reads {FORMAT} and older); use that one, or a later one"
            )
        by_hand = f"what was before lies on {self.host} in {HOME}/changes/{self.id}/before, undo it by hand"
        if self.plan.get("event") != "plan":
            lines = f" (line {', '.join(map(str, self.damaged))} is cut)" if self.damaged else ""
            return f"its plan cannot be read{lines}; {by_hand}"
        if not self.of_cluster and not _are_files(self.plan.get("files")):
            return f"its plan lacks something; {by_hand}"
        return None

    @property
    def run_number(self) -> tuple[str, int] | None:
        """The number of its run, and the count that gave it; None where it has none (format 0)."""
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
        """True for a change of the cluster itself; its host is no more than who keeps the record."""
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
    """The script to ask a node with; with `runs`, the originals of their changes too."""
    return templates().get_template("history.sh.j2").render(home=HOME, runs=runs)


def parse(host: str, lines: Iterable[str]) -> list[Recorded]:
    """Raises HistoryError."""
    try:
        return _parse(host, lines)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, binascii.Error) as error:
        said = f"{type(error).__name__}: {error}"
        raise HistoryError(f"{host}: the record of its changes cannot be read ({said}); look there, in {HOME}/changes") from error


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
        raise HistoryError(f"{host}: the record of its changes could not be read to the end; try again")
    return sorted(found.values(), key=lambda change: (change.number or 0, change.run, change.order, change.id))


def _bytes(text: str) -> bytes:
    # One "=" more than base64 has, so that an empty file is still a field.
    return base64.b64decode(text.removesuffix("="))


def _change(host: str, change_id: str, state: str, reason: str, record: str, number: str = "-") -> Recorded:
    values = dict(line.partition("=")[::2] for line in _bytes(state).decode("utf-8", "replace").splitlines())
    record_lines = parse_events(_bytes(record))
    # A line that a full disk or a power cut left half hides no other.
    events = record_lines.events
    plan: dict[str, Any] = next((event for event in events if event.get("event") == "plan"), {})
    # What is counted and compared is a number from the start, and not only where it is used.
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
