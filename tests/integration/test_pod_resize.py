"""Pods resized in place on a real cluster: shown to be, refused, deferred, put back, undone; and each way it can go wrong in the middle.

What is claimed of a container is read here anew, by its own cgroup on its node, its id, its restart count and its start.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import operator, resizing
from tests.integration.operator import Outcome, Started, data, pyinfra, refused, release_cluster, run_of, says, wait_for
from tests.integration.resizing import (
    SMALL,
    asked,
    can_resize,
    drift,
    has,
    identities,
    make_pod,
    make_workload,
    minor,
    no_resize_left,
    pods,
    resize,
)
from tests.lab import Lab

pytestmark = pytest.mark.lab

# Fixtures: pytest finds them by these names.
as_found, nothing_left = resizing.as_found, resizing.nothing_left


def rollback(**values: str) -> Outcome:
    return pyinfra("rollback", "-y", *data(**values))


@pytest.fixture(scope="module", autouse=True)
def talking(lab: Lab) -> Iterator[None]:
    """All of this module on nodes whose login shells print."""
    with operator.talking(lab, "w1"):
        yield


# ---- the story


def test_the_whole_story(lab: Lab) -> None:
    resizing.the_whole_story(lab)


# ---- refused in the plan


def test_what_cannot_be_is_refused_in_the_plan(lab: Lab) -> None:
    can_resize(lab)
    node = lab.workers[0]
    resources = {"requests": {"cpu": "100m", "memory": "300Mi"}, "limits": {"cpu": "200m", "memory": "300Mi"}}
    make_pod(lab, "t-one", node, resources, fill=150)
    (before,) = pods(lab, "t-one")
    target = {"selector": "default/app=t-one"}
    refused(resize(**target, cpu="200m"), "its QoS class would change from Burstable to Guaranteed")
    refused(resize(**target, memory="100Mi"), "the memory limit 100Mi is below its current usage, 1")
    refused(resize(**target, cpu_request="0"), "cannot be removed from a running pod")
    refused(resize(selector="kube-system/component=etcd", cpu="200m"), "it is a static pod")
    (after,) = pods(lab, "t-one")
    assert after["spec"] == before["spec"] and identities([after]) == identities([before])


@pytest.mark.slow
def test_more_than_the_node_has(lab: Lab) -> None:
    resizing.more_than_the_node_has(lab)


@pytest.mark.slow
def test_an_infeasible_that_comes_late(lab: Lab) -> None:
    resizing.an_infeasible_that_comes_late(lab)


@pytest.mark.slow
def test_a_policy_that_restarts(lab: Lab) -> None:
    can_resize(lab)
    make_pod(lab, "t-one", lab.workers[1], SMALL, policy="RestartContainer")
    before = pods(lab, "t-one")
    target = {"selector": "default/app=t-one", "cpu": "200m", "memory": "400Mi"}
    refused(resize(**target), "would be restarted, as its resizePolicy says", "allow_restarts=true")
    assert identities(pods(lab, "t-one")) == identities(before)
    told = resize(**target, allow_restarts="true").ended(0)
    says(told, "restarted, as its resizePolicy says", "1 restarts")
    after = pods(lab, "t-one")
    ((old, _, _),), ((new, restarts, _),) = identities(before).values(), identities(after).values()
    assert new != old and restarts == 1 and has(lab, after, 200, 400)


def test_a_run_is_undone_by_its_name_and_not_over_a_later_one(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another machine: the record lies with the cluster's lock."""
    can_resize(lab)
    make_pod(lab, "t-one", lab.workers[0], SMALL)
    before = pods(lab, "t-one")
    first = resize(selector="default/app=t-one", cpu="200m")
    later = resize(selector="default/app=t-one", cpu="300m")
    assert (first.code, later.code) == (0, 0), first.all + later.all
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    refused(rollback(run=run_of(first)), "its resources were changed since that run", "undo the later run first", "force=true")
    assert has(lab, pods(lab, "t-one"), 300, 200)

    newest = rollback().ended(0)
    says(newest, f"Undoing run {run_of(later)}")
    assert has(lab, pods(lab, "t-one"), 200, 200)
    rollback(run=run_of(first)).ended(0)
    after = pods(lab, "t-one")
    assert has(lab, after, 100, 200) and identities(after) == identities(before) and all(map(no_resize_left, after))


# ---- in the middle


def room_taken(lab: Lab, node: str, name: str = "t-filler") -> None:
    """All but 300m of a node's CPUs are asked for by another pod."""
    cpus = int(json.loads(lab.kubectl("get", "node", node, "-o", "json"))["status"]["allocatable"]["cpu"])
    there = json.loads(lab.kubectl("get", "pods", "-A", "--field-selector", f"spec.nodeName={node}", "-o", "json"))["items"]
    taken = sum(_millis(one["resources"].get("requests", {}).get("cpu", "0")) for item in there for one in item["spec"]["containers"])
    make_pod(lab, name, node, {"requests": {"cpu": f"{cpus * 1000 - taken - 300}m"}}, app="t-filler")


