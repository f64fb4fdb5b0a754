"""What is kept of a run and of each change: who, from where, what, before, after, proofs, how it ended. JSON lines."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from roles.change.bundle import Holder
from roles.change.mask import mask_command, mask_text
from roles.change.model import Change, FileEdit


@dataclass(frozen=True)
class RunInfo:
    """One command of an operator. `who` is user@host, `origin` the address it came from where that is another machine, `data` the
    sha256 of what was wanted of each host, `at` UTC as in RFC 3339 by that machine's clock; `generation` is what the cluster's lock gave
    it: higher than that of every run before it, whatever clocks say (0: it has not been taken)."""

    id: str
    who: str
    origin: str
    command: str
    data: str
    at: str
    generation: int = 0

    @property
    def holder(self) -> Holder:
        return Holder(self.id, self.who, self.command)


def this_run(run_id: str, desired: Mapping[str, Any]) -> RunInfo:
    """The run of this process; `desired` is what is wanted of each host, as plain data."""
    text = json.dumps(desired, sort_keys=True, default=str)
    return RunInfo(
        id=run_id,
        who=f"{os.environ.get('SUDO_USER') or getpass.getuser()}@{socket.gethostname()}",
        origin=os.environ.get("SSH_CONNECTION", "").split(" ")[0],
        command=" ".join(mask_command([Path(sys.argv[0]).name, *sys.argv[1:]])),
        data=hashlib.sha256(text.encode()).hexdigest(),
        at=now(),
    )


def new_run_id() -> str:
    """Begins with a letter, since pyinfra makes numbers of what looks like one; sorts by its time."""
    return time.strftime("r%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)


def now() -> str:
    """For people to read; nothing is decided by it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True)
class Effective:
    """Values in effect of what a change is about, each {"before": ..., "after": ...}: `gates` by name (None where there is nothing
    to be held to), `settings` by the field of the component's configuration, dots between its parts (None: not set)."""

    gates: Mapping[str, Mapping[str, bool | None]] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def undone(self) -> Effective:
        """The other way round."""
        return Effective(_turned(self.gates), _turned(self.settings))

    def recorded(self) -> dict[str, Any]:
        """As plain data, without what holds a secret."""
        settings = {name: dict(values) for name, values in self.settings.items() if not _secret(name, values)}
        return {"gates": {name: dict(values) for name, values in self.gates.items()}, "settings": settings}

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> Effective:
        """From a plan record."""
        return cls(plan.get("gates") or {}, plan.get("settings") or {})


def _secret(name: str, values: Mapping[str, Any]) -> bool:
    # A secret by the field's own name, whatever the names below it are; or by what its values look like.
    texts = (f"{name.rpartition('.')[2]}=value", json.dumps(dict(values)))
    return any(mask_text(text) != text for text in texts)


def _turned(values: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {"before": value.get("after"), "after": value.get("before")} for name, value in values.items()}


#: The kind of a change of the cluster itself, as records have it beside those of model.Change.
CLUSTER_KIND = "configmap"


def _begun(info: RunInfo, order: int, change: str, undoes: str) -> dict[str, Any]:
    return {
        "event": "plan",
        "format": FORMAT,
        "run": info.id,
        "who": info.who,
        "from": info.origin,
        "command": info.command,
        "data": info.data,
        "at": info.at,
        "generation": info.generation,
        "order": order,
        "change": change,
        "undoes": undoes,
    }


def cluster_record(
    info: RunInfo, order: int, change: str, node: str, component: str, summary: str, fields: Sequence[Mapping[str, Any]], undoes: str = ""
) -> dict[str, Any]:
    """All that is known of a change of the cluster itself before it is written. `node` is who keeps the record, `component` the object,
    `fields` those of its values that change: {"path": [...], "before": ..., "after": ...}, None where there is none."""
    return {
        **_begun(info, order, change, undoes),
        "node": node,
        "component": component,
        "kind": CLUSTER_KIND,
        "summary": mask_text(summary),
        "fields": [dict(field) for field in fields],
    }


def plan_record(info: RunInfo, order: int, change: Change, effective: Effective, undoes: str = "") -> dict[str, Any]:
    """All that is known of a change before it is applied, without any file's content. `undoes` is the change that this one
    undoes, or ""."""
    return {
        **_begun(info, order, change.id, undoes),
        "node": change.node,
        "component": change.component,
        "kind": change.kind,
        "unit": change.unit,
        "summary": mask_text(change.summary),
        "files": [file_record(edit) for edit in change.files],
        "arguments": {"before": change.old_arguments, "after": change.new_arguments},
        "health_url": change.health_url,
        "daemon_reload": change.daemon_reload,
        "pod": change.pod,
        "container": change.container,
        **effective.recorded(),
    }


def file_record(edit: FileEdit) -> dict[str, str]:
    return {"path": edit.path, "before": edit.before_sha256, "after": edit.after_sha256, "mode": f"{edit.mode:04o}"}


def end_record(change_id: str, outcome: str, why: str, proof: str, seconds: float) -> dict[str, Any]:
    """How a change ended; `seconds` from the first touch."""
    return {
        "event": "end",
        "change": change_id,
        "at": now(),
        "outcome": outcome,
        "why": mask_text(why),
        "proof": mask_text(proof),
        "seconds": round(seconds, 1),
    }


#: Of the events of a record, the operator's and the nodes'. A reader refuses what is newer than itself.
FORMAT = 1


class NewerFormat(ValueError):
    """A record of a later daytwo; says which format it has."""


def read_events(text: str) -> list[dict[str, Any]]:
    """The events of a record, the first one first. A line that a crash or a full disk cut short is passed over: nothing was done after it,
    since what cannot be recorded is not done. Raises NewerFormat."""
    events = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict):
            continue
        found = event.get("format", FORMAT)
        if not isinstance(found, int) or found > FORMAT:
            raise NewerFormat(f"the record has format {found!r}, and this daytwo knows {FORMAT} and older: use the one that wrote it")
        events.append(event)
    return events


def _append(path: Path, data: bytes) -> None:
    """A line, whole or not at all, and on the disk when this returns. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        # What was cut short before spoils no other line.
        rest = memoryview(data if not size or os.pread(descriptor, 1, size - 1) == b"\n" else b"\n" + data)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)
    if not size:
        for folder in (path.parent, path.parent.parent):
            _sync(folder)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class RunRecord:
    """The operator's own record of a run: one file of JSON lines, 0600, written through at each event."""

    def __init__(self, info: RunInfo) -> None:
        state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
        self.path = Path(state) / "daytwo/runs" / f"{info.id}.jsonl"
        self._begin = {"event": "run", "format": FORMAT, **asdict(info)}

    def write(self, event: Mapping[str, Any]) -> None:
        """Add a line, which is on the disk when this returns. Raises OSError; then nothing was added."""
        if self._begin:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _append(self.path, _line(self._begin))
            self._begin = {}
        _append(self.path, _line(event))

    def keep(self, name: str, text: str) -> Path:
        """A file of its own beside the record, 0600 and on the disk: what is needed to put back by hand. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.path.with_name(f"{self.path.stem}.{name}.json")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(descriptor)
        _sync(path.parent)
        return path


def _line(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event, sort_keys=True).encode() + b"\n"
