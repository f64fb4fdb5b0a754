"""The crash matrix: a change is struck at each of its steps, and the node brings itself to rest: all as before or all as after.

After the fault nothing here helps a node along; it is only looked at. `make test` plays each step with one fault; test-full plays
the whole product, the ways back that something else began, and the real API server.

A case takes 15 to 80 s, 35 s in the mean. With five workers, which play at the same time, the 19 of `make test` take 142 s, and what they
need before and after 100 s more; with two workers it is twice as long and more. A case of the API server takes from 30 s on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.engine.transaction import Change, FileEdit
from roles.engine.transaction.change_script import render
from tests.integration import crashes
from tests.integration.crashes import APPLY, FAILED, FAULTS, FURTHER, KILL, OPERATOR, POWER, REBOOT, Case, ControlPlane, Lane, play_all
from tests.integration.operator import wait_for
from tests.lab import Lab
from tests.lab.tools import parallel

pytestmark = pytest.mark.lab
SEED = int(os.environ.get("CRASH_SEED", "351"))


@pytest.fixture(scope="module")
def lanes(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Lane]]:
    """A lane on every worker. Each has the lock of its cluster on a host of its own: a control-plane node, or, where there are no
    more of those, on itself."""
    folder = tmp_path_factory.mktemp("inventories")
    # The plain worker comes first: only its changes make a directory and end in every step.
    workers = sorted(lab.workers, key=lambda name: name != "w2")
    styles = {"w1": "config", "w2": "plain"}
    lock_hosts = [*lab.control_planes, *workers[len(lab.control_planes) :]]
    made = [Lane(lab, name, styles.get(name, "flag"), host, folder) for name, host in zip(workers, lock_hosts, strict=False)]
    # Where DAYTWO_LAB=1 says so, the fixture `lab` has made sure of pristine nodes.
    if os.environ.get("DAYTWO_LAB") != "1":
        lab.reset(*workers)
    try:
        parallel(*(lane.set_up for lane in made))
        parallel(*((lambda lane=lane: lane.learn(failing=lane.style != "flag")) for lane in made))
        yield made
    finally:
        for lane in made:
            lab.kubectl("delete", "pod", lane.pod, "--now", check=False)
        lab.reset(*workers)


@pytest.fixture(scope="module")
def control_plane(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    made = ControlPlane(lab, tmp_path_factory.mktemp("inventories"))
    made.clean()
    made.learn()
    return made


def play(lanes: list[Lane], cases: list[Case]) -> None:
    failures = play_all(lanes, cases)
    assert not failures, "\n\n".join(failures)


# ---- no step without a case


def rendered(kind: str) -> str:
    """The change.sh of this kind that has every branch of its template."""
    return render(
        Change(
            id="r1-w2-x",
            node="w2",
            component="kubelet" if kind == "kubelet" else "kube-apiserver",
            kind=kind,  # type: ignore[arg-type]
            unit="kubelet.service",
            summary="A=true",
            files=(FileEdit("/etc/x", b"a", b"b"),),
            health_url="http://127.0.0.1:10248/healthz",
            old_argv=("kubelet",),
            new_argv=("kubelet",),
            daemon_reload=True,
            pod="kube-system_kube-apiserver-cp1",
            container="kube-apiserver",
        )
    )


def test_every_step_of_the_script_has_its_cases() -> None:
    for kind in ("kubelet", "static-pod"):
        found = crashes.steps_in_script(rendered(kind))
        assert {"check", "place", "restore", "wait-old", "confirm", "clean"} <= found
        assert crashes.without_a_case(found, crashes.product()) == []
    for place in crashes.LADDER.values():
        module, test = place.split("::")
        assert f"def {test}(" in Path(__file__).with_name(module).read_text()


@pytest.mark.wide
def test_every_step_that_is_taken_has_its_cases(lanes: list[Lane]) -> None:
    for lane in lanes:
        assert crashes.without_a_case(lane.trace, crashes.product()) == [], f"{lane.node} ({lane.style})"
    # The other way round: what the cases wait for is there.
    taken = next(lane.trace for lane in lanes if lane.style == "plain")
    assert {case.step for case in crashes.product()} == taken


def test_a_step_without_a_case_is_found() -> None:
    cases = crashes.product()
    planted = rendered("kubelet").replace("    step applied\n", "    step polish\n    step applied\n")
    log = "12 step: applied\n12 step: place 3\n13 step: a new one\n"
    assert crashes.without_a_case(crashes.steps_in_script(planted), cases) == ["polish"]
    assert crashes.without_a_case(crashes.steps_in_log(log), cases) == ["a new one", "place 3"]
    assert crashes.without_a_case({"wait"}, [case for case in cases if case != Case(APPLY, "wait", POWER)]) == ["wait"]


# ---- kubelets


@pytest.mark.wide
def test_each_step_struck_once(lanes: list[Lane]) -> None:
    play(lanes, crashes.selection(SEED))


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_each_step_with_each_fault(lanes: list[Lane], fault: str) -> None:
    play(lanes, [case for case in crashes.product() if case.fault == fault])


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.parametrize("context", sorted({context for context, _, _ in FURTHER}))
def test_ways_back_that_something_else_began(lanes: list[Lane], context: str) -> None:
    play(lanes, [case for case in crashes.further() if case.context == context])


@pytest.mark.wide
@pytest.mark.slow
def test_a_kubelet_that_does_not_come_back_at_first(lanes: list[Lane]) -> None:
    """On the way back the unit is not what it was, until somebody mends it: the kubelet is started once more."""
    lane = lanes[0]
    runtime = "/run/systemd/system/kubelet.service.d"
    # A kubelet that systemd has started again just when its files were back needs no restart: then once more.
    for _ in range(4):
        run = lane.start(lane.bad, 90, hold="restart-old")
        wait_for(lambda run=run: "held\n" in run.out or run.process.poll() is not None, "the step")
        if "held\n" in run.out:
            break
        lane.at_rest()
        lane.clean()
    lane.run(
        f"mkdir -p {runtime} && printf '[Service]\\nEnvironment=\\nExecStart=\\nExecStart=/bin/sleep 1000\\n' >{runtime}/99.conf && systemctl daemon-reload"
    )
    lane.run(f"touch {crashes.HOME}/go")
    run.wait_for("waiting until it is healthy as before\n")
    wait_for(lambda: "sleep" in lane.run("ps -o args= -p $(systemctl show -P MainPID kubelet)", check=False), "the wrong process")
    lane.run(f"rm -r {runtime} && systemctl daemon-reload")
    told = run.end()
    assert told.code == 1 and "restarting the kubelet once more" in told.out and "kubelet: reverted" in told.out, told.out
    lane.at_rest()
    # The deadline passed meanwhile; its unit finds nothing left to do.
    wait_for(lambda: not lane.left(), "nothing to be left in flight")
    assert lane.look() == lane.before
    lane.clean()


# ---- the API server

WORST = ((APPLY, "place 1"), (APPLY, "wait"), (APPLY, "applied"), (FAILED, "restore 1"), (FAILED, "wait-old"))


def test_the_apiserver_at_a_bad_moment(control_plane: ControlPlane) -> None:
    play([control_plane], [Case(APPLY, "wait", POWER)])


@pytest.mark.slow
@pytest.mark.parametrize("fault", [KILL, REBOOT, POWER, OPERATOR])
def test_the_apiserver_at_the_worst_moments(control_plane: ControlPlane, fault: str) -> None:
    play([control_plane], [Case(context, step, fault) for context, step in WORST])
