"""Nodes that take changes, their runs and what is recorded of these."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from roles.engine.bridge import Feed, Fleet
from roles.engine.node_changes.run import NodeRun
from roles.engine.remote import Answer
from roles.engine.transaction import Change, FileEdit
from tests.unit.hosts import INFO, LockHost


class Host(LockHost):
    """It takes a change and says whether it `began`, and keeps records (`full`: it has no room for them; `uncounted`: it gives runs no
    number)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.full = self.uncounted = self.began = False
        self.kept: list[str] = []

    def change(self, on_line: Callable[[str], None], feed: Feed) -> Answer:
        on_line("staged")
        self.began = feed.get() is not None
        return Answer(0, ["staged"], [])

    def answer(self, script: str, stdin: str) -> Answer:
        if not stdin:
            return super().answer(script, stdin) if not self.uncounted else Answer(0, [], ["No space left on device"])
        if self.full:
            return Answer(1, [], ["No space left on device"])
        self.kept.append(stdin)
        return Answer(0, [], [])


def fleet(*names: str) -> Fleet:
    hosts: list[Any] = [Host(name) for name in names]
    return Fleet(hosts, [], [], hosts)


def change(host: str) -> Change:
    """Of a kubelet."""
    return Change(
        id=f"{INFO.id}-{host}-kubelet", node=host, component="kubelet", kind="kubelet", unit="kubelet.service", summary="A=true",
        files=(FileEdit("/etc/a", b"1", b"2"),), health_url="http://127.0.0.1/", old_argv=None, new_argv=None,
    )  # fmt: skip


def events(run: NodeRun) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.record.path.read_text().splitlines()]
