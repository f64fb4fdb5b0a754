"""The nodes' records of their changes. Pure: reads the answer of templates/history.sh.j2.

A record is a statement of the host that keeps it (`Speaker`). Root on that host can write any record there, so a record is parsed for what
its host may speak of, and never becomes more than that: a worker's answer has no record of the cluster, whatever its lines say.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from roles.engine.bounds import digits
from roles.engine.harmless import one_line
from roles.engine.scripts import filled
from roles.engine.transaction import NOT_IN_FLIGHT, change_id, mask_text
from roles.engine.transaction.change_script import HOME
from roles.engine.transaction.record import CLUSTER_KIND, FORMAT, OBJECTS_KIND, parse_events

QUESTION_SECONDS = 60
#: Of a record, and of the original of a file (a survey reads 1 MiB of a file).
_MOST_BYTES = 4 << 20
#: No run has more changes, and no count of runs or changes is higher.
_MOST = 10**9
#: A node keeps the last 50 changes (roles/engine/transaction/model.py, KEEP), and those that are not over.
MOST_RECORDS = 1000
_DISBELIEVED = "disbelieved"
_MODE = re.compile(r"0?[0-7]{3,4}")


class Speaker(Enum):
    """Who keeps a record, and so what it may speak of. The operator's own records do not come from a host (roles/history/objects.py)."""

    #: The host of the cluster's lock, if the inventory says that it is a control-plane node: its own changes, and those of the cluster.
    keeper = "keeper"
    #: Any other host: its own changes.
    node = "node"


class HistoryError(Exception):
    """A node's answer is incomplete or invalid. Names the host."""


@dataclass(frozen=True)
class Recorded:
    """One change as its node recorded it. `plan`: the record from before the change; `end`: its outcome (None: only the node knows it);
    `originals`: by number, the old bytes of its files, if requested; `number`: the position in the node's own count of changes, None if
    it has none; `damaged`: lines of the record that cannot be read (from 1); `events`: all other lines; `disbelieved`: why its host may not
    say what it says ("": it may), and then all else of it is empty."""

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
    disbelieved: str = ""

    @property
    def problem(self) -> str | None:
        """Why the record cannot be used; None if it can."""
        if self.disbelieved:
            return f"NOT BELIEVED, and not undone: {self.disbelieved}; look at {HOME}/changes/{self.id} there"
        if int(self.plan.get("format") or 0) > FORMAT:
            return (
                f"a newer daytwo wrote it (format {self.plan['format']}; this one reads {FORMAT} and older). Use that daytwo or a later one"
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
        if not isinstance(found, dict) or type(found.get("number")) is not int or not 0 <= found["number"] <= _MOST:
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
    return isinstance(found, list) and all(
        isinstance(file, dict) and file.keys() >= {"path", "before", "after", "mode"} and _MODE.fullmatch(str(file["mode"]))
        for file in found
    )


def question(runs: Sequence[str] = (), home: str = HOME) -> str:
    """The script that reads a node's records; with `runs`, the originals of their changes too."""
    return filled("history.sh.j2", home=home, runs=runs, most_bytes=_MOST_BYTES)


def parse(host: str, lines: Iterable[str], speaker: Speaker = Speaker.node) -> list[Recorded]:
    """Raises HistoryError."""
    try:
        return _parse(host, lines, speaker)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, binascii.Error) as error:
        why = f"{type(error).__name__}: {error}"
        raise HistoryError(f"{host}: the record of its changes cannot be read ({why}); check {HOME}/changes on the node") from error


def _parse(host: str, lines: Iterable[str], speaker: Speaker) -> list[Recorded]:
    found: dict[str, Recorded] = {}
    whole = False
    for line in lines:
        name, *fields = line.split(" ")
        if len(found) > MOST_RECORDS:
            raise ValueError(f"it has more than {MOST_RECORDS} records")
        match name:
            case "change":
                found[fields[0]] = _change(host, speaker, *fields)
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


def _change(host: str, speaker: Speaker, name: str, state: str, reason: str, record: str, number: str = "-") -> Recorded:
    values = dict(line.partition("=")[::2] for line in _bytes(state).decode("utf-8", "replace").splitlines())
    record_lines = parse_events(_bytes(record))
    # A line that a full disk or a power cut left incomplete does not hide the others.
    events = record_lines.events
    plan: dict[str, Any] = next((event for event in events if event.get("event") == "plan"), {})
    # Convert numbers here, so that an invalid one is an error of the record.
    for key in ("format", "order"):
        if key in plan:
            plan[key] = _bounded(key, plan[key])
    if why := foreign(host, name, events, speaker):
        return Recorded(host, name, _DISBELIEVED, "", "", "", {}, None, disbelieved=why)
    return Recorded(
        host=host,
        id=name,
        state=values.get("state", "lost"),
        reason=mask_text(_bytes(reason).decode("utf-8", "replace").strip()),
        boot=values.get("boot", ""),
        deadline=values.get("deadline", ""),
        plan=plan or {"run": values.get("run", ""), "who": values.get("who", ""), "command": values.get("command", "")},
        end=next((event for event in reversed(events) if event.get("event") == "end"), None),
        number=None if digits(number) is None else _bounded("number", number),
        damaged=record_lines.damaged,
        events=events,
    )


def _bounded(name: str, value: Any) -> int:
    """Raises ValueError."""
    found = int(value)
    if not 0 <= found <= _MOST:
        raise ValueError(f"its {name} is {found}, and no {name} is that")
    return found


def foreign(host: str, name: str, events: Sequence[Mapping[str, Any]], speaker: Speaker) -> str:
    """Why a host may not say what one of its records says; "" if it may. `name`: of the record's directory."""
    for event in events:
        kind = event.get("kind")
        if kind in (CLUSTER_KIND, OBJECTS_KIND) or (event.get("event") == "plan" and "object" in event):
            if speaker is Speaker.keeper:
                continue
            return "it speaks of the cluster's objects, and that may only the host of the cluster's lock, a control-plane node"
        if event.get("event") != "plan":
            continue
        said, own = event.get("node"), change_id(str(event.get("run", "")), host, str(event.get("component", "")))
        if said != host:
            return f"it speaks of {one_line(str(said))}, and a node's record may speak of that node only"
        if (change := event.get("change", name)) != name or name != own:
            return f"it is the record of {one_line(str(change))}, and not of {one_line(own)}"
    return ""
