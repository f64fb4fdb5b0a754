"""What stands in the way of the next start of a node's kubelet and components, and of new pods. Pure, but for `read_obstacles`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from roles.audit.rules import AuditRule
from roles.audit.view import View
from roles.engine import starting
from roles.engine.bridge import Remote
from roles.engine.findings import Finding, Place, Severity
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
            path = one.subject if one.subject.startswith("/") else None
            component = None if one.is_of_record else one.component
            yield AuditRule.START.found(
                Place(one.host, component, None if path else one.subject, path, value=one.value or None),
                one.rule,
                one.way_out,
                Severity.note if one.stops is Stops.note else None,
            )
