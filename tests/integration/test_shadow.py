"""A shadow control plane on a real control plane: its scheduler is asked, nobody else may ask, and nothing of it is left, also of a run that
was killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.integration.draining import NAMESPACE, only_on, own_namespace, workload
from tests.integration.operator import Started, data, pyinfra, wait_for
from tests.lab import Lab

pytestmark = pytest.mark.lab

DRAIN = [*data(nodes="w1", verify="scheduler", allow_pending="true", allow_unmanaged="true", allow_local_data="true"), "--dry"]
# What listens on the loopback of the node, in the ports that a shadow takes.
LISTENING = r"sed -n 's/^ *[0-9]*: 0100007F:\([0-9A-F]*\) [0-9A-F:]* 0A .*/\1/p' /proc/net/tcp"


@pytest.fixture(scope="module", autouse=True)
def namespace(lab: Lab) -> Iterator[None]:
    with own_namespace(lab):
        only_on(lab, "w1", items=[workload("fits"), workload("nowhere", nodeSelector={"kubernetes.io/hostname": "w1"})])
        yield


def listening(lab: Lab) -> set[int]:
    return {port for one in lab.run("cp1", LISTENING).stdout.split() if 10100 <= (port := int(one, 16)) < 29900}


def left(lab: Lab) -> str:
    """Of its units, its processes, and its folder as the node sees it."""
    script = "systemctl list-units --all --plain --no-legend 'daytwo-shadow-*'; pgrep -af -- [-]-name=shadow; ls -d /run/daytwo-shadow-*"
    return lab.run("cp1", f"({script}) 2>/dev/null", check=False).stdout


def test_the_scheduler_is_asked_and_nothing_is_left(lab: Lab) -> None:
    before = listening(lab)
    told = pyinfra("drain", *DRAIN)
    assert told.code == 0, told.all
    text = " ".join(told.out.split())
    assert "kube-scheduler does not agree:" in text and f"WARNING: verify=scheduler: {NAMESPACE}/nowhere-" in text, told.all
    assert f"verify=scheduler: {NAMESPACE}/fits-" not in text, told.all
    assert not left(lab) and listening(lab) == before


def test_a_killed_run_leaves_nothing_and_nobody_else_may_ask(lab: Lab) -> None:
    before = listening(lab)
    run = Started("drain", *DRAIN)
    wait_for(lambda: len(listening(lab) - before) == 4, "the shadow control plane to listen", every=0.1)
    ports = listening(lab) - before
    script = "; ".join(f"curl -sk -m 5 -o /dev/null -w '%{{http_code}} ' https://127.0.0.1:{port}/metrics" for port in sorted(ports))
    assert {*lab.run("cp1", script, check=False).stdout.split()} <= {"000", "401", "403"}
    run.send(signal.SIGKILL)
    run.end()
    wait_for(lambda: not left(lab) and listening(lab) == before, "all of it to be gone", 90)
