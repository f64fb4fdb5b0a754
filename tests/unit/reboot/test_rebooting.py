"""The reboot of one node, step by step, on a node that is an object: each answer that may be lost, each failure, and what is left."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from roles.engine import timeouts
from roles.engine.context import ClusterStep, Fields, StepContext
from roles.engine.objects import NotDone, RevertFailed, Session, Undone
from roles.engine.outage import Mark, Purpose, read_mark
from roles.engine.outage.cordon import CordonBack
from roles.engine.outage.mark import OUTAGE
from roles.engine.remote import Answer, RemoteError
from roles.engine.runs import Options
from roles.engine.runs.lock import Locked
from roles.reboot import Candidate, NodeReboots, RebootOptions, RebootPlan, facts, plan_node
from roles.reboot.ending import plan_ending
from roles.reboot.facts import parse_facts
from roles.reboot.plan import WITHOUT_EFFECT
from tests.context import context
from tests.unit.clock import Clock

OLD, NEW = "00000000-53a4-4b4b-9f4f-0123456789ab", "11111111-53a4-4b4b-9f4f-0123456789ab"
RUN = "r20260101-000000-aaaa"


def field(text: str) -> str:
    return base64.b64encode(text.encode()).decode() + "="


UNITS = "Id=kubelet.service\nNames=kubelet.service\nLoadState=loaded\nUnitFileState=enabled\nActiveState=active\n"


class Node:
    """A node, its host and its objects in the API. `away`: seconds that a reboot takes; `refuses`: the order's unit fails; `loses`: so many
    answers to orders are lost, before the node has them."""

    name = "w1"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.boot, self.kernel, self.began = OLD, "6.1.0-18-amd64", clock.now - 500
        self.back_at = 0.0
        self.away, self.refuses, self.loses = 40.0, False, 0
        self.orders, self.log = 0, list[str]()
        self.annotations: dict[str, str] = {}
        self.limits: list[object] = []
        self.reports, self.proxy_ready, self.skew, self.stays_down = True, True, 0.0, False
        self.interrupted = self.halted = ""
        self.drains: Exception | None = None
        self.uncordons: Exception | None = None
        self.order, self.state, self.control_plane = "", "running", ""
        self.taken_over, self.asks_again = "", False
        self.more, self.kernel_after, self.forwards = list[str](), self.kernel, {OLD: "1", NEW: "1"}

    # ---- its host

    def drop(self) -> None:
        self.log.append("drop")

    def ensure_connected(self, within: float = 0) -> None:
        if self.back_at:
            if self.stays_down or self.clock.now < self.back_at:
                raise RemoteError("w1: unreachable")
            self.back_at, self.boot, self.began = 0.0, NEW, self.clock.now

    def run(self, command: str, *, stdin: str, timeout: float) -> Answer:
        self.ensure_connected()
        if stdin.startswith("# daytwo reboots this node"):
            self.order = stdin
            if self.loses:
                self.loses -= 1
                raise RemoteError("w1: the SSH connection was lost")
            self.orders += 1
            self.log.append("order")
            if not self.refuses and self.boot == OLD:
                self.back_at = self.clock.now + self.away
            return Answer(0, ["ordered"], [])
        age = self.clock.now - self.began
        lines = [
            f"boot {self.boot}",
            f"clock {age} {time.time() + self.skew} 0 100",
            f"kernel {field(self.kernel if self.boot == OLD else self.kernel_after)}",
            f"state {field(self.state if self.orders else 'running')}",
        ]
        if stdin == facts.state_script():
            lines += [f"result {field('exit-code' if self.refuses and self.orders else 'success')}", f"said {field('Operation inhibited')}"]
        else:
            lines += [
                "family =",
                *self.asking(),
                *self.more,
                f"sysctl net.ipv4.ip_forward {field(self.forwards[self.boot])}",
                f"units {field(UNITS)}",
                f"took {field('')}",
            ]
        return Answer(0, [*lines, "end"], [])

    def asking(self) -> list[str]:
        """What its boot leaves behind: /run is empty then, unless `asks_again`."""
        return ["sign reboot-required yes"] if self.boot == OLD or self.asks_again else ["sign reboot-needed no"]

    # ---- the API

    def node(self) -> dict[str, Any]:
        info = {"bootID": self.boot if self.reports else OLD}
        status = {"nodeInfo": info, "conditions": [{"type": "Ready", "status": "True"}]}
        return {"metadata": {"name": "w1", "uid": "u1", "annotations": dict(self.annotations)}, "status": status}

    def fetch(self, path: str) -> dict[str, Any]:
        return self.node()

    def fetch_all(self, path: str, fields: str) -> list[dict[str, Any]]:
        self.ensure_connected() if self.clock.now >= self.back_at else None
        return [
            {
                "metadata": {
                    "namespace": "kube-system", "name": "proxy",
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "uid": "d", "controller": True}],
                },
                "status": {"conditions": [{"type": "Ready", "status": "True" if self.boot == OLD or self.proxy_ready else "False"}]},
            }
        ]  # fmt: skip

    def asked(self, ask: Callable[[Any], Any]) -> Any:
        return SimpleNamespace(renewed=datetime.fromtimestamp(self.clock.now, UTC))

    unconflicted = Session.unconflicted

    def written(self, path: str, send: Callable[[Any], Any], done: Callable[[Any], bool]) -> dict[str, Any]:
        def patch(where: str, body: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
            for key, value in body["metadata"]["annotations"].items():
                self.log.append("mark" if value else "unmark")
                self.annotations.update({key: value}) if value else self.annotations.pop(key, None)
            return self.node()

        found = send(SimpleNamespace(patch=patch))
        assert done(found)
        return dict(found)

    # ---- its drain

    def outage(self, session: Any, name: str, consents: Any, run: str, purpose: Purpose, *, boot: str, limit: Any) -> Any:
        self.limits.append(limit)

        def take(context: Any) -> str:
            self.annotations[OUTAGE] = Mark(run, purpose.name, boot).text()
            return self.drain()

        return SimpleNamespace(take=take)

    def drain(self) -> str:
        self.log.append("drain")
        if self.drains:
            raise self.drains
        return "2 pods moved"

    def give_back(self, session: Any, node: str, left: str, runs: Any, context: Any) -> tuple[str, CordonBack]:
        assert RUN in runs
        self.log += [*([f"end surges of {left}"] if left else []), "uncordon"]
        if self.uncordons:
            raise self.uncordons
        self.annotations.pop(OUTAGE, None)
        return "ended the surge of Deployment shop/web" if left else "", CordonBack(done="uncordoned")

    # ---- its cluster

    def control_plane_ready(self, host: str, seconds: float, *, allow_unproven: bool) -> str:
        return self.control_plane if self.orders else ""

    # ---- the run

    def ensure(self) -> None:
        """`taken_over`: the last word of the log from which on another run has the lock."""
        if self.taken_over and self.taken_over in self.log:
            raise Locked("another run has held this cluster's lock")
        self.log.append("hold")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    clock = Clock()
    monkeypatch.setattr(timeouts, "time", clock)
    monkeypatch.setattr("roles.reboot.proving.node_lease", lambda api, name: None)
    # The session of these tests is the node itself.
    monkeypatch.setattr("roles.reboot.rebooting.RunLimit", lambda session: object())
    monkeypatch.setattr("roles.reboot.rebooting.NodeOutage", lambda session, *args, **more: session.outage(session, *args, **more))
    monkeypatch.setattr("roles.reboot.rebooting.end_outage", lambda session, *args: session.give_back(session, *args))
    yield Node(clock)


def plan(node: Node, **static: str) -> RebootPlan:
    """`static`: the static pods of a control-plane node."""
    seen = parse_facts("w1", node.run("sh -s", stdin=facts.facts_script("kubelet.service"), timeout=1).stdout)
    pods = {name.replace("_", "-"): pod for name, pod in static.items()}
    return plan_node(Candidate("w1", node.node(), "kubelet.service", seen, bool(static), pods), unneeded=False, allow_unproven=False)


def step(node: Node, planned: RebootPlan | None = None, **options: Any) -> tuple[ClusterStep, NodeReboots]:
    world: Any = node
    reboots = NodeReboots(world, world, {"w1": world}, {}, Options(**options), RebootOptions(reboot_timeout=300))
    return reboots.step(planned or plan(node), canary=True), reboots


def in_run(node: Node, begin: Callable[[Fields], Any] = lambda fields: None) -> StepContext:
    return context(begin, run=RUN, ensure=node.ensure, stopped=lambda: node.halted or node.interrupted)


def carried_out(node: Node, **options: Any) -> str:
    made, reboots = step(node, **options)
    try:
        return made.write(in_run(node, lambda fields: node.log.append("begin")))
    finally:
        assert not reboots.away


def outcome(node: Node, **options: Any) -> tuple[str, str]:
    with pytest.raises(Exception) as raised:
        carried_out(node, **options)
    return getattr(raised.value, "outcome", "failed"), str(raised.value)


def test_a_node_is_marked_emptied_rebooted_proven_and_uncordoned(node: Node) -> None:
    proof = carried_out(node)
    assert [word for word in node.log if word != "drop"] == ["begin", "drain", "hold", "order", "hold", "uncordon"]
    assert "back after 4" in proof and "boot 11111111" in proof and proof.endswith("uncordoned")
    assert not node.annotations


def test_all_outages_of_a_run_share_the_limit_of_a_workload(node: Node) -> None:
    made, reboots = step(node)
    made.write(in_run(node))
    again = Node(node.clock)
    node.boot, node.orders, node.began = again.boot, 0, again.began
    reboots.step(plan(node)).write(in_run(node))
    assert len(node.limits) == 2 and node.limits[0] is node.limits[1]


def test_the_mark_says_which_boot_ends(node: Node) -> None:
    node.stays_down = True
    assert outcome(node)[0] == "failed" and read_mark(node.node()) == Mark(RUN, "reboot", OLD)


def test_a_lost_answer_to_the_order_is_repeated_until_it_shows(node: Node) -> None:
    node.loses = 2
    assert "back after" in carried_out(node) and node.orders == 1


def test_a_refused_reboot_leaves_the_node_as_it_was(node: Node) -> None:
    node.refuses = True
    how, why = outcome(node)
    assert how == "reverted" and "Operation inhibited" in why and "did not reboot" in why and why.endswith("uncordoned")
    assert not node.annotations


SERVER = "kube-system_kube-apiserver-w1"


def test_a_node_with_an_api_server_ends_in_order_and_a_worker_at_once(node: Node) -> None:
    carried_out(node)
    assert node.order == facts.reboot_script(OLD, RUN)
    server = Node(node.clock)
    assert "API server and etcd well" in step(server, plan(server, kube_apiserver=SERVER))[0].write(in_run(server))
    assert server.order == facts.reboot_script(OLD, RUN, plan_ending("kubelet.service", {"kube-apiserver": SERVER}, [])) != node.order


def test_a_control_plane_that_ended_for_nothing_serves_again_before_its_node_is_uncordoned(node: Node) -> None:
    node.refuses = True
    made, _ = step(node, plan(node, kube_apiserver=SERVER))
    with pytest.raises(Undone, match=r"did not reboot; it serves again: boot 00000000 .* API server and etcd well; uncordoned"):
        made.write(in_run(node))
    away = Node(node.clock)
    away.refuses, away.control_plane = True, "etcd has no quorum"
    made, _ = step(away, plan(away, kube_apiserver=SERVER))
    with pytest.raises(RevertFailed, match=r"did not reboot\. It may still be cordoned .*etcd has no quorum"):
        made.write(in_run(node))
    assert "uncordon" not in away.log and OUTAGE in away.annotations


def test_a_shutdown_that_ends_the_units_order_is_no_refusal(node: Node) -> None:
    """The node still answers, and systemd has ended the unit like all others."""
    node.refuses, node.state, node.stays_down = True, "stopping", True
    how, why = outcome(node)
    assert how == "failed" and "not back after 300 s" in why and "uncordon" not in node.log


def test_a_failed_drain_leaves_the_node_as_it_was(node: Node) -> None:
    node.drains = NotDone("shop/web: its budget allows none")
    how, why = outcome(node)
    assert how == "reverted" and "its budget allows none" in why and "order" not in node.log and not node.annotations
    node.log.clear()
    node.uncordons = NotDone("the API is gone")
    how, why = outcome(node)
    assert how == RevertFailed.outcome and "the API is gone" in why and node.annotations


@pytest.mark.parametrize("since", ["drain", "order"])
def test_after_a_take_over_the_cordon_and_the_mark_stay(node: Node, since: str) -> None:
    """The run that has the lock may have marked and cordoned the node."""
    node.taken_over = since
    how, why = outcome(node)
    assert "another run has held this cluster's lock" in why and "the same command, run again" in why
    assert how == (RevertFailed.outcome if since == "drain" else "failed")
    assert "uncordon" not in node.log and OUTAGE in node.annotations


def test_a_run_that_halts_orders_no_reboot(node: Node) -> None:
    node.halted = "w2: failed"
    how, why = outcome(node)
    assert how == "reverted" and "w2: failed" in why and "order" not in node.log


def test_a_node_that_does_not_come_back_stays_cordoned_and_the_runbook_is_named(node: Node) -> None:
    node.stays_down = True
    how, why = outcome(node)
    assert how == "failed" and "not back after 300 s" in why and "unreachable" in why and "docs/runbooks/reboot.md" in why
    assert "uncordon" not in node.log and OUTAGE in node.annotations


@pytest.mark.parametrize(
    ("what", "value", "words"),
    [("reports", False, "has not reported the new boot"), ("proxy_ready", False, "kube-system/proxy is not Ready"), ("skew", 90.0, "")],
)
def test_what_is_not_proven_stays_cordoned(node: Node, what: str, value: Any, words: str) -> None:
    setattr(node, what, value)
    if what == "skew":
        # A clock that was wrong before is no work of the reboot.
        assert "clock +90.0 s" in carried_out(node)
        return
    how, why = outcome(node)
    assert how == "failed" and words in why and "uncordon" not in node.log and OUTAGE in node.annotations


def test_with_consent_pods_that_stay_unready_do_not_count(node: Node) -> None:
    node.proxy_ready = False
    assert "NOT PROVEN: kube-system/proxy is not Ready" in carried_out(node, allow_unproven=True)
    fresh = Node(node.clock)
    fresh.reports = False
    assert outcome(fresh, allow_unproven=True)[0] == "failed"


def test_a_second_run_finishes_what_the_first_left(node: Node) -> None:
    node.annotations[OUTAGE] = Mark(RUN, "reboot", OLD).text()
    node.boot = NEW
    made, _ = step(node)
    assert made.action == "finish" and made.write(in_run(node)).endswith("ended the surge of Deployment shop/web; uncordoned")
    assert node.orders == 0 and "drain" not in node.log and not node.annotations
    # While the node still has the mark that leads to the surge.
    assert node.log[-2:] == [f"end surges of {RUN}", "uncordon"]


def test_a_node_back_on_its_old_kernel_halts_the_run_and_is_free(node: Node) -> None:
    node.more = [f"installed {field('6.1.0-20-amd64')} yes"]
    how, why = outcome(node)
    assert how == "failed" and node.log[-2:] == ["uncordon", "mark"] and OUTAGE not in node.annotations
    assert (
        node.annotations == {WITHOUT_EFFECT: f"{RUN} {NEW} 6.1.0-20-amd64"}
        and "does not reboot it again without allow_unneeded=true" in why
    )
    assert "it is well and uncordoned, but the reboot did not do its work: kernel 6.1.0-20-amd64 is installed, 6.1.0-18-amd64 runs" in why
    assert "its boot loader chose the old kernel" in why
    free = Node(node.clock)
    free.more, free.kernel_after = node.more, "6.1.0-20-amd64"
    free.annotations[WITHOUT_EFFECT] = node.annotations[WITHOUT_EFFECT]
    assert "back after" in carried_out(free) and not free.annotations


def test_what_still_asks_for_a_reboot_after_one_halts_the_run(node: Node) -> None:
    node.asks_again = True
    assert "the reboot did not do its work: it has /run/reboot-required" in outcome(node)[1]
    # allow_unneeded=true had no such reason, and a sign that has come meanwhile is for the next run.
    forced = Node(node.clock)
    forced.asks_again = True
    unasked = plan(forced)
    unasked = replace(unasked, candidate=replace(unasked.candidate, facts=replace(unasked.candidate.facts, signs={})))
    assert "back after" in step(forced, unasked)[0].write(in_run(forced))


def test_a_tunable_that_pods_need_and_the_boot_has_lost_keeps_the_node_cordoned(node: Node) -> None:
    node.forwards = {OLD: "1", NEW: "0"}
    how, why = outcome(node)
    assert how == "failed" and "net.ipv4.ip_forward was 1 before the boot, and is 0" in why and "uncordon" not in node.log
    later = Node(node.clock)
    later.forwards = {OLD: "1", NEW: "0"}
    assert "NOT PROVEN: net.ipv4.ip_forward was 1" in carried_out(later, allow_unproven=True)


def test_the_canary_is_watched_and_proven_again(node: Node) -> None:
    proof = carried_out(node, soak=30)
    assert "back after 4" in proof and "soaked 30 s" in proof and node.clock.now > 1070


@pytest.mark.parametrize(("end", "whole"), [("stopped", True), ("interrupted", False)])
def test_another_nodes_failure_cuts_no_soak_and_the_operator_does(node: Node, end: str, whole: bool) -> None:
    said: list[str] = []
    ended: dict[str, Any] = {end: lambda: "another node failed" if any("soaking" in text for text in said) else ""}
    made, _ = step(node, soak=30)
    proof = made.write(context(run=RUN, ensure=node.ensure, say=said.append, **ended))
    assert ("soaked 30 s" in proof) is whole and "soaked" in proof
