"""Each autoscaler: why it has this count now, what would change it, and what keeps it from working. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, TypeVar

from pydantic import Field

from roles.autoscaler_status import report
from roles.autoscaler_status.model import AutoscalersReport
from roles.engine import bridge
from roles.engine.api import ApiFailure, NoApi
from roles.engine.autoscaling import JudgedAutoscaler
from roles.engine.autoscaling.look import AutoscalerLook, look_at, managers_of
from roles.engine.bridge import Fleet
from roles.engine.bridge.tasks import Timeout
from roles.engine.findings import render
from roles.engine.folding import counted
from roles.engine.inputs import Declared, Frozen, Kubeconfig, Names
from roles.engine.inputs.values import TableOrJson
from roles.engine.object_runs import check_namespaces, connect_servers
from roles.engine.runs import Ended, deploying, document, one, show_report
from roles.engine.timeouts import patient
from roles.engine.voice import show_lines

T = TypeVar("T")

#: So long a look waits for the metrics of kube-controller-manager: one that hangs is a finding, not a reason to wait.
METRICS_SECONDS = 10.0


class StatusOptions(Frozen):
    """The data keys of deploys/autoscaler_status.py."""

    format: TableOrJson = "table"
    namespaces: Annotated[Names, Field(description="only the autoscalers of these namespaces", examples=[["shop"], "shop,web"])] = None
    kubeconfig: Kubeconfig = None


#: Exit status if an autoscaler does not work; 0 if all do, 1 if the cluster cannot be read.
DOES_NOT_WORK = 2


@deploying("Status of autoscalers", one(StatusOptions))
def autoscaler_status(fleet: Fleet, options: StatusOptions) -> Ended:
    """Show each HorizontalPodAutoscaler with what the controller does now, each VerticalPodAutoscaler with what its updater does next.

    Data keys: `format` (table, or json: one document on standard output), `namespaces`, `kubeconfig`. Returns 2 if one does not work;
    raises DeployError if the cluster cannot be read.
    """
    seen = _seen(fleet, options)
    forms = {"table": lambda: "\n".join(_text(seen)), "json": lambda: document(report.as_document(seen))}
    show_report(forms, options.format)
    code = 0 if all(found.works for found in seen.all) else DOES_NOT_WORK
    return Ended("" if options.format == "json" else _line(seen), code)


def list_autoscalers(fleet: Fleet, kubeconfig: str | None) -> str:
    """Show all autoscalers of the cluster. Returns the last line. Raises DeployError if the cluster cannot be read."""
    seen = _seen(fleet, StatusOptions(kubeconfig=kubeconfig))
    show_lines("\n".join(_text(seen)))
    return _line(seen)


def _seen(fleet: Fleet, options: StatusOptions) -> AutoscalerLook:
    found, session = connect_servers(fleet, options.kubeconfig)
    check_namespaces(session, options.namespaces)
    managers = managers_of({host: node.components for host, node in found.observed.items()})
    try:
        return session.asked(lambda api: look_at(api, partial(_soon, found.reading.effective), managers, options.namespaces))
    except (ApiFailure, ValueError) as error:
        raise bridge.refuse(f"the cluster's autoscalers cannot be read: {error}") from None


def _soon(effective: Callable[[str, str, str], T], host: str, component: str, node_name: str) -> T:
    """Raises ApiFailure also if the component hangs."""
    with Timeout(patient(METRICS_SECONDS), False):
        return effective(host, component, node_name)
    raise NoApi(f"{host}: {component} has not answered for {patient(METRICS_SECONDS):g} s: see its log, and the node's load")


def _line(seen: AutoscalerLook) -> str:
    broken, all_of_them = [report.name(found) for found in seen.all if not found.works], counted(len(seen.all), "autoscaler")
    if broken:
        return f"{len(broken)} of {all_of_them} {'does' if len(broken) == 1 else 'do'} not work: {', '.join(broken)}"
    return f"{all_of_them}, and all work" if seen.all else "no autoscalers"


def _text(seen: AutoscalerLook) -> Iterator[str]:
    if not seen.all:
        yield "\nThere is no HorizontalPodAutoscaler."
    if seen.judged:
        title = "Autoscalers: what each metric asks for, and what the controller does now"
        yield render.section(title, report.HEADERS, report.rows(seen.judged, seen.controller))
    if seen.verticals:
        title = "Vertical autoscalers: what is recommended, and what the updater does next"
        yield render.section(title, report.VERTICAL_HEADERS, report.vertical_rows(seen.verticals))
    for found in seen.all:
        yield from render.beside(report.name(found), found.problems, found.differs if isinstance(found, JudgedAutoscaler) else "")
    yield from render.not_known(seen.not_known)


DOCUMENTS = {"autoscaler_status": AutoscalersReport}
DATA_KEYS = (Declared(StatusOptions, ("autoscaler_status",)),)

__all__ = ["DATA_KEYS", "DOCUMENTS", "autoscaler_status", "list_autoscalers", "report"]
