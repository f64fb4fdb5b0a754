"""A node's control-plane components: their static pod manifests and the processes made from them. Pure."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from roles.engine.editing import FormatError, flags, manifest
from roles.engine.kubelet import Kubelet
from roles.engine.node import File, Process
from roles.engine.transaction import Refusal

# In the order in which a gate is turned on.
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
# Port and health path by default (pkg/controlplane, cmd/kube-controller-manager, pkg/scheduler: ports.go).
_SERVING = {
    "kube-apiserver": ("6443", "/readyz"),
    "kube-controller-manager": ("10257", "/healthz"),
    "kube-scheduler": ("10259", "/healthz"),
}
# What is not a pod is named, but never with more than this: files, and characters of each.
_MOST_TOLD = 5
_LONGEST = 120
# Many times the size of any component's manifest. What is larger takes seconds to read as YAML.
_MOST_BYTES = 64 * 1024
_KIND_POD = re.compile(rb"kind[\"']?\s*:\s*[\"']?Pod\b")
_UNREAD = {"directory": "is a directory", "other": "is no regular file", "link": "is a link to no file that can be read"}


@dataclass(frozen=True)
class Component:
    """One control-plane component of a node. `container` is the one of its pod that runs it, whatever it is called.

    One that runs and whose manifest is not known for sure has a file of the kind "none", and the arguments of its process.
    """

    host: str
    name: str
    file: File
    pod: manifest.ManifestPod
    argv: tuple[str, ...]
    process: Process
    node_name: str
    container: str

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


@dataclass(frozen=True)
class ControlPlane:
    """What the manifests directory of a node comes to. `components`: those that run, by name. `refusals`: by name, why one cannot be
    changed; such a one may run all the same, or not. `warnings`: what else lies in the directory, and is left as it is."""

    components: dict[str, Component]
    refusals: dict[str, Refusal]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Entry:
    """One name in the manifests directory that the kubelet reads; `why` it is not understood, where `pod` is None."""

    path: str
    file: File
    pod: manifest.ManifestPod | None
    why: str = ""

    @property
    def name(self) -> str:
        return told(posixpath.basename(self.path))

    @property
    def identity(self) -> str:
        """The kubelet keeps one pod of this name (cache.MetaNamespaceKeyFunc)."""
        return f"{self.pod.namespace}/{self.pod.name}" if self.pod else ""

    def runs(self, program: str) -> list[manifest.ManifestContainer]:
        """The containers whose command begins with a program."""
        return [container for container in self.pod.containers if container.program == program] if self.pod else []

    def wraps(self, program: str) -> list[manifest.ManifestContainer]:
        """The containers that may start a program in another way."""
        return [container for container in self.pod.containers if container.wraps(program)] if self.pod else []

    def may_run(self, program: str) -> bool:
        """Not understood, but the kubelet may understand it: it takes the first of several documents, keys that stand twice, and more."""
        if self.pod is not None:
            return False
        if self.file.data is None:
            # Too large for daytwo, not for the kubelet (maxConfigLength, 10 MB). A link without data leads to no file.
            return self.file.kind == "file" and program in posixpath.basename(self.path)
        text = self.file.data.replace(b"\0", b"")  # of UTF-16
        return program.encode() in text and _KIND_POD.search(text) is not None


def find(kubelet: Kubelet) -> dict[str, Component]:
    """The node's control-plane components that run, by name; empty on a worker. Raises Refusal for a kube-apiserver that has a manifest
    and does not run: the control plane is not whole then, and nothing is changed before it is."""
    found = look(kubelet)
    if COMPONENTS[0] in found.refusals and COMPONENTS[0] not in found.components:
        raise found.refusals[COMPONENTS[0]]
    return found.components


def look(kubelet: Kubelet) -> ControlPlane:
    """What the node's manifests directory comes to. Only what is to be changed has to be understood: all else there is left as it is.

    A component is known by the binary that its container's command runs. The kubelet reads every file but those whose name begins
    with a dot, whatever its extension, in the order of their names (pkg/kubelet/config/file.go, extractFromDir).
    """
    seen = kubelet.seen
    if kubelet.manifests is None:
        return ControlPlane({}, {}, ())
    entries = list(_entries(kubelet, kubelet.manifests))
    components: dict[str, Component] = {}
    refusals: dict[str, Refusal] = {}
    warnings = _not_understood(kubelet.manifests, entries)
    for name in COMPONENTS:
        running = [process for process in seen.named(name) if process.pod_uid]
        try:
            made, others = _component(kubelet, name, entries, running)
        except Refusal as refusal:
            refusals[name] = refusal
            # It may be between two starts: that it cannot be changed is to be known all the same.
            warnings.append(f"{name} is left as it is: {refusal.message}")
            if running:
                nowhere = File(kubelet.manifests, "none")
                pod = manifest.ManifestPod("kube-system", name, (manifest.ManifestContainer(name),))
                process = running[0]
                components[name] = Component(seen.host, name, nowhere, pod, process.argv, process, kubelet.node_name, name)
            continue
        if made is not None:
            components[name] = made
        warnings += [
            f"{other.name} makes a {name}, too, as the pod {told(other.identity)}: it is left as it is" for other in others[:_MOST_TOLD]
        ]
    return ControlPlane(components, refusals, tuple(warnings))


# ---- the directory


def _entries(kubelet: Kubelet, folder: str) -> Iterator[_Entry]:
    for name in sorted(kubelet.seen.directories.get(folder, ()), key=os.fsencode):
        path = posixpath.join(folder, name)
        file = kubelet.seen.file(path)
        if name.startswith(".") or file is None or file.kind == "none":
            continue
        try:
            yield _Entry(path, file, _pod(file))
        except FormatError as error:
            yield _Entry(path, file, None, told(str(error)))


def _pod(file: File) -> manifest.ManifestPod:
    """Raises FormatError for what is no manifest, or none that is worth a look."""
    if file.data is None:
        raise FormatError(_UNREAD.get(file.kind, "is over 1 MiB, or cannot be read"))
    if len(file.data) > _MOST_BYTES:
        raise FormatError(f"is larger than any manifest ({len(file.data)} bytes)")
    pod = manifest.read(file.data)
    if not pod.name:
        raise FormatError("is a Pod without a name")
    return pod


def _not_understood(folder: str, entries: Sequence[_Entry]) -> list[str]:
    """One sentence, however many there are."""
    strange = [entry for entry in entries if entry.pod is None]
    if not strange:
        return []
    named = ", ".join(f"{entry.name} ({entry.why})" for entry in strange[:_MOST_TOLD])
    more = f" and {len(strange) - _MOST_TOLD} more" if len(strange) > _MOST_TOLD else ""
    return [f"{told(folder)} holds what is no manifest that daytwo understands, and is left as it is: {named}{more}"]


def told(text: str) -> str:
    """Text of a node, short and without anything that a terminal would obey or show otherwise."""
    shown = "".join(character if character.isascii() and character.isprintable() else ascii(character)[1:-1] for character in text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


# ---- one component


def _component(kubelet: Kubelet, name: str, entries: Sequence[_Entry], running: Sequence[Process]) -> tuple[Component | None, list[_Entry]]:
    """The component as the node has it, or None, and the manifests that make another one of its kind. Raises Refusal."""
    host = kubelet.seen.host
    own = _own(host, name, entries)
    if own is None:
        _check_nothing_hides(kubelet, name, entries, running)
        return None, []
    _check_alone(host, name, own, entries)
    container, *more = own.runs(name)
    if more:
        raise Refusal(host, f"{told(own.path)}: {1 + len(more)} of its containers run {name}", "leave it one")
    others = [entry for entry in entries if entry is not own and entry.runs(name)]
    argv = (*container.command, *container.args)
    assert own.pod is not None  # it runs the component
    in_pod = _in_pod(f"{own.pod.namespace}_{own.pod.name}-{kubelet.node_name}", running)
    process = _process(argv, [(*other.command, *other.args) for entry in others for other in entry.runs(name)], in_pod)
    if process is None and in_pod:
        raise Refusal(
            host,
            f"{told(own.path)} makes a {name}, and which of the processes of that name is its own is not clear (PID "
            f"{', '.join(str(one.pid) for one in running[:_MOST_TOLD])})",
            f"leave one {name} on the node, or give each its own arguments",
        )
    if process is None:
        raise Refusal(host, f"{told(own.path)} makes a {name}, and none runs on the node", "fix that first")
    try:
        for words in (argv, process.argv):
            flags.effective_gates(words)
    except FormatError as error:
        raise Refusal(host, str(error.in_file(told(own.path))), "correct that first") from None
    return Component(host, name, own.file, own.pod, argv, process, kubelet.node_name, container.name), others


def _own(host: str, name: str, entries: Sequence[_Entry]) -> _Entry | None:
    """Of the manifests that make a component, the node's own: the only one, or the one whose pod is called as kubeadm calls it. (A second
    scheduler has another name.) None where none runs it as such. Raises Refusal where it is not clear."""
    makers = [entry for entry in entries if entry.runs(name)]
    if not makers:
        return None
    candidates = [entry for entry in entries if entry.runs(name) or entry.wraps(name)]
    if len({entry.identity for entry in candidates}) == 1:
        return makers[0]
    named = next((entry for entry in candidates if entry.identity == f"kube-system/{name}"), None)
    if named is None or named not in makers:
        raise Refusal(
            host,
            f"{' and '.join(told(entry.path) for entry in candidates[:_MOST_TOLD])} may each make a {name}, and which is the node's own is "
            "not clear",
            f"call its pod {name}, in kube-system, have its command begin with {name} itself, or leave one",
        )
    return named


def _check_alone(host: str, name: str, own: _Entry, entries: Sequence[_Entry]) -> None:
    """No other file makes the same pod, as far as that can be told. Raises Refusal: the kubelet takes the last of them, so that an edit of
    the one before is undone within 20 s."""
    for entry in entries:
        if entry is not own and entry.identity == own.identity:
            raise Refusal(
                host,
                f"{' and '.join(sorted((told(own.path), told(entry.path))))} both make a {name}, as the pod {told(own.identity)}; "
                "the kubelet takes the last of them",
                "move the stray one out of the manifests directory (a backup copy there is a second pod)",
            )
        if entry.may_run(name):
            raise Refusal(
                host,
                f"{told(own.path)} makes a {name}, and whether {told(entry.path)} makes it, too, is not clear ({entry.why})",
                "move the stray one out of the manifests directory (the kubelet reads every file there)",
            )


def _in_pod(pod: str, running: Sequence[Process]) -> list[Process]:
    """The processes of a pod (NAMESPACE_NAME on the node); where the kubelet's directories do not name it, those of no known pod."""
    return [process for process in running if pod in process.pods] or [process for process in running if not process.pods]


