"""The record of a run and of each change: who, from where, what, before, after, proofs, how it ended. JSON lines."""

from __future__ import annotations

import contextlib
import errno
import getpass
import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from roles.engine import commands
from roles.engine.bounds import read_json
from roles.engine.files import create_private, keep_newest, state_folder
from roles.engine.transaction.change_script import Holder
from roles.engine.transaction.mask import mask_command, mask_text
from roles.engine.transaction.model import Change, FileEdit
from roles.engine.transaction.refusal import Refusal

#: The format of new records, stated in their first line. Older records that do not state it have format 0, and can be read too.
FORMAT = 1
#: Records that are kept on the operator's machine: the newest ones.
MOST_RUNS = 5000


@dataclass(frozen=True)
class RunInfo:
    """One command of an operator. `who` is user@host, `origin` the address it came from if that is another machine, `data` the sha256 of
    the desired state of all hosts, `at` UTC as in RFC 3339, `number` the cluster's number of the run (None until it begins):
    {"count": the count's name, "number": 7}."""

    id: str
    who: str
    origin: str
    command: str
    data: str
    at: str
    number: Mapping[str, str | int] | None = None

    @property
    def holder(self) -> Holder:
        return Holder(self.id, self.who, self.command)


def this_run(run_id: str, desired: Mapping[str, Any]) -> RunInfo:
    """The run of this process; `desired` is the desired state of each host, as plain data."""
    text = json.dumps(desired, sort_keys=True, default=str)
    return RunInfo(
        id=run_id,
        who=f"{os.environ.get('SUDO_USER') or getpass.getuser()}@{socket.gethostname()}",
        origin=os.environ.get("SSH_CONNECTION", "").split(" ")[0],
        command=" ".join(mask_command(commands.typed())),
        data=hashlib.sha256(text.encode()).hexdigest(),
        at=now(),
    )


