"""Records of runs as nodes answer them, and a fleet that has them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from roles import history
from roles.engine.bridge import Fleet, Remote
from roles.engine.transaction import Change, Effective, FileEdit, RunInfo
from roles.engine.transaction.object_record import first_line, planned
from roles.engine.transaction.record import end_record, plan_record
from roles.history import Recorded, Speaker
from roles.history.facts import parse
from tests.unit.hosts import INFO

OLD, NEW = b"A=1\n", b"A=2\n"


def change(component: str = "kubelet", host: str = "w1", run: str = INFO.id, **other: Any) -> Change:
    values: dict[str, Any] = {
        "id": f"{run}-{host}-{component}",
        "node": host,
        "component": component,
        "kind": "kubelet",
        "unit": "kubelet.service",
        "summary": "A=true",
        "files": (FileEdit("/etc/a", OLD, NEW), FileEdit("/etc/made", None, b"x"), FileEdit("/etc/gone", b"y", None, mode=0o600)),
        "health_url": "http://127.0.0.1/",
        "old_argv": ("kubelet", "old"),
        "new_argv": ("kubelet", "new"),
        **other,
    }
    return Change(**values)


def answer(*lines: tuple[str, str, str, list[dict[str, Any]]], originals: str = "", number: str = "-") -> list[str]:
    def b64(text: str) -> str:
        return base64.b64encode(text.encode()).decode() + "="

    records = ["daytwo 1", "clock 5 b"]
    for name, state, reason, events in lines:
        records.append(f"change {name} {b64(state)} {b64(reason)} {b64(''.join(json.dumps(event) + chr(10) for event in events))} {number}")
    return [*records, *originals.splitlines(), "end"]


def recorded(
    made: Change | None = None, state: str = "confirmed", order: int = 1, undoes: str = "", speaker: Speaker = Speaker.node, **gates: Any
) -> Recorded:
    made = made or change()
    info = RunInfo(made.id[: len(INFO.id)], INFO.who, "", INFO.command, INFO.data, INFO.at)
    events = [plan_record(info, order, made, Effective(gates), undoes), end_record(made.id, state, "", "proof", 5.0)]
    originals = [
        f"original {made.id} {number} {base64.b64encode(edit.before).decode()}="
        for number, edit in enumerate(made.files, 1)
        if edit.before is not None
    ]
    lines = answer((made.id, f"state={state}\nboot=b\n", "because  \n", events), originals="\n".join(originals))
    (found,) = parse(made.node, lines, speaker)
    return found


def numbered(number: int, found: Recorded, run: int | None = None, count: str = "one") -> Recorded:
    """`number` by its node, `run` by the node that holds the cluster's lock."""
    plan = {**found.plan, "number": {"count": count, "number": run}} if run is not None else found.plan
    return replace(found, number=number, plan=plan)


OBJECTS_RUN = "r20260102-000000-bbbb"
OBJECTS_INFO = RunInfo(OBJECTS_RUN, "ann@desk", "", "pyinfra inv deploy", "d" * 64, "2026-01-02T00:00:00Z", {"count": "one", "number": 9})
FIELDS = [{"path": ["value"], "before": None, "after": 5}]
OBJECTS_LINES: list[dict[str, Any]] = [
    first_line(OBJECTS_INFO, f"{OBJECTS_RUN}-cluster-objects", "cp1", "nobody's", {}, "create PriorityClass web", ""),
    planned(OBJECTS_RUN, 1, "PriorityClass web", "create", "", FIELDS, {"path": "/web", "uid": ""}),
    end_record("PriorityClass web", "done", "", "read back", 1.0, "object"),
]


def of_objects(lines: list[dict[str, Any]] = OBJECTS_LINES, state: str = "confirmed", number: str = "9") -> Recorded:
    (found,) = parse("cp1", answer((f"{OBJECTS_RUN}-cluster-objects", f"state={state}\n", "", lines), number=number), Speaker.keeper)
    return found


NO_WAY = r"run r20260102-000000-bbbb is of nobody's, which this daytwo cannot undo; use the daytwo that started it"


def kept(path: Path, *events: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


class Host:
    """The part of a Remote that is used before there is a plan."""

    connected = True

    def __init__(self, name: str, **data: Any) -> None:
        self.name, self.is_control_plane = name, name.startswith("cp")
        self._data = data

    def data(self, key: str) -> Any:
        return self._data.get(key)


class Nodes(Fleet):
    """The nodes with these records, or errors. `reads`: the hosts of each read."""

    def __init__(self, records: dict[str, list[Recorded] | Exception], limit: Sequence[str] = (), **data: Any) -> None:
        hosts = {name: cast(Remote, Host(name, **data)) for name in records}
        targets = [host for name, host in hosts.items() if name in (limit or hosts)]
        super().__init__(targets, [host for host in hosts.values() if host not in targets], [], [*hosts.values()])
        self.records, self.reads = records, list[list[str]]()

    def each(self, remotes: Sequence[Remote], work: Callable[[Remote], Any], parallel: int = 20, doing: str = "") -> dict[str, Any]:
        self.reads.append([remote.name for remote in remotes])
        return {remote.name: self.records[remote.name] for remote in remotes}


def undone(nodes: Nodes) -> history.Undoing:
    found = history._run_to_undo(nodes)
    assert isinstance(found, history.Undoing)
    return found