def _process(argv: Sequence[str], others: Sequence[Sequence[str]], running: Sequence[Process]) -> Process | None:
    """The process of a manifest: the only one that has its arguments; else, since a manifest may wait to be taken up, the only one
    that has not those of another manifest. None where there is none, or it is not clear."""
    rest = [process for process in running if process.argv not in {tuple(other) for other in others}]
    exact = [process for process in running if process.argv == tuple(argv)]
    for candidates in (exact, rest):
        if len(candidates) == 1:
            return candidates[0]
    return None


def _check_nothing_hides(kubelet: Kubelet, name: str, entries: Sequence[_Entry], running: Sequence[Process]) -> None:
    """No manifest runs the component as such. Raises Refusal where it runs all the same, or was meant to: where any of the control
    plane runs, a file that is not understood and has the component's name is its manifest."""
    host, folder = kubelet.seen.host, told(kubelet.manifests or "")
    wrapped = [(entry, container) for entry in entries for container in entry.wraps(name)] if running else []
    if wrapped:
        entry, container = next((pair for pair in wrapped if pair[0].identity == f"kube-system/{name}"), wrapped[0])
        by = f"through {told(container.program)}" if container.program else "by its image's own entry point"
        raise Refusal(
            host,
            f"{told(entry.path)} starts {name} {by}, and a flag at the end of such a command may never reach it",
            f"have the container's command begin with {name} itself",
        )
    there = any(process.pod_uid for other in COMPONENTS for process in kubelet.seen.named(other))
    about = [entry for entry in entries if entry.pod is None and (_called(entry.path) == name or entry.may_run(name))] if there else []
    if not (running or about):
        return
    why = "; ".join(f"{told(entry.path)}: {entry.why}" for entry in about[:_MOST_TOLD])
    raise Refusal(
        host,
        f"{name} {'runs as a static pod' if running else 'does not run'}, and no manifest in {folder} has such a container"
        + (f" ({why})" if why else ""),
        "a manifest must be readable before it is changed",
    )


def _called(path: str) -> str:
    """`kube-apiserver` of kube-apiserver.yaml: what kubeadm and others call a component's manifest."""
    name, extension = posixpath.splitext(posixpath.basename(path))
    return name if extension in (".yaml", ".yml", ".json", ".manifest") else ""


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
