"""The lab's layouts without a lab: what daytwo makes of the very texts."""

from __future__ import annotations

import pytest

from roles.engine import control_plane, kubelet
from roles.engine.control_plane import COMPONENTS
from roles.engine.editing import yaml_text
from roles.engine.kubelet import settings
from roles.engine.node import Observation
from roles.engine.transaction import Refusal
from roles.feature_gates import DesiredGates, plan
from tests.lab import layouts
from tests.unit.node import node
from tests.unit.node.node import parse
from tests.unit.node.surveyed import surveyed

CONFIG = (
    b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: /etc/kubernetes/manifests\n"
    b"authorization:\n  mode: Webhook\n  webhook:\nevictionHard: ~\n...\n"
)


def kubespray() -> Observation:
    made = layouts.kubespray_files("node", "10.1.2.3")
    argv = (
        *("/usr/local/bin/kubelet", "--v=2", "--node-ip=10.1.2.3", "--hostname-override=node"),
        *("--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf", f"--config={layouts.KUBESPRAY_CONFIG}"),
        *("--kubeconfig=/etc/kubernetes/kubelet.conf", "--container-runtime-endpoint=unix:///run/containerd/containerd.sock"),
    )
    files = {layouts.KUBESPRAY_ENVIRONMENT: made[layouts.KUBESPRAY_ENVIRONMENT].encode(), layouts.KUBESPRAY_CONFIG: CONFIG}
    return parse("w5", node.answer(style="plain", argv=argv, unit=made[layouts.KUBESPRAY_UNIT].encode(), files=files))


def test_the_kubelet_of_kubespray_is_read_whole() -> None:
    found = kubelet.find(kubespray())
    assert found.style == "plain" and found.config_path == layouts.KUBESPRAY_CONFIG
    assert found.service.known_argv == found.process.argv
    assert [file.path for file in found.service.environment_files] == [layouts.KUBESPRAY_ENVIRONMENT]


def test_gates_and_fields_of_kubesprays_kubelet() -> None:
    made = plan.plan_gates("r1", surveyed(kubespray()), DesiredGates(feature_gates={"A": True}, all_components=True))
    (change,) = (planned.change for planned in made.planned)
    assert change is not None and change.new_argv == (*made.kubelet.process.argv, "--feature-gates=A=true")
    wanted = {"authorization.webhook.cacheAuthorizedTTL": "4m0s", "evictionHard": {"memory.available": "61Mi"}}
    edited = settings.edits(made.kubelet, wanted).files
    assert list(edited) == [layouts.KUBESPRAY_CONFIG]
    after = edited[layouts.KUBESPRAY_CONFIG]
    assert after is not None and after.endswith(b"\n...\n")
    assert yaml_text.load(after)["authorization"] == {"mode": "Webhook", "webhook": {"cacheAuthorizedTTL": "4m0s"}}
    assert yaml_text.load(after)["evictionHard"] == wanted["evictionHard"]


def test_the_company_of_the_control_plane() -> None:
    running = {name: (name, "--v=2") for name in COMPONENTS}
    manifests = {f"{name}.yaml": node.manifest(*argv) for name, argv in running.items()} | {
        name: text.encode() for name, text in layouts.COMPANY.items()
    }
    extra = [node.file_line(f"{layouts.MANIFESTS}/{name}", None, kind) for name, kind in (("old", "directory"), ("gone.yaml", "link"))]
    found = control_plane.look(kubelet.find(parse("cp1", node.answer(manifests=manifests, components=running, extra=extra))))
    assert list(found.components) == list(COMPONENTS) and found.refusals == {}
    (warning,) = found.warnings
    assert all(name in warning for name in ("README", "empty.yaml", "gone.yaml", "old", "several.yaml")) and "nginx" not in warning


@pytest.mark.parametrize("name", ["kube-scheduler.yaml~", "README.kube-scheduler"])
def test_a_backup_of_a_component_is_no_company(name: str) -> None:
    manifests = {"kube-scheduler.yaml": node.manifest("kube-scheduler"), name: node.manifest("kube-scheduler")}
    lines = node.answer(manifests=manifests, components={"kube-scheduler": ("kube-scheduler",)})
    with pytest.raises(Refusal, match="both define a kube-scheduler"):
        plan.plan_gates("r1", surveyed(parse("cp1", lines)), DesiredGates(feature_gates={"A": True}, all_components=True))
