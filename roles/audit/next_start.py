"""What stands in the way of the next start of a node's kubelet and components, and of new pods. Pure, but for `read_obstacles`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from roles.audit.model import Finding
from roles.audit.view import View
from roles.engine import starting
from roles.engine.bridge import Remote
from roles.engine.findings import Severity
from roles.engine.starting import Cause, Obstacle, Stops
from roles.engine.timeouts import patient


def read_obstacles(remote: Remote, view: View) -> tuple[Obstacle, ...] | None:
    """None if it is not known. Raises RemoteError."""
    needs = starting.node_needs(view.kubelet, view.components.values()) if view.kubelet else None
    if needs is None:
        return None
    facts = starting.answer(needs, remote.run("sh -s", stdin=starting.question(needs), timeout=patient(starting.SECONDS + 30)).stdout)
    return tuple(starting.judge(remote.name, needs, facts)) if facts.complete else None


def findings(obstacles: Iterable[Obstacle]) -> Iterator[Finding]:
    """The dates of a component's certificates are findings of their own (certificates.py); what is not proven is not known."""
    for one in obstacles:
        if one.cause not in (Cause.certificate, Cause.unproven):
            yield Finding(
                severity=Severity.note if one.stops is Stops.note else Severity.critical,
                kind="start",
                node=one.host,
                component=None if one.is_of_record else one.component,
                name=None if one.subject.startswith("/") else one.subject,
                file=one.subject if one.subject.startswith("/") else None,
                value=one.value or None,
                rule=one.rule,
                way_out=one.way_out,
            )