def _millis(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


def leave(lab: Lab, name: str) -> None:
    lab.kubectl("delete", "pod", name, "--now", "--wait")


@pytest.mark.slow
def test_no_room_now(lab: Lab) -> None:
    """Deferred is told; it goes on when another pod leaves; what stays Deferred is put back, so that nothing happens later unannounced."""
    can_resize(lab)
    node = lab.workers[0]
    make_pod(lab, "t-one", node, SMALL)
    before = pods(lab, "t-one")
    room_taken(lab, node)
    told = resize(selector="default/app=t-one", cpu="800m", resize_timeout="10").ended(1)
    says(told, "still Deferred after 10 s", "; reverted: ")
    assert re.search(r"^pod default/t-one  +resize  +reverted  ", told.out, re.MULTILINE), told.all
    (after,) = pods(lab, "t-one")
    assert asked(after) == asked(before[0]) and no_resize_left(after) and has(lab, [after], 100, 200)

    started = Started("resize", *data(selector="default/app=t-one", cpu="800m", resize_timeout="180"), "-y")
    started.wait_for("t-one: Deferred")
    leave(lab, "t-filler")
    told = started.end().ended(0)
    after = pods(lab, "t-one")
    assert identities(after) == identities(before) and has(lab, after, 800, 200) and no_resize_left(after[0])


def test_a_kubelet_that_stops_in_the_middle(lab: Lab) -> None:
    """An accepted request is no resize: where nobody carries it out the run fails and says who does not; what was done before is undone on
    request."""
    can_resize(lab)
    one, two = lab.workers[:2]
    make_pod(lab, "t-a", one, SMALL, app="t-both")
    make_pod(lab, "t-b", two, SMALL, app="t-both")
    before = pods(lab, "t-both")
    room_taken(lab, one)
    # Before 1.33 a kubelet looks at a Deferred again with its next look at the pod: after 90 s at most.
    timeout = "45" if minor(lab) >= 33 else "120"
    # The first waits for room: time to stop the kubelet of the second.
    started = Started("resize", *data(selector="default/app=t-both", cpu="800m", resize_timeout=timeout), "-y")
    started.wait_for("t-a: Deferred")
    lab.run(two, "systemctl stop kubelet")
    leave(lab, "t-filler")
    told = started.end().ended(1)
    says(told, f"the API accepted the request, but it was not applied within {timeout} s", f"the kubelet of {two} does not run")
    rows = dict(re.findall(r"^pod default/(t-[ab])  +resize  +(\S+)  ", told.out, re.MULTILINE))
    assert rows == {"t-a": "done", "t-b": "reverted"}, told.all
    says(told, f"deploys/rollback.py --data run={run_of(told)}")
    lab.run(two, "systemctl start kubelet")
    lab.kubectl("wait", "--for=condition=Ready", f"node/{two}", "--timeout=280s")
    first, second = pods(lab, "t-both")
    assert has(lab, [first], 800, 200) and asked(second) == asked(before[1]) and has(lab, [second], 100, 200)

    rollback(run=run_of(told)).ended(0)
    after = pods(lab, "t-both")
    assert identities(after) == identities(before) and has(lab, after, 100, 200) and all(map(no_resize_left, after))


@pytest.mark.slow
def test_a_pod_that_goes_in_the_middle(lab: Lab) -> None:
    can_resize(lab)
    node = lab.workers[0]
    make_pod(lab, "t-one", node, SMALL)
    room_taken(lab, node)
    started = Started("resize", *data(selector="default/app=t-one", cpu="800m"), "-y")
    started.wait_for("t-one: Deferred")
    leave(lab, "t-one")
    told = started.end().ended(1)
    says(told, "during its resize; its replacement has the template's resources", "HALTED")
    assert re.search(r"^pod default/t-one  +resize  +gone  ", told.out, re.MULTILINE), told.all
    assert not pods(lab, "t-one")


@pytest.mark.slow
def test_an_api_that_goes_in_the_middle(lab: Lab) -> None:
    """One that comes back is waited for; one that stays away fails the run, which says what to do, and undo then leaves nothing behind."""
    can_resize(lab)
    server, node = lab.control_planes[0], lab.workers[0]
    make_pod(lab, "t-one", node, SMALL)
    before = pods(lab, "t-one")
    room_taken(lab, node)
    started = Started("resize", *data(selector="default/app=t-one", cpu="800m", resize_timeout="20"), "-y")
    started.wait_for("t-one: Deferred")
    with lab.frozen(server, "kube-apiserver"):
        started.wait_for("; reverting")
    told = started.end().ended(1)
    says(told, "HALTED", f"--data run={run_of(told)}" if "revert-failed" in told.out else "; reverted: ")
    wait_for(lambda: lab.kubectl("get", "--raw", "/readyz", check=False) == "ok", "the API")
    rollback(run=run_of(told)).ended(0)
    (after,) = pods(lab, "t-one")
    assert asked(after) == asked(before[0]) and no_resize_left(after) and has(lab, [after], 100, 200)
    assert identities([after]) == identities(before)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_other_workloads(lab: Lab, kind: str) -> None:
    can_resize(lab)
    make_workload(lab, 2, SMALL, kind)
    before = pods(lab)
    told = resize(**{kind.lower(): "default/t-web", "cpu_request": "200m", "memory_limit": "400Mi", "max_in_flight": "2"}).ended(0)
    after = pods(lab)
    assert len(after) == 2 and identities(after) == identities(before) and has(lab, after, 200, 400)
    told = drift().ended(2)
    says(told, f"{kind} default/t-web", "cpu 200m/-, memory 200Mi/400Mi")
    told = resize(**{kind.lower(): "default/t-web", "cpu_request": "200m", "memory_limit": "400Mi", "template": "update"}).ended(0)
    says(told, "0 pods are resized in place", "rolled out; its 2 pods have it, read back")
    assert has(lab, pods(lab), 200, 400) and drift().code == 0


@pytest.mark.slow
def test_what_a_killed_check_leaves_the_next_one_removes(lab: Lab) -> None:
    can_resize(lab)
    started = Started("pod_resize_check", "-y")
    started.wait_for("keep, up")
    wait_for(lambda: "daytwo-resize-" in lab.kubectl("get", "namespaces"), "the check's namespace")
    started.send(signal.SIGKILL)
    started.end()
    assert "daytwo-resize-" in lab.kubectl("get", "namespaces")
    release_cluster(lab)
    told = pyinfra("pod_resize_check", "--limit", lab.workers[0], "-y").ended(0)
    assert re.search(rf"^{lab.workers[0]} +restart, down +done  ", told.out, re.MULTILINE), told.all
    assert "daytwo-resize-" not in lab.kubectl("get", "namespaces")


@pytest.mark.slow
def test_ctrl_c_ends_what_is_in_hand(lab: Lab) -> None:
    can_resize(lab)
    node = lab.workers[0]
    make_pod(lab, "t-a", node, SMALL, app="t-both")
    make_pod(lab, "t-b", node, SMALL, app="t-both")
    before = pods(lab, "t-both")
    room_taken(lab, node)
    started = Started("resize", *data(selector="default/app=t-both", cpu="800m", resize_timeout="20"), "-y")
    started.wait_for("t-a: Deferred")
    started.send(signal.SIGINT)
    told = started.end().ended(1)
    rows = dict(re.findall(r"^pod default/(t-[ab])  +resize  +(\S+(?: started)?)  ", told.out, re.MULTILINE))
    assert rows == {"t-a": "reverted", "t-b": "not started"}, told.all
    after = pods(lab, "t-both")
    assert [asked(item) for item in after] == [asked(item) for item in before] and all(map(no_resize_left, after))


@pytest.mark.slow
def test_a_template_and_its_way_back(lab: Lab) -> None:
    """A run that changed the template is undone by a roll-out of its own; one whose roll-out fails is put back by itself."""
    can_resize(lab)
    make_workload(lab, 2, SMALL)
    told = resize(deployment="default/t-web", cpu="200m", template="update").ended(0)
    assert has(lab, pods(lab), 200, 200)
    undone = rollback(run=run_of(told)).ended(0)
    says(undone, "is gone; its replacement has the template's resources", "rolled out; its 2 pods have it, read back")
    assert has(lab, pods(lab), 100, 200) and drift().code == 0

    # There is room for the pods as they are, and not for one more beside them.
    for node in lab.workers:
        room_taken(lab, node, f"t-filler-{node}")
    told = resize(deployment="default/t-web", cpu="350m", template="update", rollout_timeout="15").ended(1)
    says(told, "not rolled out within 15 s", "Insufficient cpu", "reverted and rolled out", "HALTED")
    assert re.search(r"^Deployment default/t-web  +update template  +reverted  ", told.out, re.MULTILINE), told.all
    item = json.loads(lab.kubectl("get", "deployment", "t-web", "-o", "json"))
    assert item["spec"]["template"]["spec"]["containers"][0]["resources"] == SMALL


@pytest.mark.slow
def test_fifty_pods(lab: Lab) -> None:
    """At most three requests for each pod, looks at all of them apart; what it took is printed."""
    can_resize(lab)
    make_workload(lab, 50, {"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}})
    before = pods(lab)
    assert len(before) == 50
    begun = time.monotonic()
    told = resize(deployment="default/t-web", cpu="20m", memory="48Mi", max_in_flight="10")
    wall = time.monotonic() - begun
    assert told.code == 0, told.all
    found = re.search(
        r"50 pods in (\d+) s; requests to the API: (\d+) dry runs, (\d+) changes, (\d+) reads of all of them, (\d+) others", told.out
    )
    assert found, told.all
    seconds, dry, changes, looks, others = map(int, found.groups())
    assert dry + changes + others <= 3 * 50, told.out
    after = pods(lab)
    assert identities(after) == identities(before) and all(map(no_resize_left, after)) and has(lab, after, 20, 48)
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(
        f"50 pods, 10 at a time: {wall:.0f} s in all, {seconds} s of it resizing; {dry} dry runs, {changes} changes, {looks} looks, {others} others; "
        f"at most {most} MiB"
    )
