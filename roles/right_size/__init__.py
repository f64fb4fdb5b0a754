"""Requests and limits from real use: what the kernel counted of each container, over many runs, against what it requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet, Remote
from roles.engine.folding import counted
from roles.engine.inputs import Changes, Declared, Undo
from roles.engine.kube.names import not_one_of
from roles.engine.object_runs import check_namespaces, connect_cluster, open_session
from roles.engine.objects import Session
from roles.engine.proof import survey
from roles.engine.runs import Ended, Options, Turns, deploying, document, show_report, with_options
from roles.right_size import apply, prometheus, report
from roles.right_size.document import RightSizeReport
from roles.right_size.judged import CollectedUse, JudgedContainer, grouped, judge_all, with_reads
from roles.right_size.model import RightSizeOptions
from roles.right_size.prometheus import PrometheusError
from roles.right_size.reading import collect
from roles.right_size.samples import SampleHistory, Span
from roles.right_size.store import FolderError, Store, StoreError
from roles.right_size.workloads import SizedWorkload


@deploying("Right size", with_options(RightSizeOptions))
def right_size(fleet: Fleet, asked: tuple[Options, RightSizeOptions]) -> Turns | Ended:
    """Show for each container what it uses, what it requests and what it should request; with `apply`, change that.

    Data keys: those of roles/right_size/model.py, and take_over (roles/engine/runs/options.py). Samples are kept on the operator's
    machine, and count in later runs. Raises DeployError if something could not be read, after it has shown the rest; with `apply` before
    any change.
    """
    common, options = asked
    if options.apply:
        reached = connect_cluster(fleet, options.kubeconfig)
        seen, found = observe(fleet, options, reached.session, reached.nodes)
        _write(options, seen, found)
        bridge.stop(seen.problems)
        return Turns.of(apply.plan_run(fleet, options, common, reached, seen, found), fleet, "resize, watch, and update templates")
    # An operator's own identity needs the addresses of the API servers, also with --limit.
    servers = [remote for remote in fleet.others if remote.is_control_plane] if options.kubeconfig else []
    surveyed = survey(fleet, [*fleet.targets, *(remote for remote in servers if remote.connected or remote.connect())])
    nodes = {node.kubelet.node_name: node.remote for node in surveyed.observed.values()}
    problems = [*(f"{remote.unreachable}; fix the connection" for remote in fleet.unreachable), *surveyed.refusals]
    seen, found = observe(fleet, options, open_session(fleet, surveyed, options.kubeconfig), nodes)
    seen.problems = [*problems, *seen.problems]
    _write(options, seen, found)
    if seen.problems:
        raise bridge.refuse("not everything could be read:", seen.problems)
    is_document = options.format != "table" and options.output is None
    return Ended("" if is_document else f"{counted(len(found), 'container')} judged")


def observe(
    fleet: Fleet, options: RightSizeOptions, session: Session, nodes: Mapping[str, Remote]
) -> tuple[CollectedUse, list[JudgedContainer]]:
    """Read the cluster for `watch` seconds, add that to the samples of earlier runs, and judge each container. `nodes`: those that are read
    over SSH, by name. Raises DeployError."""
    check_namespaces(session, options.read_namespaces)
    try:
        seen = collect(fleet, session, nodes, options.watch, options.interval, options.read_namespaces)
    except (ApiFailure, ValueError) as error:
        raise bridge.refuse(f"the cluster's containers cannot be read: {error}") from None
    seen.containers = [one for one in seen.containers if options.chosen(one.workload)]
    seen.lives = [one for one in seen.lives if options.chosen(one.workload)]
    there = {f"{workload.namespace}/{workload.kind}/{workload.name}" for workload in grouped(seen.containers)}
    bridge.stop(text for name in options.only_objects or () if (text := not_one_of(name, sorted(there), "no workload that has pods now")))
    histories = _kept(seen)
    return seen, judge_all(seen, histories, options.min_span_seconds, _more(options, seen))


def _kept(seen: CollectedUse) -> dict[SizedWorkload, Mapping[str, SampleHistory]]:
    """What is known of each workload's containers: this run's reads added to the kept ones. If these cannot be used, only this run's count,
    and `problems` says so."""
    store, now = Store.of(seen.cluster), time.time()
    found: dict[SizedWorkload, Mapping[str, SampleHistory]] = {}
    usable = True
    for workload, lives in grouped(seen.lives).items():
        change = partial(with_reads, lives=lives, seen=seen, now=now)
        try:
            found[workload] = store.update(workload, change) if usable else change({})
        except StoreError as error:
            # A full disk and a lock that is held are the same for all workloads: one error, and one wait.
            usable = not isinstance(error, FolderError)
            seen.problems.append(f"{f'{workload}: ' if usable else ''}{error}; only this run's own reads count")
            found[workload] = change({})
    try:
        if usable:
            store.forget(now)
    except StoreError as error:
        seen.problems.append(str(error))
    return found


def _more(options: RightSizeOptions, seen: CollectedUse) -> dict[tuple[str, str, str], Span]:
    if options.prometheus is None:
        return {}
    try:
        return prometheus.spans(options.prometheus, sorted({one.workload.namespace for one in seen.containers}), time.time())
    except PrometheusError as error:
        seen.problems.append(str(error))
        return {}


def _write(options: RightSizeOptions, seen: CollectedUse, found: Sequence[JudgedContainer]) -> None:
    made = datetime.now(UTC)
    forms: dict[str, Callable[[], str]] = {
        "table": lambda: "\n".join(report.lines(found, seen.notes)),
        "json": lambda: document(
            report.as_document(
                found, made=made.isoformat(timespec="seconds"), cluster=seen.cluster, notes=seen.notes, problems=seen.problems
            )
        ),
        "html": lambda: report.page(found, made=made.strftime("%Y-%m-%d %H:%M UTC"), notes=seen.notes, problems=seen.problems),
    }
    show_report(forms, options.format, options.output)


DOCUMENTS = {"right_size": RightSizeReport}
DATA_KEYS = (Declared(RightSizeOptions, ("right_size",), changes=Changes.OBJECTS, undo=Undo(apply.undo, apply.WRITES)),)

__all__ = [
    "DATA_KEYS",
    "DOCUMENTS",
    "right_size",
]
