"""A node's control-plane components: their static pod manifests and the processes made from them. Pure.

A component is known by the binary that it runs, not by what its container is called. What else lies among the manifests (the kubelet
reads every file there) makes a warning, and keeps nobody from any work but an edit of that very pod.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
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
    """One control-plane component of a node. `container` is what its container is called. `why_not` says why its manifest cannot be
    edited; where none is known to make it, `file` has no path and `argv` is the process's."""

    host: str
    name: str
    file: File
    pod: manifest.Pod
    argv: tuple[str, ...]
    process: Process
    node_name: str
    container: str
    why_not: str = ""

    @property
    def data(self) -> bytes:
        return self.file.data or b""

    @property
    def gates(self) -> dict[str, bool]:
        """Gates that the manifest sets. Raises FormatError, with the place."""
        try:
            return flags.effective_gates(self.argv)
        except FormatError as error:
            raise error.in_file(self.file.path, self.line_of(error.value)) from None

    def line_of(self, text: str | None) -> int | None:
        """The line of the manifest's argument that holds a text; None where there is none."""
        try:
            found = manifest.argument_lines(self.data, self.container)
        except FormatError:
            return None
        return next((line for word, line in found if text and text in word), None)

    @property
    def running_gates(self) -> dict[str, bool]:
        return flags.effective_gates(self.process.argv)

    @property
    def address(self) -> tuple[str, int]:
        """Where it serves, as seen from the node itself."""
        port = flags.last_flag(self.process.argv, "secure-port") or _SERVING[self.name][0]
        bound = flags.last_flag(self.process.argv, "bind-address") or ""
        return ("127.0.0.1" if bound in ("", "0.0.0.0", "::") else bound, int(port))  # noqa: S104 - what it was given

    @property
    def health_url(self) -> str:
        host, port = self.address
        return f"https://{f'[{host}]' if ':' in host else host}:{port}{_SERVING[self.name][1]}"

    @property
    def log_name(self) -> str:
        """NAMESPACE_NAME of the pod on its node, as its log directory is named (pkg/kubelet/kuberuntime/helpers.go)."""
        return f"{self.pod.namespace}_{self.pod.name}-{self.node_name}"


@dataclass(frozen=True)
class _Listed:
    """A manifest that can be read."""

    file: File
    pod: manifest.Pod

    def same_pod(self, other: _Listed) -> bool:
        return (self.pod.namespace, self.pod.name) == (other.pod.namespace, other.pod.name)


def _read(kubelet: Kubelet) -> tuple[list[_Listed], list[str]]:
    """What the kubelet reads, in its order, and what in there is no pod."""
    listed: list[_Listed] = []
    others: list[str] = []
    for name in sorted(kubelet.seen.directories.get(kubelet.manifests or "", ())):
        path = posixpath.join(kubelet.manifests or "", name)
        file = kubelet.seen.file(path)
        if name.startswith(".") or file is None or file.kind in ("directory", "none"):
            continue  # the kubelet reads no subdirectories
        if file.data is None:
            others.append(f"{path}: is no regular file, or over 1 MiB")
            continue
        try:
            listed.append(_Listed(file, manifest.read(file.data)))
        except FormatError as error:
            others.append(str(error.in_file(path)))
    return listed, others


def container_of(pod: manifest.Pod, component: str, process: Process | None) -> str | None:
    """Which container of a pod makes a component; None where none does. `process`: the component's, where it runs in this very pod.

    One says so by the program that it starts. One that starts a shell, or what its image says, does by its name; and with `process` at
    hand one of the two is it, whatever it is called.
    """
    programs = dict(zip(pod.containers, pod.programs, strict=False))
    starts = [name for name, program in programs.items() if posixpath.basename(program) == component]
    if starts:
        return component if component in starts else starts[0]
    named = programs.get(component)
    if named is not None and (process is not None or not named or flags.is_shell(named)):
        return component
    if process is None:
        return None
    unsaid = [name for name, program in programs.items() if not program or flags.is_shell(program)]
    candidates = unsaid or list(programs)
    return candidates[0] if len(candidates) == 1 else None


