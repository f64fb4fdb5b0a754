"""A node's control-plane components: their static pod manifests and the processes made from them. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from roles.change.refusal import Refusal
from roles.formats import FormatError, flags, manifest
from roles.kubelet import Kubelet
from roles.observe import File, Process

# In the order in which a gate is turned on.
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
# Port and health path by default (pkg/controlplane, cmd/kube-controller-manager, pkg/scheduler: ports.go).
_SERVING = {
    "kube-apiserver": ("6443", "/readyz"),
    "kube-controller-manager": ("10257", "/healthz"),
    "kube-scheduler": ("10259", "/healthz"),
}


@dataclass(frozen=True)
class Component:
    """One control-plane component of a node."""

    host: str
    name: str
    file: File
    pod: manifest.Pod
    argv: tuple[str, ...]
    process: Process
    node_name: str

    @property
    def data(self) -> bytes:
        return self.file.data or b""

    @property
    def gates(self) -> dict[str, bool]:
        """Gates that the manifest sets."""
        return flags.effective_gates(self.argv)

    @property
    def running_gates(self) -> dict[str, bool]:
        return flags.effective_gates(self.process.argv)

    @property
    def address(self) -> tuple[str, int]:
        """Where it serves, as seen from the node itself."""
        port = flags.last_flag(self.process.argv, "secure-port") or _SERVING[self.name][0]
        bound = flags.last_flag(self.process.argv, "bind-address") or ""
        return ("127.0.0.1" if bound in ("", "0.0.0.0", "::") else bound, int(port))  # noqa: S104 - what it was told

    @property
    def health_url(self) -> str:
        host, port = self.address
        return f"https://{f'[{host}]' if ':' in host else host}:{port}{_SERVING[self.name][1]}"

    @property
    def log_name(self) -> str:
        """NAMESPACE_NAME of the pod on its node, as its log directory is named (pkg/kubelet/kuberuntime/helpers.go)."""
        return f"{self.pod.namespace}_{self.pod.name}-{self.node_name}"


def find(kubelet: Kubelet, *, to_change: bool = True) -> dict[str, Component]:
    """The node's control-plane components by name; empty on a worker. Raises Refusal where they cannot be read for sure.

    Without `to_change` a controller-manager or scheduler that has a manifest and no process is left out: both end when they lose
    their lease, with an API server that is slow, and then wait up to five minutes for their next start.
    """
    seen = kubelet.seen
    processes = {name: seen.static_pod_process(name) for name in COMPONENTS}
    if kubelet.manifests is None:
        return {}
    found: dict[str, Component] = {}
    unreadable: list[str] = []
    for name in seen.directories.get(kubelet.manifests, ()):
        if name.startswith("."):
            continue
        path = posixpath.join(kubelet.manifests, name)
        file = seen.file(path)
        if file is None or file.data is None:
            continue  # the kubelet reads no subdirectories
        try:
            pod = manifest.read(file.data)
            for component in (component for component in COMPONENTS if component in pod.containers):
                if component in found:
                    raise Refusal(
                        seen.host,
                        f"{path} and {found[component].file.path} both make a {component}; the kubelet takes the last of them",
                        "move the stray one out of the manifests directory (a backup copy there is a second pod)",
                    )
                argv = tuple(manifest.container_argv(file.data, component))
                process = seen.process_of(component, pod.namespace, pod.name)
                if process is None and not to_change and component != COMPONENTS[0]:
                    continue
                if process is None:
                    raise Refusal(seen.host, f"{path} makes a {component}, and none runs on the node", "mend that first")
                found[component] = Component(seen.host, component, file, pod, argv, process, kubelet.node_name)
        except FormatError as error:
            unreadable.append(str(error.in_file(path)))
    running = [name for name, process in processes.items() if process is not None]
    if running and unreadable:
        raise Refusal(seen.host, "; ".join(unreadable), "a manifest must be readable before it is changed")
    for name in running:
        if name not in found:
            raise Refusal(seen.host, f"{name} runs as a static pod, and no manifest in {kubelet.manifests} has such a container")
    return {name: found[name] for name in COMPONENTS if name in found}
