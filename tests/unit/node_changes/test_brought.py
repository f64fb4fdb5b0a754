"""Restarts that would start another binary: named with versions, judged by the skew policy, and only with consent."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from roles.engine import kubelet
from roles.engine.control_plane import COMPONENTS
from roles.engine.kubelet import kubelet_plan
from roles.engine.node_changes import JudgedVersions, judge_versions
from roles.engine.node_changes.brought import recheck
from roles.engine.proof import SurveyedNode
from roles.engine.remote import Answer, RemoteError
from roles.engine.runs import Options
from tests.unit.node import node
from tests.unit.node.node import parse
from tests.unit.node.surveyed import surveyed as of_observation

KUBELET_OF_W1 = [("w1", "kubelet")]


def surveyed(host: str, **changes: Any) -> SurveyedNode:
    return of_observation(parse(host, node.answer(**changes)))


def replaced(version: str, same: str = "other") -> list[str]:
    """The kubelet was replaced by a file that says this."""
    return [f"replacement 100 {same} {node.b64(f'Kubernetes {version}')}="] if version else [f"replacement 100 {same} ="]


def judged(
    *extra: str,
    image: str = "x",
    restarting: Collection[tuple[str, str]] = KUBELET_OF_W1,
    nodes: dict[str, Any] | None = None,
    **options: Any,
) -> JudgedVersions:
    manifests = {f"{name}.yaml": node.manifest(name, "--v=2", image=image) for name in COMPONENTS}
    control = surveyed("cp1", manifests=manifests, components={name: (name, "--v=2") for name in COMPONENTS})
    exe = "/usr/bin/kubelet (deleted)" if extra else None
    observed = {"cp1": control, "w1": surveyed("w1", extra=extra, exe=exe)}
    return judge_versions(observed, nodes or {}, restarting, Options(**options))


def test_a_replaced_kubelet_needs_consent_even_of_the_same_minor() -> None:
    (refusal,) = map(str, judged(*replaced("v1.36.4")).refusals)
    assert "w1: a restart starts another kubelet: v1.36.3 -> v1.36.4; /usr/bin/kubelet was replaced since it started" in refusal
    assert "no revert brings the old one back" in refusal and "--data allow_new_binary=true" in refusal and "drain the node" in refusal
    assert judged(*replaced("v1.36.4"), allow_new_binary="true").refusals == ()


def test_what_the_policy_forbids_has_no_consent() -> None:
    for consent in ("false", "true"):
        (refusal,) = map(str, judged(*replaced("v1.37.3"), allow_new_binary=consent).refusals)
        assert "would be kubelet 1.37 with the kube-apiserver 1.36 of cp1" in refusal and "allow_new_binary" not in refusal


def test_a_binary_that_did_not_say_its_version_has_no_consent() -> None:
    for consent in ("false", "true"):
        (refusal,) = map(str, judged(*replaced(""), allow_new_binary=consent).refusals)
        assert "version unknown" in refusal and "allow_new_binary" not in refusal


@pytest.mark.parametrize("extra", [(), replaced("v1.36.3", "same")])
def test_the_same_bytes_need_nothing(extra: list[str]) -> None:
    assert judged(*extra).refusals == ()


def test_a_node_that_does_not_restart_needs_nothing() -> None:
    assert judged(*replaced("v1.37.3"), restarting=()).refusals == ()


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("registry.k8s.io/kube-apiserver:v1.36.3@sha256:00", ()),
        ("registry.k8s.io/kube-apiserver@sha256:00", ()),
        ("registry:5000/kube-apiserver", ()),
        ("registry.k8s.io/kube-apiserver:v1.36.3-eks.1", ()),
        ("registry.k8s.io/kube-apiserver:v1.36.4", ("kube-apiserver v1.36.3 -> v1.36.4", "allow_new_binary=true")),
        ("registry.k8s.io/kube-apiserver:v1.40.0", ("w1: kubelet 1.36 with the kube-apiserver 1.40 of cp1", "at most 3 minors older")),
    ],
)
def test_an_image_that_does_not_run_yet(image: str, words: tuple[str, ...]) -> None:
    found = "; ".join(map(str, judged(image=image, restarting=[("cp1", "kube-apiserver")]).refusals))
    assert all(word in found for word in words) and bool(found) is bool(words), found


def test_nodes_outside_the_inventory() -> None:
    nodes = {
        "w1": {"metadata": {"name": "w1"}, "status": {"nodeInfo": {"kubeletVersion": "v1.20.0"}}},
        "virtual-1": {"metadata": {"labels": {"type": "virtual-kubelet"}}, "status": {"nodeInfo": {"kubeletVersion": "v1.25.0-vk-1.6.2"}}},
        "far": {"metadata": {}, "status": {"nodeInfo": {"kubeletVersion": "v1.32.9"}}},
    }
    observed_name = kubelet.find(parse("w1", node.answer())).node_name
    nodes[observed_name] = nodes.pop("w1")  # counts with its observed version
    found = judged(nodes=nodes)
    assert found.refusals == ()
    note, warning = found.notes
    assert "virtual-1 (virtual-kubelet, by its label type=virtual-kubelet; version v1.25.0-vk-1.6.2)" in note
    assert warning.startswith("WARNING far: kubelet 1.32 with the kube-apiserver 1.36 of cp1")


@pytest.mark.parametrize(
    ("said", "refused"), [("/usr/bin/kubelet", False), ("/usr/bin/kubelet (deleted)", True), ("", False), (None, False)]
)
def test_a_file_that_is_replaced_after_the_plan_stops_the_change(said: str | None, refused: bool) -> None:
    class Host:
        def run(self, command: str, timeout: float) -> Answer:
            assert command == "readlink /proc/100/exe"
            if said is None:
                raise RemoteError("w1: unreachable")
            return Answer(0, [said], [])

    remote: Any = Host()
    process = surveyed("w1").kubelet.process
    found = recheck(remote, "kubelet", process)
    assert ("was replaced after the plan was made" in (found or "")) is refused
    assert recheck(remote, "kube-apiserver", process) is None


def test_the_plan_names_both_versions() -> None:
    found = surveyed("w1", extra=replaced("v1.37.3"), exe="/usr/bin/kubelet (deleted)").kubelet
    assert "a restart starts another kubelet: v1.36.3 -> v1.37.3" in " ".join(kubelet_plan.warnings(found))
