"""A node's control-plane components: their static pod manifests and the processes made from them. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
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
    if kubelet.manifests is None:
        return {}
    candidates: dict[str, list[tuple[File, manifest.Pod]]] = {}
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
                candidates.setdefault(component, []).append((file, pod))
        except FormatError as error:
            unreadable.append(str(error.in_file(path)))
    running = [name for name in COMPONENTS if seen.static_pod_process(name) is not None]
    if running and unreadable:
        raise Refusal(seen.host, "; ".join(unreadable), "a manifest must be readable before it is changed")
    for component, made in candidates.items():
        file, pod = _the_nodes(seen.host, component, made)
        process = seen.static_pod_process(component, _on_node(pod, kubelet))
        if process is None and not to_change and component != COMPONENTS[0]:
            continue
        if process is None:
            raise Refusal(seen.host, f"{file.path} makes a {component}, and none runs on the node", "mend that first")
        try:
            argv = tuple(manifest.container_argv(file.data or b"", component))
            if to_change:
                for words in (argv, process.argv):
                    flags.effective_gates(words)  # raises FormatError
        except FormatError as error:
            raise Refusal(seen.host, str(error.in_file(file.path)), "a manifest must be readable before it is changed") from None
        found[component] = Component(seen.host, component, file, pod, argv, process, kubelet.node_name)
    for name in running:
        if name not in candidates:
            raise Refusal(seen.host, f"{name} runs as a static pod, and no manifest in {kubelet.manifests} has such a container")
    return {name: found[name] for name in COMPONENTS if name in found}


def _on_node(pod: manifest.Pod, kubelet: Kubelet) -> str:
    """NAMESPACE_NAME of a static pod, as its directory on the node is named."""
    return f"{pod.namespace}_{pod.name}-{kubelet.node_name}"


def _the_nodes(host: str, component: str, made: Sequence[tuple[File, manifest.Pod]]) -> tuple[File, manifest.Pod]:
    """Of the manifests that make a component, that of the node's control plane: kubeadm calls its pod as the component. Another pod may
    run a second scheduler. Raises Refusal where that does not tell one from the others."""
    if len(made) == 1:
        return made[0]
    named = [one for one in made if one[1].name == component]
    pods = {(pod.namespace, pod.name) for _, pod in made}
    if len(named) == 1 and len(pods) == len(made):
        return named[0]
    first, second, *_ = (file.path for file, _ in made)
    raise Refusal(
        host,
        f"{second} and {first} both make a {component}; the kubelet takes the last of them",
        "move the stray one out of the manifests directory (a backup copy there is a second pod)",
    )


def left_alone(kubelet: Kubelet, components: Mapping[str, Component]) -> list[str]:
    """What has a component's name on a node and is not changed or asked, in sentences."""
    chosen = {component.process.pid for component in components.values()}
    told = list(kubelet.seen.ignored)
    for name in COMPONENTS:
        for process in kubelet.seen.named(name):
            if process.pid not in chosen:
                pod = " and ".join(process.pods) or "without a name"
                told.append(f"process {process.pid} is the {name} of another static pod ({pod}) than the control plane's: left as it is")
    return told
