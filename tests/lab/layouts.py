"""Nodes of the lab laid out as they are found elsewhere: company beside the manifests, and a worker as kubespray lays one out.

What is done here is undone by `take_back` (company), or by a reset of the node (kubespray).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.lab import images
from tests.lab.cluster import Lab

MANIFESTS = "/etc/kubernetes/manifests"
SCHEDULER, APISERVER = f"{MANIFESTS}/kube-scheduler.yaml", f"{MANIFESTS}/kube-apiserver.yaml"
KEPT = "/root/kept-manifests"

KUBESPRAY_CONFIG = "/etc/kubernetes/kubelet-config.yaml"
KUBESPRAY_ENVIRONMENT = "/etc/kubernetes/kubelet.env"
KUBESPRAY_UNIT = "/etc/systemd/system/kubelet.service"


def pod(name: str, *more: str) -> str:
    """A static pod on the host's network that does nothing."""
    lines = [
        *("apiVersion: v1", "kind: Pod", "metadata:", f"  name: {name}", "  namespace: kube-system", "  labels:", f"    k8s-app: {name}"),
        *(
            "spec:",
            "  hostNetwork: true",
            "  priorityClassName: system-node-critical",
            "  terminationGracePeriodSeconds: 1",
            "  containers:",
        ),
        *(f"  - name: {name}", f"    image: {images.REPOSITORY}/app:1", "    imagePullPolicy: Never", *(f"    {line}" for line in more)),
    ]
    return "\n".join([*lines, ""])


# By name in the manifests directory. The kubelet runs the pods of those that it can read, whatever their extension.
COMPANY: Mapping[str, str] = {
    # As kube-vip has itself written: no command, one word, all else by environment.
    "kube-vip.yaml": pod("kube-vip", "args:", "- manager", "env:", "- name: vip_arp", '  value: "true"', "- name: port", '  value: "6443"')
    + "status: {}\n",
    # A proxy in front of the API servers, with the marker that some templates leave at the end, and what an editor left beside it.
    "nginx-proxy.yml": pod("nginx-proxy") + "---\n",
    "nginx-proxy.yml~": pod("nginx-proxy") + "---\n",
    "several.yaml": pod("first-of-two") + "---\n" + pod("second-of-two"),
    "README": "These files belong to the platform team: kube-apiserver and its friends. Ask before you touch them.\n",
    "empty.yaml": "",
}
RUN = ("kube-vip", "nginx-proxy", "first-of-two")
NOT_RUN = "second-of-two"


def keep_company(lab: Lab, node: str) -> None:
    """The manifests directory of a control-plane node gets company, its scheduler's container another name, and its API server's manifest
    a document marker at its end (which restarts nothing). Returns when all that can run runs."""
    lab.run(node, f"mkdir {KEPT} && cp -a {SCHEDULER} {APISERVER} {KEPT}/ && mkdir {MANIFESTS}/old && ln -s /nowhere {MANIFESTS}/gone.yaml")
    for name, text in COMPANY.items():
        # Elsewhere first: the kubelet must not read half of it.
        lab.run(node, f"cat >/root/new-manifest && mv /root/new-manifest '{MANIFESTS}/{name}'", input=text)
    lab.run(node, f"cp -a {APISERVER} /root/new-manifest && printf -- '---\\n' >>/root/new-manifest && mv /root/new-manifest {APISERVER}")
    lab.run(
        node,
        f"cp -a {SCHEDULER} /root/new-manifest && sed -i 's/^    name: kube-scheduler$/    name: main/' /root/new-manifest && "
        f"mv /root/new-manifest {SCHEDULER}",
    )


def company_is_whole(lab: Lab, node: str) -> bool:
    """All pods of the company run, and the scheduler in its renamed container."""
    told = lab.kubectl("get", "pods", "-n", "kube-system", "--field-selector", f"spec.nodeName={node}", "-o", "json", check=False)
    pods = {item["metadata"]["name"].removesuffix(f"-{node}"): item for item in json.loads(told)["items"]} if told else {}
    states = {name: {state["name"]: state["ready"] for state in item["status"].get("containerStatuses", ())} for name, item in pods.items()}
    assert NOT_RUN not in pods, "the kubelet reads the first document alone"
    return states.get("kube-scheduler") == {"main": True} and all(states.get(name) == {name: True} for name in RUN)


