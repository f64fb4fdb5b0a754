"""Each autoscaler: why it has this count now, what would change it, and what keeps it from working. Read-only."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from roles.autoscaler_status import report
from roles.engine import bridge, table
from roles.engine.api import ApiFailure
from roles.engine.autoscaling import JudgedAutoscaler
from roles.engine.autoscaling.look import AutoscalerLook, look_at, managers_of
from roles.engine.bridge import Fleet
from roles.engine.harmless import as_json, one_line
from roles.engine.inputs import Declared, Frozen, Kubeconfig, Names
from roles.engine.object_runs import check_namespaces, connect_servers
from roles.engine.runs import deploying, one
from roles.engine.voice import show, show_document, show_lines


class StatusOptions(Frozen):
    """The data keys of deploys/autoscaler_status.py."""

    format: Annotated[
        Literal["table", "json"], Field(description="a table, or one JSON document on standard output", examples=["json"])
    ] = "table"
    namespaces: Annotated[Names, Field(description="only the autoscalers of these namespaces", examples=[["shop"], "shop,web"])] = None
    kubeconfig: Kubeconfig = None


#: Exit status if an autoscaler does not work; 0 if all do, 1 if the cluster cannot be read.
DOES_NOT_WORK = 2


@deploying("Status of autoscalers", one(StatusOptions))
def autoscaler_status(fleet: Fleet, options: StatusOptions) -> int | None:
    """Show each HorizontalPodAutoscaler with what the controller does now, each VerticalPodAutoscaler with what its updater does next.

    Data keys: `format` (table, or json: one document on standard output), `namespaces`, `kubeconfig`. Returns 2 if one does not work;
    raises DeployError if the cluster cannot be read.
    """
    found, session = connect_servers(fleet, options.kubeconfig)
    check_namespaces(session, options.namespaces)
    managers = managers_of({host: node.components for host, node in found.observed.items()})
    try:
        seen = session.asked(lambda api: look_at(api, found.reading.effective, managers, options.namespaces))
    except (ApiFailure, ValueError) as error:
        raise bridge.refuse(f"the cluster's autoscalers cannot be read: {error}") from None
    if options.format == "json":
        show_document(as_json(report.as_json(seen)))
    else:
        _show(seen)
    return None if all(one.works for one in seen.all) else DOES_NOT_WORK


def _show(seen: AutoscalerLook) -> None:
    if not seen.all:
        show("\nThere is no HorizontalPodAutoscaler.")
    if seen.judged:
        show("\nAutoscalers: what each metric asks for, and what the controller does now")
        show_lines(table.render(report.HEADERS, report.rows(seen.judged, seen.controller)))
    if seen.verticals:
        show("\nVertical autoscalers: what is recommended, and what the updater does next")
        show_lines(table.render(report.VERTICAL_HEADERS, report.vertical_rows(seen.verticals)))
    for found in seen.all:
        differs = found.differs if isinstance(found, JudgedAutoscaler) else ""
        for text in filter(None, [*(f"{problem.severity}: {problem}" for problem in found.problems), differs]):
            show(f"\n{one_line(report.name(found))}: {one_line(text)}")
    for text in seen.not_known:
        show(f"\nnot known: {one_line(text)}")
    broken = [one_line(report.name(found)) for found in seen.all if not found.works]
    if broken:
        verb = "does" if len(broken) == 1 else "do"
        show(f"\n{len(broken)} of {table.counted(len(seen.all), 'autoscaler')} {verb} not work: {', '.join(broken)}")


DATA_KEYS = (Declared(StatusOptions, ("autoscaler_status",)),)

__all__ = ["DATA_KEYS", "autoscaler_status"]
