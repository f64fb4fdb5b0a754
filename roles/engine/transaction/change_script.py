"""A change as a node gets it: a directory with before/, after/, change.sh, state and log."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.scripts import filled
from roles.engine.transaction import model
from roles.engine.transaction.model import Change

HOME = "/var/lib/daytwo"
SYSTEMD = "/etc/systemd/system"
#: What stays itself in a quoted word of every shell, up to the longest word that a `printf` outside the shell takes (execve(2)).
_UNQUOTABLE = re.compile(rb"[^\t\n -~]")
_MOST_QUOTED = 100_000


@dataclass(frozen=True)
class Holder:
    """The run that holds a node or the cluster, with `who` as user@host and its command line (secrets masked).

    `fence` is the generation of the cluster's lock that the run holds (roles/engine/runs/lock.py). A node refuses a change of an older
    generation than it has seen.
    """

    run: str
    who: str
    command: str
    fence: str = ""

    @property
    def lines(self) -> str:
        """key=value, one a line."""
        fields = {"run": self.run, "who": self.who, "command": self.command, **({"fence": self.fence} if self.fence else {})}
        return "".join(f"{key}={' '.join(value.split())}\n" for key, value in fields.items())


def directory(change_id: str, home: str = HOME) -> str:
    return f"{home}/changes/{change_id}"


def script(change_id: str, home: str = HOME) -> str:
    """The path of the change's script on its node, as a shell word: in the record, or in active/ if the record is gone.

    The record comes first: the directory in active/ goes away as soon as the change is over, perhaps in the middle of a command.
    """
    record, in_flight = f"{directory(change_id, home)}/change.sh", f"{home}/active/{change_id}/change.sh"
    return f"$(if [ -e {record} ]; then echo {record}; else echo {in_flight}; fi)"


def render(change: Change, home: str = HOME, systemd: str = SYSTEMD) -> str:
    """The text of change.sh. `home` and `systemd` are the node's directories for daytwo and for its units."""
    return filled(
        "change.sh.j2",
        id=change.id,
        home=home,
        systemd=systemd,
        node=_comment(change.node),
        component=change.component,
        kind=change.kind,
        unit=change.unit,
        summary=_comment(change.summary),
        files=[
            {
                "path": edit.path,
                "before_sha256": edit.before_sha256,
                "after_sha256": edit.after_sha256,
                "mode": f"{edit.mode:04o}",
                "owner": edit.owner,
            }
            for edit in change.files
        ],
        checkpoints=change.checkpoints,
        runtime=change.runtime.unit if change.runtime else "",
        grace_seconds=model.POD_SECONDS,
        health_url=change.health_url,
        old_arguments=change.old_arguments,
        new_arguments=change.new_arguments,
        daemon_reload=change.daemon_reload,
        pod=change.pod,
        container=change.container,
        apply_timeout=change.apply_timeout,
        confirm_timeout=change.confirm_timeout,
        soak=change.soak,
        revert_timeout=change.revert_timeout,
        retry_seconds=model.RETRY_SECONDS,
        io_seconds=change.io_seconds,
        turn_seconds=model.TURN_SECONDS,
        stop_seconds=model.STOP_SECONDS,
        evidence_seconds=model.EVIDENCE_SECONDS,
        stable_seconds=model.STABLE_SECONDS,
        settle_seconds=change.settle_seconds,
        keep=model.KEEP,
    )


def _comment(text: str) -> str:
    return " ".join(text.split())


def contents(change: Change, holder: Holder, record: Mapping[str, Any], home: str = HOME, systemd: str = SYSTEMD) -> dict[str, bytes]:
    """All files of the change's directory, by name. `record` is what is known about the change in advance."""
    files = {
        "change.sh": render(change, home, systemd).encode("utf-8", "surrogateescape"),
        **boot_files(change.unit, home),
        "holder": holder.lines.encode("utf-8", "surrogateescape"),
        "record.jsonl": json.dumps(dict(record), sort_keys=True).encode() + b"\n",
        "state": b"state=staged\n",
    }
    return files | {f"after/{number}": edit.after for number, edit in enumerate(change.files, 1) if edit.after is not None}


