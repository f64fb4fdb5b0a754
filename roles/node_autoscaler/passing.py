"""One pass of the loop: look, decide, ask the scheduler, carry out, and keep all of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from roles.engine.api import ApiFailure
from roles.engine.files import create_private, write_whole
from roles.engine.harmless import one_line
from roles.engine.shadow import ShadowError
from roles.engine.voice import show
from roles.node_autoscaler import metrics
from roles.node_autoscaler.child import Ended
from roles.node_autoscaler.decide import Situation, decide
from roles.node_autoscaler.decision import Decision
from roles.node_autoscaler.history import History, read_history
from roles.node_autoscaler.model import NodeAutoscalerOptions

#: Sets of machines that the cluster's scheduler is asked about in one pass.
_MOST_ASKED = 3
_PRIVATE, _READABLE = 0o600, 0o644


class Looks(Protocol):
    """The cluster, as a pass reads it (cluster.Cluster)."""

    def look(self) -> Situation: ...
    def confirms(self, now: Situation, decision: Decision) -> str: ...


class Runs(Protocol):
    """A deploy that carries out a decision (child.Child)."""

    def run(self) -> Ended: ...
    def interrupt(self) -> None: ...


class Record:
    """The file with the history of one cluster, and nothing else."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> History:
        """An empty one if there is no file yet. Raises OSError, and ValueError for a file that is none of a loop's."""
        try:
            return read_history(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return History()

    def write(self, history: History) -> None:
        """Raises OSError."""
        create_private(self.path.parent)
        write_whole(self.path, history.text(), _PRIVATE)


class Passing:
    """`start` returns a deploy with its data, which says the name of its run; `term` names who decides."""

    def __init__(
        self,
        cluster: Looks,
        options: NodeAutoscalerOptions,
        record: Record,
        start: Callable[[str, Mapping[str, str], Callable[[str], object]], Runs],
        term: Callable[[], str] = str,
    ) -> None:
        self._cluster, self._options, self._record, self._start, self._term = cluster, options, record, start, term
        self._running: Runs | None = None
        self._shown = ""

    def plan(self) -> Decision:
        """The decision of now. Nothing is written. Raises ApiFailure, OSError, ValueError."""
        return self._decided(self._cluster.look(), self._record.read())

    def once(self) -> Decision | None:
        """A pass; None if the cluster, or the record, cannot be read, or a decision was not carried out."""
        try:
            history, now = self._record.read(), self._cluster.look()
            decision = self._decided(now, history)
            if history.begun is not None and decision.kind != "finish":
                history = history.closed()
            history = history.decided(decision, now.now, self._term())
            self._record.write(history)
            if decision.acts or decision.line != self._shown:
                show(f"\n{now.time:%Y-%m-%d %H:%M:%SZ} {decision.line}")
            self._shown = decision.line
            done = not decision.acts
            if decision.acts:
                done, history = self._carried(now, decision, history)
                self._record.write(history)
            self._measure(now, decision, history)
        except (ApiFailure, OSError, ValueError) as error:
            show(f"\nWARNING: no decision: {one_line(str(error) or repr(error))}")
            return None
        return decision if done else None

    def interrupt(self) -> None:
        if self._running is not None:
            self._running.interrupt()

    def _decided(self, now: Situation, history: History) -> Decision:
        refused: list[frozenset[str]] = []
        while True:
            found = decide(now, history, self._options.limits, refused)
            if self._options.verify == "off" or found.kind != "wake" or not found.pods:
                return found
            try:
                why = self._cluster.confirms(now, found)
            except ShadowError as error:
                return replace(found, kind="hold", nodes=(), why=f"{found.why}; kube-scheduler could not be asked: {one_line(str(error))}")
            if not why:
                return replace(found, why=f"{found.why}, kube-scheduler agrees")
            show(f"\nnot {', '.join(found.nodes)}: kube-scheduler does not agree: {why}")
            refused.append(frozenset(found.nodes))
            if len(refused) >= _MOST_ASKED:
                return replace(
                    found, kind="hold", nodes=(), why=f"kube-scheduler does not agree with {len(refused)} sets of machines: {why}"
                )

    def _carried(self, now: Situation, decision: Decision, history: History) -> tuple[bool, History]:
        """Whether it was done and proven, and the history with that."""
        deploy, data = self._command(now, decision, history)
        before, history = history.begun, history.begins(decision)
        self._record.write(history)

        def named(run: str) -> None:
            nonlocal history
            history = history.named(run)
            self._record.write(history)

        self._running = self._start(deploy, data, named)
        try:
            ended = self._running.run()
        finally:
            self._running = None
        with suppress(ApiFailure, ValueError):
            now = self._cluster.look()
        if ended.code == 0:
            return True, history.succeeded(decision, now.now, ended.said, now.on, now.load)
        if not ended.begun:
            show(f"\nPUT OFF: {decision.line}: {ended.said}")
            return False, history.put_off(ended.said, before)
        show(f"\nFAILED: {decision.line}: {ended.said}")
        return False, history.failing(decision, now.now, ended.said)

    def _command(self, now: Situation, decision: Decision, history: History) -> tuple[str, dict[str, str]]:
        hosts = ",".join(now.hosts[name] for name in decision.nodes)
        mine = {"kubeconfig": self._options.kubeconfig} if self._options.kubeconfig else {}
        if decision.kind == "finish" and history.begun is not None and history.begun.run:
            mine["take_over"] = history.begun.run  # it was ended, and may have left the lock of the cluster
        if decision.wakes:
            return "power", {"power_on": hosts, "max_unavailable": str(len(decision.nodes)), **mine}
        return "consolidate", {"nodes": hosts, "spare_nodes": str(self._options.spare_nodes), "wakes": "false", **mine}

    def _measure(self, now: Situation, decision: Decision, history: History) -> None:
        if self._options.metrics is not None:
            write_whole(self._options.metrics, metrics.text(now, decision, history), _READABLE)
