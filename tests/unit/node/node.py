"""Answers of nodes for tests: what templates/observe.sh.j2 prints, made from a few values."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from roles.engine import node
from roles.engine.kubelet.ask import replacements, versions
from roles.engine.node import Observation

LAB_FILES = Path(__file__).resolve().parents[2] / "lab/files"
KUBEADM_UNIT = (LAB_FILES / "kubeadm-kubelet.service").read_bytes()
KUBEADM_DROPIN = (LAB_FILES / "10-kubeadm.conf").read_bytes()
PLAIN_UNIT = (LAB_FILES / "plain-kubelet.service").read_bytes()
CONFIG = b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: /etc/kubernetes/manifests\n"
KUBEADM_ARGV = (
    "/usr/bin/kubelet",
    "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
    "--kubeconfig=/etc/kubernetes/kubelet.conf",
    "--config=/var/lib/kubelet/config.yaml",
)
PLAIN_ARGV = (
    "/usr/local/bin/kubelet",
    "--config=/etc/kubernetes-node/kubelet.yaml",
    "--kubeconfig=/etc/kubernetes-node/kubeconfig",
    "--v=2",
)
TOOLS = "flock systemctl systemd-run base64 sha256sum stat sync nsenter curl".split()  # noqa: SIM905


def b64(value: bytes | str) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def manifest(component: str, *flags: str, image: str = "x") -> bytes:
    lines = "".join(f"    - {word}\n" for word in (component, *flags))
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {component}\n  namespace: kube-system\nspec:\n  containers:\n"
        f"  - command:\n{lines}    image: {image}\n    name: {component}\n  hostNetwork: true\n"
    ).encode()


def parse(host: str, lines: Sequence[str]) -> Observation:
    """One look, and what was said of versions afterwards."""
    looked = [line for line in lines if not line.startswith(("version ", "replacement "))]
    return node.parse.parse(host, looked).with_versions(versions(lines), replacements(lines))


def file_line(path: str, data: bytes | None, kind: str = "", attributes: str = "", mountpoint: str = "/") -> str:
    content = "-" if data is None else b64(data) + "="
    return f"file {b64(path)} {kind or ('none' if data is None else 'file')} 644 0 0 0 {b64(mountpoint)}= {attributes}- {content}"


def answer(
    *,
    style: str = "kubeadm",
    argv: Sequence[str] | None = None,
    files: Mapping[str, bytes | None] | None = None,
    manifests: Mapping[str, bytes] | None = None,
    components: Mapping[str, Sequence[str]] | None = None,
    dropins: Mapping[str, bytes] | None = None,
    unit: bytes | None = None,
    uid: int = 0,
    needs_reload: str = "no",
    extra: Sequence[str] = (),
    tools: Sequence[str] = TOOLS,
    exe: str | None = None,
    node_name: str = "node",
    pods: Mapping[str, str] | None = None,
) -> list[str]:
    """The lines of one look at a kubeadm or plain node, and the versions that its processes tell; `exe`: what the kubelet runs from;
    `pods`: the names of the static pods that are not called as their components."""
    kubeadm = style == "kubeadm"
    fragment = "/usr/lib/systemd/system/kubelet.service" if kubeadm else "/etc/systemd/system/kubelet.service"
    all_dropins = {"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": KUBEADM_DROPIN} if kubeadm else {}
    all_dropins |= dict(dropins or {})
    contents: dict[str, bytes | None] = {fragment: unit or (KUBEADM_UNIT if kubeadm else PLAIN_UNIT), **all_dropins}
    contents["/etc/default/kubelet"] = None
    if kubeadm:
        contents["/var/lib/kubelet/kubeadm-flags.env"] = b""
    contents["/var/lib/kubelet/config.yaml" if kubeadm else "/etc/kubernetes-node/kubelet.yaml"] = CONFIG
    contents |= dict(files or {})
    properties = f"FragmentPath={fragment}\nDropInPaths={' '.join(all_dropins)}\nNeedDaemonReload={needs_reload}\nMainPID=100\nActiveState=active\nNRestarts=0\n"
    words = argv or (KUBEADM_ARGV if kubeadm else PLAIN_ARGV)
    lines = [
        "daytwo 1",
        f"uid {uid}",
        f"hostname {b64('node')}",
        "boot b00t",
        "clock 1000.5 1700000000 100",
        f"os {b64('Debian')}",
        "systemd 252",
        *(f"tool {tool}" for tool in tools),
        f"process kubelet 100 5000 {b64(''.join(word + chr(0) for word in words))}= {b64('0::/system.slice/kubelet.service')}= {b64(exe or words[0])}=",
        f"version 100 {b64('Kubernetes v1.36.3')}=",
        f"unit {b64('kubelet.service')} {b64(properties)}=",
        *(file_line(path, data) for path, data in contents.items()),
        f"directory {b64('/etc/kubernetes/manifests')}",
        *(file_line(f"/etc/kubernetes/manifests/{name}", data) for name, data in (manifests or {}).items()),
    ]
    for number, (component, component_argv) in enumerate((components or {}).items()):
        cgroup = f"0::/kubepods/pod{number:032x}/" + "a" * 64
        lines.append(
            f"process {component[:15]} {200 + number} 6000 {b64(''.join(word + chr(0) for word in component_argv))}= {b64(cgroup)}= {b64(component)}="
        )
        lines.append(f"static {200 + number} {number:032x} {b64(f'kube-system_{(pods or {}).get(component, component)}-{node_name}')}=")
        lines.append(f"version {200 + number} {b64('Kubernetes v1.36.3')}=")
    return [*lines, *extra, "end"]
