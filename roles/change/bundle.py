"""The change as it reaches the node: one directory with before/, after/, change.sh, state and log."""

from __future__ import annotations

import base64
import hashlib
import shlex

from roles.change import model
from roles.change.model import Change
from roles.scripts import templates

CHANGES = "/var/lib/daytwo/changes"


def directory(change_id: str) -> str:
    return f"{CHANGES}/{change_id}"


def render(change: Change) -> str:
    """The text of change.sh."""
    return (
        templates()
        .get_template("change.sh.j2")
        .render(
            id=change.id,
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
                }
                for edit in change.files
            ],
            health_url=change.health_url,
            old_arguments=model.cmdline_sha256(change.old_argv),
            new_arguments=model.cmdline_sha256(change.new_argv),
            daemon_reload=change.daemon_reload,
            pod=change.pod,
            container=change.container,
            apply_timeout=change.apply_timeout,
            revert_timeout=model.REVERT_TIMEOUT,
            stable_seconds=model.STABLE_SECONDS,
        )
    )


def _comment(text: str) -> str:
    return " ".join(text.split())


def stage_script(change: Change) -> str:
    """A POSIX sh script, to be fed to `sh -s` as root: lays the directory down, checks it, and applies it detached.

    It ends with the log and the status of the change (roles/change/report.py reads them).
    """
    contents = {"change.sh": render(change).encode("utf-8", "surrogateescape")}
    for number, edit in enumerate(change.files, 1):
        if edit.after is not None:
            contents[f"after/{number}"] = edit.after
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in contents.items())
    here = shlex.quote(directory(change.id))
    lines = [
        "set -eu",
        "umask 077",
        f"mkdir -p {CHANGES}",
        f"chmod 0700 {CHANGES}",
        f"mkdir {here} {here}/after",
        f"cd {here}",
    ]
    for name, data in {**contents, "SHA256SUMS": sums.encode()}.items():
        lines += [f"base64 -d >{name} <<'.'", base64.encodebytes(data).decode().rstrip("\n"), "."]
    lines += [
        "sha256sum -c --quiet SHA256SUMS",
        "printf 'state=staged\\n' >state",
        f"sync {' '.join([*contents, 'SHA256SUMS', 'state', 'after', '.', '..'])}",
        f"exec sh {here}/change.sh detached apply",
    ]
    return "\n".join(lines) + "\n"
