"""The outage of a node, for each purpose: whose cordon it leaves, and that it goes on only while the run has the cluster's lock."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.node_changes.outages import CHANGE
from roles.engine.objects import NotDone
from roles.engine.outage import DrainConsents, Mark, NodeOutage, Purpose, end_outage, read_mark
from roles.engine.runs.lock import Locked
from roles.reboot.plan import REBOOT
from tests.context import context
from tests.unit.disruption.world import deployment
from tests.unit.outage.cluster import LiveCluster
from tests.unit.outage.world import cordon, node

RUN, OLD, DRAIN = "r20260102-000000-bbbb", "r20260101-000000-aaaa", "r20251224-080000-01d0"
BOOT = "00000000-53a4-4b4b-9f4f-0123456789ab"
PURPOSES = pytest.mark.parametrize(("purpose", "boot"), [(CHANGE, ""), (REBOOT, BOOT)], ids=["change", "reboot"])


class Run:
    """A run with a record; `taken_over`: after so many events, another run has the lock."""

    def __init__(self, halted: str = "", taken_over: int = 100) -> None:
        self.halted, self.events, self._left = halted, list[Any](), taken_over
        self.context = context(run=RUN, note=self.events.append, stopped=lambda: self.halted, ensure=self.ensure)

    def ensure(self) -> None:
        if len(self.events) > self._left:
            raise Locked("another run has held this cluster's lock")


def outage(cluster: LiveCluster, purpose: Purpose, boot: str = "") -> NodeOutage:
    return NodeOutage(cluster.session, "w1", DrainConsents(drain_timeout=60), RUN, purpose, boot=boot)


def marked(by: str, purpose: Purpose, boot: str = "") -> dict[str, Any]:
    """A node that was cordoned: `earlier` by a run for the same purpose, by a `drain`, by `kubectl`, or by nobody."""
    mark = {"earlier": Mark(OLD, purpose.name, boot).text(), "drain": DRAIN}.get(by, "")
    found = node("w1", manager={"kubectl": "kubectl-cordon", "": ""}.get(by, "daytwo"), mark=mark)
    return found


@PURPOSES
@pytest.mark.parametrize("by", ["drain", "kubectl"])
def test_a_cordon_that_was_there_before_stays_with_its_mark(monkeypatch: pytest.MonkeyPatch, purpose: Purpose, boot: str, by: str) -> None:
    """Also one that a drain has set between plan and turn; also if the drain fails. A boot is remembered on the node all the same."""
    for fails in ("", "the run halts", "no replacement"):
        run = Run(halted=fails.removeprefix("no replacement"))
        cluster = LiveCluster(monkeypatch, marked(by, purpose), node("w2"), *deployment(2, 2))
        cluster.starts = not fails
        one = outage(cluster, purpose, boot)
        if fails:
            with pytest.raises(NotDone, match=r"w1: it keeps the cordon that it had"):
                one.take(run.context)
        else:
            assert "1 workload serves elsewhere" in one.take(run.context) and not one.cordoned
            during = Mark(RUN, "reboot", BOOT, DRAIN if by == "drain" else "") if boot else None
            assert during is None or read_mark(cluster.node("w1")) == during
            one.give_back(run.context)
        assert cordon(cluster.node("w1")) == (True, DRAIN if by == "drain" else "")


@PURPOSES
def test_what_an_earlier_run_left_for_the_same_purpose_ends(monkeypatch: pytest.MonkeyPatch, purpose: Purpose, boot: str) -> None:
    for by in ("earlier", ""):
        cluster = LiveCluster(monkeypatch, marked(by, purpose, boot), node("w2"), *deployment(1, 1))
        one = outage(cluster, purpose, boot)
        one.take(Run().context)
        assert one.cordoned and read_mark(cluster.node("w1")) == Mark(RUN, purpose.name, boot)
        one.give_back(Run().context)
        assert cordon(cluster.node("w1")) == (False, "") and not one.cordoned


@PURPOSES
def test_if_the_drain_fails_its_cordon_is_removed_and_that_of_the_run_before_is_there_again(
    monkeypatch: pytest.MonkeyPatch, purpose: Purpose, boot: str
) -> None:
    for by, said, mark in (("", "uncordoned", None), ("earlier", "given back to run", Mark(OLD, purpose.name, boot))):
        cluster = LiveCluster(monkeypatch, marked(by, purpose, boot), node("w2"), *deployment(2, 2))
        cluster.starts = False
        with pytest.raises(NotDone, match=rf"w1: {said}.*read back"):
            outage(cluster, purpose, boot).take(Run().context)
        now = cluster.node("w1")
        assert read_mark(now) == mark and cordon(now)[0] is bool(mark) and len(cluster.evictions) == 1


@pytest.mark.parametrize(
    ("manager", "mark", "said", "after"),
    [
        ("daytwo", RUN, "uncordoned", (False, "")),
        ("daytwo", "r0", "uncordoned", (False, "")),
        (
            "daytwo",
            "r1",
            "run r1 has taken its cordon over: undo that run, or pyinfra INVENTORY deploys/uncordon.py --data nodes=w1",
            (True, "r1"),
        ),
        ("kubectl-cordon", RUN, "kubectl-cordon (Update) has cordoned it since: that cordon stays", (True, "")),
        ("kubectl-cordon", "", "kubectl-cordon (Update) has cordoned it since: that cordon stays", (True, "")),
        ("", RUN, "it is not cordoned", (False, "")),
    ],
)
@pytest.mark.parametrize("old", [False, True])
def test_at_the_end_only_its_own_cordon_is_removed(
    monkeypatch: pytest.MonkeyPatch, manager: str, mark: str, said: str, after: tuple[bool, str], old: bool
) -> None:
    """r0: an earlier run, which this one continues; r1: a drain."""
    cluster = LiveCluster(monkeypatch, node("w1", manager=manager, mark=mark, old=old))
    _, back = end_outage(cluster.session, "w1", "", {RUN, "r0"}, context())
    assert (back.done or back.why) == said and cordon(cluster.node("w1")) == after


def test_after_a_take_over_no_pod_leaves_and_nothing_is_uncordoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that has the lock may be draining the same node."""
    cluster = LiveCluster(monkeypatch, node("w1"), node("w2"), *deployment(2, 2))
    # The cordon and the first eviction are recorded and done.
    with pytest.raises(NotDone, match=r"another run has held this cluster's lock.*STILL CORDONED"):
        outage(cluster, CHANGE).take(Run(taken_over=2).context)
    assert len(cluster.evictions) == 1 and cordon(cluster.node("w1")) == (True, f"{RUN} (change)")
