"""Which process is a component of the control plane: that of its own manifest's pod."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from roles.engine import control_plane, kubelet
from roles.engine.control_plane import Component, control_plane_plan
from roles.engine.kubelet import Kubelet
from roles.engine.transaction import Refusal
from tests.unit.node import node
from tests.unit.node.node import b64, parse

SECOND = node.manifest("kube-scheduler").replace(b"name: kube-scheduler\n  namespace", b"name: second\n  namespace")


def process(pid: int, pod: str, name: str = "kube-scheduler") -> list[str]:
    return [
        f"process {name} {pid} 6000 {b64(name + chr(0))}= {b64(f'0::/kubepods/pod{pid:032x}/x')}= {b64(name)}=",
        f"static {pid} {pid:032x} {b64(pod)}=",
    ]


def found(manifests: dict[str, bytes], extra: Sequence[str]) -> tuple[Kubelet, dict[str, Component]]:
    its_kubelet = kubelet.find(parse("n1", node.answer(manifests=manifests, extra=extra)))
    control = control_plane.look(its_kubelet)
    if control.refusals:
        raise control.refusals["kube-scheduler"]
    return its_kubelet, control.components


@pytest.mark.parametrize("name", ["a-second.yaml", "z-second.yaml"])
@pytest.mark.parametrize("first", [300, 400])
def test_a_second_scheduler_in_a_static_pod_of_its_own_is_left_as_it_is(name: str, first: int) -> None:
    manifests = {"kube-scheduler.yaml": node.manifest("kube-scheduler"), name: SECOND}
    its_own, other = process(first, "kube-system_kube-scheduler-node"), process(350, "kube-system_second-node")
    its_kubelet, components = found(manifests, sorted([*its_own, *other], key=lambda line: int(line.split()[1 if "static" in line else 2])))
    scheduler = components["kube-scheduler"]
    assert (scheduler.process.pid, scheduler.file.path) == (first, "/etc/kubernetes/manifests/kube-scheduler.yaml")
    assert control_plane.ignored_files(its_kubelet, components) == [
        "process 350 is a kube-scheduler of another static pod (kube-system_second-node), not the control plane's: left as it is"
    ]


def test_a_static_pod_that_no_manifest_makes_is_not_taken_for_the_component() -> None:
    manifests = {"kube-scheduler.yaml": node.manifest("kube-scheduler")}
    with pytest.raises(Refusal, match=r"kube-scheduler\.yaml defines a kube-scheduler, but none runs"):
        found(manifests, process(300, "kube-system_other-node"))


def test_where_the_kubelet_has_no_directory_for_a_pod_the_only_one_is_it() -> None:
    _, components = found({"kube-scheduler.yaml": node.manifest("kube-scheduler")}, process(300, ""))
    assert components["kube-scheduler"].process.pid == 300


def test_two_second_ones_are_not_guessed_between() -> None:
    manifests = {"a.yaml": SECOND, "b.yaml": SECOND.replace(b"second", b"third")}
    with pytest.raises(Refusal, match=r"a\.yaml and .*b\.yaml may each define a kube-scheduler"):
        found(manifests, process(300, "kube-system_second-node"))


@pytest.mark.parametrize("running", [False, True])
def test_malformed_gates_are_a_refusal(running: bool) -> None:
    wrong = "--feature-gates=A=maybe"
    manifests = {"kube-scheduler.yaml": node.manifest("kube-scheduler", *([] if running else [wrong]))}
    components = {"kube-scheduler": ("kube-scheduler", *([wrong] if running else []))}
    with pytest.raises(Refusal, match=r"kube-scheduler\.yaml.*not a boolean"):
        raise control_plane.look(kubelet.find(parse("n1", node.answer(manifests=manifests, components=components)))).refusals[
            "kube-scheduler"
        ]


def test_what_a_malformed_gate_has_is_printable() -> None:
    argv = ("kube-scheduler", "--feature-gates=\xa1true")
    answer = node.answer(manifests={"kube-scheduler.yaml": node.manifest(*argv)}, components={"kube-scheduler": argv})
    (warning,) = control_plane.look(kubelet.find(parse("n1", answer))).warnings
    assert warning.isascii() and "xa1true" in warning


def test_a_gate_is_not_put_behind_a_flag_that_may_wait_for_its_value() -> None:
    manifests = {"kube-scheduler.yaml": node.manifest("kube-scheduler", "--profiling")}
    _, components = found(manifests, process(300, "kube-system_kube-scheduler-node"))
    with pytest.raises(Refusal, match=r"--feature-gates=A=true would follow --profiling.*write --profiling=VALUE"):
        control_plane_plan.edit(components["kube-scheduler"], {"A": True})