def find(kubelet: Kubelet, *, to_change: bool = True) -> dict[str, Component]:
    """The node's control-plane components by name; empty on a worker. Raises Refusal for one that has a manifest and does not run.

    Without `to_change` a controller-manager or scheduler that has a manifest and no process is left out: both end when they lose
    their lease, with an API server that is slow, and then wait up to five minutes for their next start.
    """
    if kubelet.manifests is None:
        return {}
    listed, others = _read(kubelet)
    found: dict[str, Component] = {}
    for name in COMPONENTS:
        running = _running(kubelet, listed, name)
        process = kubelet.seen.static_pod_process(name)
        made = [one for one in listed if container_of(one.pod, name, None)]
        if running:
            found[name] = _component(kubelet, name, running, listed)
        elif process is not None:
            found[name] = _unmade(kubelet, name, process, others)
        elif made and (to_change or name == COMPONENTS[0]):
            raise Refusal(kubelet.seen.host, f"{made[-1].file.path} makes a {name}, and none runs on the node", "fix that first")
    return found


def _running(kubelet: Kubelet, listed: Iterable[_Listed], name: str) -> list[_Listed]:
    """The manifests whose pod a process of the component runs in."""
    found = [one for one in listed if kubelet.seen.process_of(name, one.pod.namespace, one.pod.name) is not None]
    # The log directory is NAMESPACE_NAME-NODE: of two names, one the beginning of the other, the longer is meant.
    longest = max((len(one.pod.name) for one in found), default=0)
    return [one for one in found if len(one.pod.name) == longest]


def _component(kubelet: Kubelet, name: str, running: list[_Listed], listed: Iterable[_Listed]) -> Component:
    one = running[-1]
    process = kubelet.seen.process_of(name, one.pod.namespace, one.pod.name)
    assert process is not None  # _running() has looked
    container, argv, why_not = container_of(one.pod, name, process), process.argv, ""
    same = [other.file.path for other in listed if other.same_pod(one)]
    if container is None:
        why_not = f"{one.file.path}: which of its containers ({', '.join(one.pod.containers)}) makes the {name} cannot be known"
    elif len(same) > 1:
        why_not = (
            f"{' and '.join(same)} both make a {name}; the kubelet takes the last of them; "
            "move the stray one out of the manifests directory (a backup copy there is a second pod)"
        )
    if container is not None:
        try:
            argv = tuple(manifest.container_argv(one.file.data or b"", container))
        except FormatError as error:
            why_not = str(error.in_file(one.file.path))
    return Component(kubelet.seen.host, name, one.file, one.pod, argv, process, kubelet.node_name, container or name, why_not)


def _unmade(kubelet: Kubelet, name: str, process: Process, others: Iterable[str]) -> Component:
    """A component that runs in a static pod, and no file that can be read makes it."""
    uid = process.pod_uid or ""
    namespace, _, rest = kubelet.seen.pods.get(uid, "").removesuffix(f"_{uid}").partition("_")
    pod = manifest.Pod(namespace, rest.removesuffix(f"-{kubelet.node_name}"), True, (name,))
    unreadable = "; ".join(others)
    why_not = f"{name} runs as a static pod, and no manifest in {kubelet.manifests} has such a container"
    why_not += f" ({unreadable}); a manifest must be readable before it is changed" if unreadable else ""
    return Component(kubelet.seen.host, name, File("", "none"), pod, process.argv, process, kubelet.node_name, name, why_not)


def warnings(kubelet: Kubelet) -> list[str]:
    """What lies among the manifests and should not: no pod, or a pod that another file makes too."""
    if kubelet.manifests is None:
        return []
    listed, others = _read(kubelet)
    found = [f"{text}; the kubelet reads every file there, whatever its name: move it out of {kubelet.manifests}" for text in others]
    for number, one in enumerate(listed):
        if any(one.same_pod(other) for other in listed[:number]):
            continue
        if twins := [other.file.path for other in listed[number + 1 :] if other.same_pod(one)]:
            paths = ", ".join([one.file.path, *twins])
            found.append(
                f"{paths} all make the pod {one.pod.namespace}/{one.pod.name}; the kubelet takes the last of them: move the others away"
            )
    return found
