"""Volumes in a drain, with real attach and detach: the lab's disk is a CSI driver that gives a volume to one node at a time."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from roles.engine.objects import NotDone, Session
from roles.engine.outage import DrainConsents, DrainPlan, NodeOutage, Purpose, cluster_time, plan_drain, read_drain
from roles.engine.outage.evicting import Evictor
from tests.context import context
from tests.integration.draining import (
    NAMESPACE,
    apply,
    budget,
    cleaned,
    cordon_of,
    get,
    on,
    only_on,
    open_session,
    own_namespace,
    pods,
    settled,
    workload,
)
from tests.integration.operator import data, pyinfra, wait_for
from tests.lab import Lab
from tests.lab.disk import BUSY, DRIVER, disks, objects

pytestmark = pytest.mark.lab

RUN = "r20260101-000000-aaaa"
DISK = f"PersistentVolumeClaim data (volume {NAMESPACE}-data, {DRIVER})"
ISCSI = "kubernetes.io/iscsi/192.0.2.9:3260:iqn.2026-01.example:disk:1"
# Each start of a pod adds a line: data that did not follow has too few.
NOTES = "hostname >> /data/notes; trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


@pytest.fixture(scope="module", autouse=True)
def namespace(lab: Lab) -> Iterator[None]:
    with disks(lab, attach=1, detach=2):
        with own_namespace(lab):
            yield
        lab.kubectl("delete", "csidriver", DRIVER)


@pytest.fixture(autouse=True)
def as_found(lab: Lab) -> Iterator[None]:
    yield
    lab.run("w1", f"rm -f {BUSY}")
    cleaned(lab)
    wait_for(lambda: not attached(lab), "all volumes to be detached")
    lab.kubectl("delete", "persistentvolumeclaims", "--all", "-n", NAMESPACE)
    lab.kubectl("delete", "persistentvolumes", f"{NAMESPACE}-data", f"{NAMESPACE}-shared")


@pytest.fixture(scope="module")
def session(lab: Lab) -> Iterator[Session]:
    with open_session(lab) as found:
        yield found


def attached(lab: Lab) -> list[str]:
    """The nodes that have the volume."""
    return sorted(one["spec"]["nodeName"] for one in get(lab, "volumeattachments")["items"])


def stored(name: str, claim: str = "data", **more: Any) -> dict[str, Any]:
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return workload(name, command=NOTES, container=mounts, volumes=volumes, **more)


def status_of(lab: Lab, node: str, **status: Any) -> None:
    lab.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


def notes(lab: Lab) -> list[str]:
    return lab.run("w2", f"cat /var/lib/disk/{NAMESPACE}-data/notes").stdout.split()


def planned(session: Session, **consents: Any) -> DrainPlan:
    return plan_drain(read_drain(session), ["w1"], DrainConsents(**consents), cluster_time(session))


def test_pods_that_share_a_disk_leave_together_and_their_data_follows(lab: Lab, session: Session) -> None:
    apply(lab, *objects(NAMESPACE, "data"))
    only_on(lab, "w1", items=[stored("web", replicas=2)])
    before = on(lab, "w1")
    assert len(before) == 2 and attached(lab) == ["w1"]

    apply(lab, budget("web", maxUnavailable=1))
    settled(lab)
    (first, second) = planned(session).refusals
    shared = f"share {DISK}, and none of their replacements starts before all 2 have left w1; budget t-drain/web lets 1 of them go"
    assert shared in first and shared in second and cordon_of(lab, "w1") == (False, "")
    lab.kubectl("delete", "poddisruptionbudget", "web", "-n", NAMESPACE)

    begun = time.monotonic()
    told = pyinfra("drain", *data(nodes="w1"), "-y")
    print(f"two pods that share a disk were drained in {time.monotonic() - begun:.1f} s, with detach 2 s and attach 1 s")
    assert told.code == 0, told.all
    flat = " ".join(told.out.split())
    assert f"share {DISK}: it is detached from w1 when all of them have left, so they leave together" in flat, told.all
    assert "2 pods leave in 1 wave" in flat and "its replacement starts when" in flat and "drain_timeout (600 s) goes on" in flat
    assert re.search(
        rf"t-drain/web-\S+: waits: {re.escape(DISK)} is not detached from w1 yet: (the kubelet there unm|{DRIVER} det|t-dr)", flat
    )
    assert "STILL ATTACHED" not in told.out and on(lab, "w1") == [] and attached(lab) == ["w2"]
    after = on(lab, "w2")
    assert len(after) == 2 and sorted(notes(lab)) == sorted([*before, *after])
    assert "FAULT" not in lab.run("cp1", "journalctl -u lab-disk-controller --no-pager").stdout


@pytest.mark.slow
def test_alone_the_first_would_wait_for_the_second(lab: Lab, session: Session) -> None:
    """What the plan says of Kubernetes is so: the first replacement is scheduled, and does not start before the second pod has left."""
    apply(lab, *objects(NAMESPACE, "data"))
    only_on(lab, "w1", items=[stored("web", replicas=2)])
    first, second = planned(session).leaving
    lab.kubectl("cordon", "w1")
    alone = Evictor(session, DrainConsents(drain_timeout=20), ["w1"])
    with pytest.raises(NotDone, match=rf"is not detached from w1 yet: {second.name} uses it there"):
        alone.move(first, context())
    (new,) = on(lab, "w2")
    events = get(lab, "events", "-n", NAMESPACE, f"--field-selector=involvedObject.name={new}")["items"]
    assert pods(lab)[new]["status"]["phase"] == "Pending" and any("Multi-Attach error" in str(one["message"]) for one in events)
    assert "2 of Deployment t-drain/web are Ready" in Evictor(session, DrainConsents(drain_timeout=90), ["w1"]).move(second, context())


@pytest.mark.slow
def test_a_volume_that_stays_attached_is_reported(lab: Lab, session: Session) -> None:
    """Its replacement needs no detach, so the drain ends; a power-off would not be over for the volume. One without a VolumeAttachment is in
    the status of its node, where kube-controller-manager notes it."""
    apply(lab, *objects(NAMESPACE, "shared", mode="ReadWriteMany"))
    only_on(lab, "w1", items=[stored("web", "shared")])
    lab.run("w1", f"touch {BUSY}")
    inside = NodeOutage(session, "w1", DrainConsents(drain_timeout=30), RUN, Purpose("test", "a test"))
    assert not inside.plan().notes
    noted = get(lab, "node", "w1")["status"].get("volumesAttached") or []
    status_of(lab, "w1", volumesAttached=[*noted, {"name": ISCSI, "devicePath": ""}])
    try:
        told = inside.take(context())
    finally:
        status_of(lab, "w1", volumesAttached=None)
    kept = rf"STILL ATTACHED to w1 after 3\d s: {NAMESPACE}-shared \(the kubelet there unmounts it\), {ISCSI} \(kube-c.*; .*out-of-service"
    assert re.search(kept, told), told
    assert "read back" in inside.give_back(context())


@pytest.mark.slow
def test_a_claim_of_one_pod_follows_when_the_pod_has_ended(lab: Lab, session: Session) -> None:
    apply(lab, *objects(NAMESPACE, "data", mode="ReadWriteOncePod"))
    only_on(lab, "w1", items=[stored("web")])
    (one,) = planned(session).leaving
    assert "its replacement is scheduled when this pod has ended" in one.why and one.place == "on w2"
    assert "only one node can write to data" in planned(session, surge=True).refusals[0]
    inside = NodeOutage(session, "w1", DrainConsents(drain_timeout=120), RUN, Purpose("test", "a test"))
    before = on(lab, "w1")
    assert "1 workload serves elsewhere" in inside.take(context()) and notes(lab)[-2:] == [*before, *on(lab, "w2")]
    inside.give_back(context())
