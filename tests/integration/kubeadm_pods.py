"""What kubeadm itself would write for the control plane of a node, from the ConfigMap kubeadm-config."""

from __future__ import annotations

import json
import re
from typing import Any

from roles.engine.editing import manifest_parts, yaml_text
from tests.integration.operator import COMPONENTS, MANIFESTS
from tests.lab import Lab

#: Without --dry-run, it writes them.
PHASE = "kubeadm upgrade node phase control-plane --certificate-renewal=false --etcd-upgrade=false"
_PRINTED = re.compile(r'Would write file "[^"]*/(kube-[\w-]+)\.yaml" with content:\n((?:(?!\[).*\n)+)')
_NEWER = ("caCertificateValidityPeriod:", "certificateValidityPeriod:", "encryptionAlgorithm:", "dns:", "proxy:", "  disabled:")


def stored(lab: Lab) -> str:
    """The text of the ClusterConfiguration."""
    found = json.loads(lab.kubectl("get", "configmap", "kubeadm-config", "-n", "kube-system", "-o", "json"))
    return str(found["data"]["ClusterConfiguration"])


def put(lab: Lab, text: str) -> None:
    """What somebody with an editor does."""
    patch = json.dumps({"data": {"ClusterConfiguration": text}})
    lab.kubectl("patch", "configmap", "kubeadm-config", "-n", "kube-system", "--type=merge", "-p", patch)


def as_v1beta3(text: str) -> str:
    """The same configuration as an older kubeadm wrote it: extraArgs are a map."""
    lines = text.replace("kubeadm.k8s.io/v1beta4", "kubeadm.k8s.io/v1beta3").splitlines(keepends=True)
    return re.sub(r"  - name: (\S+)\n    value: (\S+)\n", r"    \1: \2\n", "".join(line for line in lines if not line.startswith(_NEWER)))


def rendered(lab: Lab, node: str) -> dict[str, Any]:
    """By component the pod that kubeadm would write. It changes nothing."""
    own = "/etc/kubernetes/tmp"
    clean = f"rm -rf {own}/kubeadm-upgrade-node-dryrun*; rmdir --ignore-fail-on-non-empty {own} 2>/dev/null"
    told = lab.run(node, f"{PHASE} --dry-run; ended=$?; {clean}; exit $ended", timeout=900).stdout
    found = {name: pod_of(text) for name, text in _PRINTED.findall(told)}
    assert set(found) >= set(COMPONENTS), told
    return {name: found[name] for name in COMPONENTS}


def written(lab: Lab, node: str) -> dict[str, Any]:
    """By component the pod in its manifest on the node."""
    return {name: pod_of(lab.run(node, f"cat {MANIFESTS}/{name}.yaml").stdout) for name in COMPONENTS}


def pod_of(text: str) -> Any:
    """A manifest without what has no meaning: the order of flags with different names, of volumes and mounts; nothing; and daytwo's checksum."""
    content = yaml_text.load(text.encode())
    metadata, spec = content["metadata"], content["spec"]
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != manifest_parts.ANNOTATION}
    metadata["annotations"] = annotations
    for holder in (content, metadata):
        for key in [key for key, value in holder.items() if not value]:
            del holder[key]
    spec["volumes"].sort(key=lambda volume: volume["name"])
    for container in spec["containers"]:
        container["volumeMounts"].sort(key=lambda mount: mount["name"])
        container["command"].sort(key=lambda word: (word.startswith("--"), word.partition("=")[0]))
    return content
