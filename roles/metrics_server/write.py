"""Proves each object: read back, rolled out, and at the end fresh metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from roles.engine.context import ClusterStep
from roles.engine.kube import Object
from roles.engine.kube.fields import pod_template
from roles.engine.objects import NotDone, ObjectChange, ObjectWriter, RollOuts, Session
from roles.engine.timeouts import LOOK_AGAIN, Deadline
from roles.engine.voice import show
from roles.metrics_server import health
from roles.metrics_server.manifests import NAME, NAMESPACE, differing


class ServerWriter(ObjectWriter):
    """`seconds`: for the roll-out, and as long again for the metrics; never scaled. `serves`: the metrics API exists after this run."""

    def __init__(self, session: Session, *, force: bool, seconds: float, serves: bool) -> None:
        super().__init__(session, force=force)
        self.rolling = RollOuts(session, show)
        self.warnings = self.rolling.warnings
        self._seconds, self._serves = seconds, serves
        self._last: ObjectChange | None = None

    def steps(self, changes: Sequence[ObjectChange], action: str = "") -> tuple[ClusterStep, ...]:
        self._last = changes[-1] if changes and self._serves else None
        return super().steps(changes, action)

    def removed(self, change: ObjectChange) -> str:
        return self._works() if change is self._last else ""

    def proven(self, change: ObjectChange, of: str) -> str:
        self.read_back(change, of, self.session.fetch(change.path))
        proof = "read back"
        if change.kind.name == "Deployment":
            left = self.rolling.wait(
                "Deployment", f"{NAMESPACE}/{NAME}", change.path, of, self._seconds, _changed(change), lambda pod: True
            )
            proof = f"read back; rolled out{'; ' + left if left else ''}"
        return f"{proof}; {self._works()}" if change is self._last else proof

    def _works(self) -> str:
        """Wait until the metrics API works. A server needs two scrapes before it knows a node's CPU. Raises NotDone, ApiFailure."""
        deadline, shown = Deadline(self._seconds, as_given=True), ""
        while True:
            found = health.look(self.session)
            if not found.problems:
                return found.proof
            text = "; ".join(found.problems)
            if text != shown:
                shown = text
                show(f"  waiting: {text} ({deadline.passed:.0f} of {deadline.seconds:g} s)")
            if deadline.over:
                raise NotDone(f"it does not work after {deadline.seconds:g} s: {text}; see kubectl logs -n {NAMESPACE} deployment/{NAME}")
            deadline.pause(LOOK_AGAIN)


def _changed(change: ObjectChange) -> Callable[[Object], str]:
    assert change.manifest is not None
    template = pod_template(change.manifest)
    return lambda now: "someone else has changed it during its roll-out" if differing(template, pod_template(now)) else ""
