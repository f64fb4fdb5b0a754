"""What a directory of manifests has been seen to hold beside those of the control plane."""

from __future__ import annotations

from collections.abc import Sequence

FOLDER = "/etc/kubernetes/manifests"


def pod(name: str, *command: str, container: str = "", args: Sequence[str] = (), namespace: str = "kube-system") -> bytes:
    """A manifest of one container, under a name of its own."""
    words = "".join(
        f"    {key}:\n" + "".join(f"    - {word!r}\n" for word in given) for key, given in (("command", command), ("args", args)) if given
    )
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: {namespace}\nspec:\n  containers:\n"
        f"  - name: {container or name}\n{words}    image: registry.local/app:1\n"
    ).encode()


# What a directory of manifests has been seen to hold beside them.
COMPANY: dict[str, bytes] = {
    "README": b"Manifests of this node. Ask the platform team before you touch them: kube-apiserver is theirs.\n",
    "empty.yaml": b"",
    "only-comments.yaml": b"# nothing yet\n---\n",
    "kube-vip.yaml": pod("kube-vip", args=["manager"]),
    "kube-vip.yaml~": pod("kube-vip", args=["manager"]),
    "nginx-proxy.yml": pod("nginx-proxy", "nginx", "-g", "daemon off;") + b"---\n",
    "haproxy.json": b'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "haproxy"}, "spec": {"containers": [{"name": "haproxy"}]}}',
    "list.yaml": b"[]\n",
    "two.yaml": pod("one", "one") + b"---\n" + pod("two", "two"),
    "deployment.yaml": b"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n",
    "nameless.yaml": b"kind: Pod\nspec: {containers: []}\n",
    "binary": bytes(range(256)),
    "latin.yaml": "kind: Pod # für uns\n".encode("latin-1"),
    "script.sh": b"#!/bin/sh\nexec true\n",
}