def new_run_id() -> str:
    """Begins with a letter, since pyinfra converts text that looks like a number; sorts by time."""
    return time.strftime("r%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)


def now() -> str:
    """A time for people; no decision depends on it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True)
class Effective:
    """Effective values before and after a change, each {"before": ..., "after": ...}: `gates` by name (None: any value is right),
    `settings` by the field of the component's configuration, dots between its parts (None: not set), `flags` of a control-plane
    component, each a list of values (None: not given)."""

    gates: Mapping[str, Mapping[str, bool | None]] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    flags: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def undone(self) -> Effective:
        """The same for the undo of the change."""
        return Effective(_swapped(self.gates), _swapped(self.settings), _swapped(self.flags))

    def recorded(self) -> dict[str, Any]:
        """As plain data, without fields that hold a secret."""
        kept = {"gates": {name: dict(values) for name, values in self.gates.items()}, "settings": _not_secret(self.settings)}
        return kept | ({"flags": flags} if (flags := _not_secret(self.flags)) else {})

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> Effective:
        """From a plan record."""
        return cls(plan.get("gates") or {}, plan.get("settings") or {}, plan.get("flags") or {})


def _not_secret(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: dict(values) for name, values in settings.items() if not is_secret(name, values)}


def is_secret(name: str, values: Mapping[str, Any]) -> bool:
    """Whether the values of a field must not be in a record."""
    # A secret by the field's own name, whatever the names below it are; or by the format of its values.
    texts = (f"{name.rpartition('.')[2]}=value", json.dumps(dict(values)))
    return any(mask_text(text) != text for text in texts)


def _swapped(values: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {"before": value.get("after"), "after": value.get("before")} for name, value in values.items()}


#: The kinds of changes of the cluster itself, in addition to those of model.Change: one ConfigMap; a run on API objects.
CLUSTER_KIND, OBJECTS_KIND = "configmap", "objects"


def first_fields(info: RunInfo, order: int, change: str, undoes: str) -> dict[str, Any]:
    """The first fields in the record of every change. `undoes` is the change that this one undoes, or ""."""
    return {
        "event": "plan",
        "format": FORMAT,
        "run": info.id,
        "number": dict(info.number) if info.number is not None else None,
        "who": info.who,
        "from": info.origin,
        "command": info.command,
        "data": info.data,
        "at": info.at,
        "order": order,
        "change": change,
        "undoes": undoes,
    }


def cluster_record(
    info: RunInfo, order: int, change: str, node: str, component: str, summary: str, fields: Sequence[Mapping[str, Any]], undoes: str = ""
) -> dict[str, Any]:
    """A change of the cluster itself, before it is written. `node` is the node that keeps the record, `component` the object, `fields` its
    values that change: {"path": [...], "before": ..., "after": ...}, None if there is no value."""
    return {
        **first_fields(info, order, change, undoes),
        "node": node,
        "component": component,
        "kind": CLUSTER_KIND,
        "summary": mask_text(summary),
        "fields": [dict(field) for field in fields],
    }


def plan_record(info: RunInfo, order: int, change: Change, effective: Effective, undoes: str = "") -> dict[str, Any]:
    """A change before it is applied, without the content of files. `undoes` is the change that this one undoes, or ""."""
    return {
        **first_fields(info, order, change.id, undoes),
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
        **({"checkpoints": list(change.checkpoints)} if change.checkpoints else {}),
        **({"runtime": asdict(change.runtime)} if change.runtime else {}),
        **effective.recorded(),
    }


def file_record(edit: FileEdit) -> dict[str, Any]:
    found: dict[str, Any] = {"path": edit.path, "before": edit.before_sha256, "after": edit.after_sha256, "mode": f"{edit.mode:04o}"}
    return found | ({"owner": edit.owner} if edit.owner else {}) | ({"hidden": True} if edit.hidden else {})


def end_record(name: str, outcome: str, why: str, proof: str, seconds: float, what: str = "change") -> dict[str, Any]:
    """How a change, or another thing, ended, by its ID or name; `seconds` from the first touch."""
    return {
        "event": "end",
        what: name,
        "at": now(),
        "outcome": outcome,
        "why": mask_text(why),
        "proof": mask_text(proof),
        "seconds": round(seconds, 1),
    }


class Unrecorded(Exception):
    """A record could not be written, so nothing more may begin: without a record there is no undo. Names the file and the way out."""


class RunRecord:
    """The operator's own record of a run: a file of JSON lines, 0600. Each line is complete and on disk before `write` returns.

    The first line has the format (FORMAT) and the run. A line that could not be written completely is removed, so that later lines can
    be read.
    """

    def __init__(self, info: RunInfo) -> None:
        self.path = state_folder("runs") / f"{info.id}.jsonl"
        self._begin = {"event": "run", "format": FORMAT, **asdict(info)}

    def write(self, event: Mapping[str, Any]) -> None:
        """Add a line. Raises Unrecorded."""
        try:
            if self._begin:
                self._create()
                self._append(self._begin)
                self._begin = {}
            self._append(event)
        except OSError as error:
            raise Unrecorded(
                f"the record {self.path} could not be written ({error.strerror or error}), and nothing begins without it; "
                "free space there, or set another directory in the environment: XDG_STATE_HOME=DIRECTORY"
            ) from error

    def _create(self) -> None:
        """Create the empty file, and sync the directories above it. The oldest records are forgotten."""
        create_private(self.path.parent)
        keep_newest(self.path.parent, "*.jsonl", MOST_RUNS - 1)
        if not self.path.exists() or self.path.stat().st_size:
            # An existing file belongs to another run.
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        for directory in list(self.path.parents)[:3]:
            _sync_directory(directory)

    def _append(self, event: Mapping[str, Any]) -> None:
        data = memoryview(json.dumps(event, sort_keys=True).encode() + b"\n")
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            before = os.fstat(descriptor).st_size
            try:
                while data:
                    # On a nearly full disk only a part may be written; only the returned number shows that.
                    data = data[os.write(descriptor, data) :]
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, before)
                raise
        finally:
            os.close(descriptor)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a directory (fsync(2): EINVAL).
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Events:
    """The content of a record: its `events` in order, and the numbers of its `damaged` lines (from 1). `cut`: the last line is damaged, as
    after a power cut or on a full disk. `format` is that of the first event; 0 if it has none."""

    events: tuple[dict[str, Any], ...]
    damaged: tuple[int, ...]
    cut: bool
    format: int

    @property
    def of_newer(self) -> bool:
        """A newer daytwo wrote it: its fields may have another meaning."""
        return self.format > FORMAT


def parse_events(data: bytes) -> Events:
    """All readable lines of an operator's or a node's record. Raises nothing."""
    events: list[dict[str, Any]] = []
    damaged: list[int] = []
    # Not splitlines: JSON text may contain other line separators.
    lines = data.split(b"\n")
    whole = lines[-1] == b""
    lines = lines[:-1] if whole else lines
    for number, line in enumerate(lines, 1):
        event = _event(line)
        if event is None:
            damaged.append(number)
        else:
            events.append(event)
    found = events[0].get("format") if events else None
    version = found if isinstance(found, int) and found >= 0 else 0 if found is None else FORMAT + 1
    return Events(tuple(events), tuple(damaged), bool(damaged) and damaged[-1] == len(lines), version)


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        found = read_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def read_events(path: Path) -> Events:
    """An operator's record, as the basis of an undo; its last line may be cut. Raises OSError, and Refusal if it is not reliable."""
    found = parse_events(path.read_bytes())
    if found.of_newer:
        way_out = "use the daytwo that wrote it, or a later one"
        raise Refusal(str(path), f"a newer daytwo wrote this record (format {found.format}; this one reads {FORMAT} and older)", way_out)
    inside = found.damaged[:-1] if found.cut else found.damaged
    if inside:
        unreadable = f"line {', '.join(map(str, inside))} of this record cannot be read, so it may miss a change"
        raise Refusal(str(path), unreadable, "read the other lines and undo by hand, or delete the damaged ones")
    return found
