"""The whole cluster as one HTML page that loads nothing else: the audit's page, with what status knows before it and after it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roles.audit import Report
from roles.audit import page as audit_page
from roles.engine import scripts
from roles.engine.bounds import EARLIEST, moment
from roles.engine.kube import amounts
from roles.engine.runs import ChangeReport
from roles.engine.table import brief_age
from roles.eviction import NodeOrder
from roles.status import nodes
from roles.status.model import CapacityReport, NodeReport, ResourceReport, StatusReport

# Of the recorded changes, the newest.
_RUNS = 40


def page(report: StatusReport, audited: Report, orders: Sequence[NodeOrder]) -> str:
    """The whole page. `audited` and `orders`: what `report.whole.audit` has."""
    assert report.whole is not None  # only what has read the whole makes a page
    whole, made = report.whole, moment(report.made) or EARLIEST
    now = made.timestamp()
    runs = [_run(one, now) for one in reversed(whole.runs)]
    return scripts.page(
        "status.html.j2",
        **audit_page.parts(audited, orders) | {"failures": report.unread},
        name=report.cluster.endpoint or "unknown endpoint",
        cluster_name=report.cluster.name or "",
        status=1 if report.unread else 0,
        warnings=report.warnings,
        nodes=[_node(one, now) for one in report.nodes],
        components=[
            {**one.model_dump(), "age": brief_age(one.age_seconds), "words": f"{one.host} {one.component}".lower()}
            for one in report.components
        ],
        certificates=_certificates(audited, now),
        capacity=None if whole.capacity is None else [_capacity(one) for one in whole.capacity],
        budgets=whole.budgets,
        autoscalers=whole.autoscalers,
        runs=runs[:_RUNS],
        more_runs=max(len(runs) - _RUNS, 0),
    )


def _node(one: NodeReport, now: float) -> dict[str, Any]:
    cells = dict(zip(nodes.HEADERS, nodes.row(one, now), strict=True))
    bad = {
        "ready": one.ready is False,
        "cordoned": one.cordoned is not None,
        "pressure": bool(one.pressures),
        "reboot": bool(one.needs_reboot),
        "last run": one.last_run is not None and one.last_run.state not in ("confirmed", "reverted"),
        "run in flight": bool(one.in_flight),
    }
    titles = {"reboot": one.why_reboot, "last run": one.last_run.run if one.last_run else ""}
    return {
        "name": one.host,
        "cells": [{"text": cells[name], "bad": bad.get(name, False), "title": titles.get(name, "")} for name in nodes.HEADERS[1:]],
        "headers": nodes.HEADERS[1:],
    }


def _certificates(audited: Report, now: float) -> list[dict[str, Any]]:
    """The first to end first."""
    found = [(one.until, node.name, one) for node in audited.nodes for one in node.certificates]
    rows = []
    for until, host, one in sorted(found, key=lambda row: row[:2]):
        left = (moment(until) or EARLIEST).timestamp() - now
        rows.append(
            {
                "until": until[:10],
                "left": brief_age(left) if left > 0 else "EXPIRED",
                "bad": (left < 30 * 86400 and not one.renews) or left <= 0,
                "host": host,
                "what": f"{one.component}: {one.use}",
                "renewed": "by the kubelet itself" if one.renews else "-",
                "file": one.file,
            }
        )
    return rows


def _capacity(one: CapacityReport) -> dict[str, Any]:
    return {"name": one.name, "bars": [_bar(resource) for resource in one.resources]}


def _bar(one: ResourceReport) -> dict[str, Any]:
    """Percentages of what is allocatable."""
    used = "" if one.used is None else f", {amounts.shown(one.resource, one.used)} used"
    return {
        "resource": one.resource,
        "requested": scripts.percent(one.requested, one.allocatable),
        "used": None if one.used is None else scripts.percent(one.used, one.allocatable),
        "full": one.requested > one.allocatable or (one.used or 0) > one.allocatable,
        "text": f"{amounts.shown(one.resource, one.requested)} requested{used}, of {amounts.shown(one.resource, one.allocatable)}",
    }


def _run(one: ChangeReport, now: float) -> dict[str, Any]:
    at = moment(one.at)
    return {
        **one.model_dump(),
        "place": one.place,
        "state": one.outcome,
        "bad": one.state not in ("confirmed", "reverted", "staged", "refused"),
        "age": "?" if at is None else f"{brief_age(now - at.timestamp())} ago",
    }