def boot_files(unit: str, home: str = HOME) -> dict[str, bytes]:
    """The script, unit and timer that revert unconfirmed changes at boot, before `unit` (the kubelet's) starts, and then retry."""
    values = {"unit": unit, "home": home, "window": model.BOOT_SECONDS, "every": model.BOOT_RETRY_SECONDS}
    names = ("recover.sh.j2", "daytwo-recover.service.j2", "daytwo-recover.timer.j2")
    return {name.removesuffix(".j2"): filled(name, **values).encode() for name in names}


def uninstall_script(io_seconds: int = model.IO_SECONDS, home: str = HOME, systemd: str = SYSTEMD) -> str:
    """A script for root that removes daytwo from the node. Its last line is `clean`, `busy WHY`, or `removed`, with what it could not
    remove (`, but left: PATH (WHY); ...`). It skips a file system that does not answer within `io_seconds`."""
    return filled("uninstall.sh.j2", home=home, systemd=systemd, io_seconds=io_seconds)


def keep_script(
    change_id: str, holder: Holder, state: str, events: Sequence[Mapping[str, Any]], home: str = HOME, *, append: bool = False
) -> str:
    """A script for `sh -s` as root: the node keeps the record of a change of the cluster itself. It replaces the node's record of this
    change, or appends to it (`append`), and forgets the oldest ones. `state` is a state of change.sh."""
    record = "\n".join(json.dumps(dict(event), sort_keys=True) for event in events)
    values = {"id": change_id, "home": home, "holder": holder.lines, "record": record, "state": state, "append": append, "keep": model.KEEP}
    return filled("keep.sh.j2", **values)


def stage_script(change: Change, holder: Holder, record: Mapping[str, Any], home: str = HOME, systemd: str = SYSTEMD) -> str:
    """A POSIX sh script for `sh -s` as root: writes the change to a directory of its own, checks it, prints `staged`, and waits for the
    line `go` on standard input. With it, the script moves the directory to its place, applies the change detached, and then waits for
    another line, `confirm [RECORD]` or `revert REASON`.

    It prints the log and the status of the change (roles/engine/transaction/report.py reads them). Without `go`, or if there is no space
    for the directory, it leaves none.
    """
    files = contents(change, holder, record, home, systemd)
    # The files that never change later; the state and the record do.
    lasting = {name: data for name, data in files.items() if name not in ("state", "record.jsonl")}
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in lasting.items())
    written = {**files, "SHA256SUMS": sums.encode()}
    return filled(
        "stage.sh.j2", id=change.id, home=home, files={name: _quotable(data, checked=name in lasting) for name, data in written.items()}
    )


def _quotable(data: bytes, *, checked: bool) -> dict[str, object]:
    """The content of a file for a script: as it is, or in base64 if a shell could change it, or if no checksum shows what it did not
    write (`checked`)."""
    if checked and len(data) <= _MOST_QUOTED and not _UNQUOTABLE.search(data):
        return {"plain": True, "text": data.decode("ascii")}
    return {"plain": False, "text": base64.encodebytes(data).decode().rstrip("\n")}


def resume_script(change_id: str, home: str = HOME) -> str:
    """Shell that watches a change after a lost connection. If it has not begun, it can no longer begin, and its state is `staged`."""
    staged, away = f"{home}/changes/.{change_id}.*", f"{home}/ended-{change_id}"
    take_away = f'for new in {staged}; do [ ! -d "$new" ] || {{ mv -T "$new" {away}; rm -rf {away}; }}; done'
    return f'{take_away}; script="{script(change_id, home)}"; [ ! -e "$script" ] || exec sh "$script" watch; echo state=staged'
