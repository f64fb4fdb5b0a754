"""kubeadm's ClusterConfiguration: any flag of a component, and the files in its pod."""

from __future__ import annotations

import pytest

from roles.engine.editing import FormatError, cluster_configuration, yaml_text

PATH = "/etc/kubernetes/policy.yaml"
LIST = """apiServer:
  extraArgs: # ours
  - name: authorization-mode
    value: Node,RBAC # both
  - name: service-account-issuer
    value: "https://a"
apiVersion: kubeadm.k8s.io/v1beta4
controllerManager: {}
kind: ClusterConfiguration
scheduler: {}
"""
MAP = """apiServer:
  extraArgs:
    authorization-mode: Node,RBAC # both
  timeoutForControlPlane: 4m0s
apiVersion: kubeadm.k8s.io/v1beta3
controllerManager: {}
kind: ClusterConfiguration
scheduler: {}
"""


@pytest.mark.parametrize("text", [LIST, MAP, LIST.replace("\n", "\r\n"), MAP.replace("controllerManager: {}\n", "")])
@pytest.mark.parametrize("component", ["kube-apiserver", "kube-controller-manager", "kube-scheduler"])
def test_what_is_added_can_be_taken_out_again(text: str, component: str) -> None:
    before = cluster_configuration.read(text.encode())[component]
    after = cluster_configuration.edit(text.encode(), component, {"v": ("4",), "config": (PATH,)}, {PATH: True})
    found = cluster_configuration.read(after)[component]
    assert dict(found.flags) == {**before.flags, "v": ("4",), "config": (PATH,)} and found.files == {PATH}
    assert cluster_configuration.edit(after, component, {"v": ("4",)}, {PATH: True}) == after
    assert cluster_configuration.edit(after, component, {"v": None, "config": None}, {PATH: False}).decode() == text


@pytest.mark.parametrize("text", [LIST, MAP])
@pytest.mark.parametrize("value", ["4", "false", "", "~", "-", "1e3", "0o17", "a: b #c", "2h"])
def test_a_value_is_text(text: str, value: str) -> None:
    """kubeadm refuses a whole configuration with a number or a boolean there."""
    after = yaml_text.load(cluster_configuration.edit(text.encode(), "kube-scheduler", {"v": (value,)}, {}))
    assert after["scheduler"]["extraArgs"] in ([{"name": "v", "value": value}], {"v": value})


def test_a_value_changes_in_its_place() -> None:
    after = cluster_configuration.edit(LIST.encode(), "kube-apiserver", {"authorization-mode": ("RBAC",)}, {})
    assert after.decode() == LIST.replace("Node,RBAC # both", "RBAC # both")
    after = cluster_configuration.edit(MAP.encode(), "kube-apiserver", {"authorization-mode": ("RBAC",)}, {})
    assert after.decode() == MAP.replace("Node,RBAC # both", "RBAC # both")


def test_a_flag_with_two_values() -> None:
    wanted = {"service-account-issuer": ("https://b", "https://a")}
    after = cluster_configuration.edit(LIST.encode(), "kube-apiserver", wanted, {})
    assert cluster_configuration.read(after)["kube-apiserver"].flags["service-account-issuer"] == ("https://b", "https://a")
    assert after.startswith(LIST.encode().partition(b"  - name: service-account-issuer")[0])
    with pytest.raises(FormatError, match="kubeadm config migrate"):
        cluster_configuration.edit(MAP.encode(), "kube-apiserver", wanted, {})


def test_volumes_of_others_stay() -> None:
    theirs = LIST.replace(
        "controllerManager: {}", "controllerManager:\n  extraVolumes:\n  # theirs\n  - hostPath: /a\n    mountPath: /b\n    name: x"
    )
    after = cluster_configuration.edit(theirs.encode(), "kube-controller-manager", {}, {PATH: True, "/a": False})
    assert cluster_configuration.read(after)["kube-controller-manager"].files == {PATH}
    assert after.startswith(theirs.partition("kind:")[0].encode())