def take_back(lab: Lab, node: str) -> None:
    """The manifests directory as it was."""
    names = " ".join(f"'{name}'" for name in COMPANY)
    lab.run(node, f"cd {MANIFESTS} && rm -rf old gone.yaml {names} && mv {KEPT}/* {MANIFESTS}/ && rmdir {KEPT}")


def company_is_gone(lab: Lab, node: str) -> bool:
    told = lab.kubectl("get", "pods", "-n", "kube-system", "--field-selector", f"spec.nodeName={node}", "-o", "json", check=False)
    pods = {item["metadata"]["name"].removesuffix(f"-{node}"): item for item in json.loads(told)["items"]} if told else {}
    states = [
        (state["name"], state["ready"]) for state in pods.get("kube-scheduler", {"status": {}})["status"].get("containerStatuses", ())
    ]
    return bool(pods) and states == [("kube-scheduler", True)] and not set(RUN) & set(pods)


def kubespray_files(node: str, address: str) -> dict[str, str]:
    """The environment file and the unit as kubespray lays them down: all flags in variables, one of them in several lines, and PATH; more
    variables in the unit than are set."""
    variables = [
        'KUBE_LOG_LEVEL="--v=2"',
        f'KUBELET_ADDRESS="--node-ip={address}"',
        f'KUBELET_HOSTNAME="--hostname-override={node}"',
        "",
        'KUBELET_ARGS="--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \\',
        f"--config={KUBESPRAY_CONFIG} \\",
        "--kubeconfig=/etc/kubernetes/kubelet.conf \\",
        "--container-runtime-endpoint=unix:///run/containerd/containerd.sock \\",
        ' "',
        'KUBELET_CLOUDPROVIDER=""',
        "",
        "PATH=/usr/local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "",
    ]
    names = (
        *("KUBE_LOGTOSTDERR", "KUBE_LOG_LEVEL", "KUBELET_API_SERVER", "KUBELET_ADDRESS", "KUBELET_PORT", "KUBELET_HOSTNAME"),
        *("KUBELET_ARGS", "DOCKER_SOCKET", "KUBELET_NETWORK_PLUGIN", "KUBELET_VOLUME_PLUGIN", "KUBELET_CLOUDPROVIDER"),
    )
    command = " \\\n\t\t".join(["ExecStart=/usr/local/bin/kubelet", *map("${}".format, names)])
    unit = [
        *("[Unit]", "Description=Kubernetes Kubelet Server", "After=containerd.service", "Wants=containerd.service", ""),
        *("[Service]", f"EnvironmentFile=-{KUBESPRAY_ENVIRONMENT}", command, "Restart=always", "RestartSec=10s", ""),
        *("[Install]", "WantedBy=multi-user.target", ""),
    ]
    return {KUBESPRAY_ENVIRONMENT: "\n".join(variables), KUBESPRAY_UNIT: "\n".join(unit)}


def kubespray(lab: Lab, node: str) -> None:
    """A worker that kubeadm joined, laid out as kubespray does: kubeadm's drop-in is gone, the kubelet has a unit and an environment file
    of its own and lies in /usr/local/bin, its configuration in /etc/kubernetes. Its kubelet is restarted."""
    for path, text in kubespray_files(node, lab.address(node)).items():
        lab.run(node, f"cat >{path}", input=text)
    lab.run(
        node,
        "set -e; cp /usr/bin/kubelet /usr/local/bin/kubelet; "
        # What stays of `webhook:` is a null, where a map belongs.
        f"{{ sed '/cache.*authorizedTTL/Id' /var/lib/kubelet/config.yaml; echo ...; }} >{KUBESPRAY_CONFIG}; "
        "rm -rf /usr/lib/systemd/system/kubelet.service.d; systemctl daemon-reload; systemctl enable kubelet; systemctl restart kubelet",
    )
