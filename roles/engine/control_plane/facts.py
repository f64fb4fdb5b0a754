"""A node's control-plane components: their static pod manifests and their processes. Pure."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roles.engine.editing import FormatError, flags, manifest, manifest_parts
from roles.engine.folding import shortened
from roles.engine.kubelet import Kubelet
from roles.engine.node import File, Process, in_pod
from roles.engine.transaction import Refusal

# In the order in which a gate is enabled.
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
# Default port and health path (pkg/controlplane, cmd/kube-controller-manager, pkg/scheduler: ports.go).
_SERVING = {
    "kube-apiserver": ("6443", "/readyz"),
    "kube-controller-manager": ("10257", "/healthz"),
    "kube-scheduler": ("10259", "/healthz"),
}
# How much of a node's names and texts a message has: files or processes, and characters of each.
_MOST_NAMED = 5
_LONGEST = 120
# Many times the size of any component's manifest. A larger file takes seconds to read as YAML.
_MOST_BYTES = 64 * 1024
_KIND_POD = re.compile(rb"kind[\"']?\s*:\s*[\"']?Pod\b")
_UNREAD = {"directory": "is a directory", "other": "is not a regular file", "link": "is a link, but not to a readable file"}


@dataclass(frozen=True)
class Component:
    """One control-plane component of a node. `container` is the name of the container that runs it, which may be any name.

    If it runs but its manifest is not certain, it has a file of the kind "none", and the arguments of its process.
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
    def manifest_path(self) -> str | None:
        """None if it is not certain which file is its manifest."""
        return None if self.file.kind == "none" else self.file.path

    @property
    def gates(self) -> dict[str, bool]:
        """Gates that the manifest sets."""
        return flags.effective_gates(self.argv)

    @property
    def running_gates(self) -> dict[str, bool]:
        return flags.effective_gates(self.process.argv)

    @property
    def address(self) -> tuple[str, int]:
        """The address and port where it serves, as seen from the node itself."""
        return self.serves(self.process.argv)

    def serves(self, argv: Sequence[str]) -> tuple[str, int]:
        """Where it would serve with these arguments."""
        port = flags.last_flag(argv, "secure-port") or _SERVING[self.name][0]
        bound = flags.last_flag(argv, "bind-address") or ""
        return ("127.0.0.1" if bound in ("", "0.0.0.0", "::") else bound, int(port))  # noqa: S104 - the component's setting

    @property
    def health_url(self) -> str:
        host, port = self.address
        return f"https://{f'[{host}]' if ':' in host else host}:{port}{_SERVING[self.name][1]}"

    @property
    def probe_ports(self) -> tuple[int, ...]:
        """The ports that the probes of its container ask; () if they cannot be read."""
        try:
            return manifest_parts.probe_ports(self.data, self.container)
        except FormatError:
            return ()

    @property
    def log_name(self) -> str:
        """NAMESPACE_NAME of the pod on its node, the name of its log directory (pkg/kubelet/kuberuntime/helpers.go)."""
        return f"{self.pod.namespace}_{self.pod.name}-{self.node_name}"


def sourced_gates(found: Kubelet | Component) -> dict[str, bool]:
    """The gates that its files and flags set; {} if they cannot be read, which the plan of a change refuses."""
    try:
        return found.gates
    except FormatError:
        return {}


@dataclass(frozen=True)
class ControlPlane:
    """The control plane in the manifests directory of a node. `components`: those that run, by name. `refusals`: by name, why a component
    cannot be changed; it may run or not. `said`: what is left as it is, with the component; "": other files in the directory."""

    components: dict[str, Component]
    refusals: dict[str, Refusal]
    said: tuple[tuple[str, str], ...] = ()

    @property
    def warnings(self) -> list[str]:
        return [sentence for _, sentence in self.said]


@dataclass(frozen=True)
class ManifestFile:
    """One name in the manifests directory that the kubelet reads. If `pod` is None, `error` says why it is not understood."""

    path: str
    file: File
    pod: manifest.ManifestPod | None
    error: FormatError | None = None

    @property
    def name(self) -> str:
        return printable(posixpath.basename(self.path))

    @property
    def why(self) -> str:
        return printable(str(self.error))

    @property
    def line(self) -> int | None:
        """Where it names its pod, or where it is wrong."""
        return self.error.line if self.error else manifest.name_line(self.file.data or b"")

    @property
    def identity(self) -> str:
        """NAMESPACE/NAME. The kubelet keeps one pod of this name (cache.MetaNamespaceKeyFunc)."""
        return f"{self.pod.namespace}/{self.pod.name}" if self.pod else ""

    def runs(self, program: str) -> list[manifest.ManifestContainer]:
        """The containers whose command begins with a program."""
        return [container for container in self.pod.containers if container.program == program] if self.pod else []

    def wraps(self, program: str) -> list[manifest.ManifestContainer]:
        """The containers that may start a program indirectly."""
        return [container for container in self.pod.containers if container.wraps(program)] if self.pod else []

    def may_run(self, program: str) -> bool:
        """True if daytwo does not understand the file, but the kubelet may: it reads the first of several documents, keys that occur
        twice, and more."""
        if self.pod is not None:
            return False
        if self.file.data is None:
            # Too large for daytwo, not for the kubelet (maxConfigLength, 10 MB). A link without data does not lead to a file.
            return self.file.kind == "file" and program in posixpath.basename(self.path)
        text = self.file.data.replace(b"\0", b"")  # of UTF-16
        return program.encode() in text and _KIND_POD.search(text) is not None


def find(kubelet: Kubelet) -> dict[str, Component]:
    """The node's running control-plane components, by name; empty on a worker. Raises Refusal for a kube-apiserver that has a manifest
    but does not run: then the control plane is incomplete, and nothing may be changed before it is repaired."""
    found = look(kubelet)
    if COMPONENTS[0] in found.refusals and COMPONENTS[0] not in found.components:
        raise found.refusals[COMPONENTS[0]]
    return found.components


def look(kubelet: Kubelet, *, to_change: bool = True) -> ControlPlane:
    """The control plane in the node's manifests directory. Only a file that should change must be understood: all others are left as
    they are. Without `to_change`, a component that is refused and runs has the manifest that probably counts.

    A component is identified by the binary that its container's command runs. The kubelet reads every file except those whose name
    begins with a dot, whatever the extension, in the order of their names (pkg/kubelet/config/file.go, extractFromDir).
    """
    seen = kubelet.seen
    if kubelet.manifests is None and to_change:
        return ControlPlane({}, {})
    entries = manifest_files(kubelet)
    components: dict[str, Component] = {}
    refusals: dict[str, Refusal] = {}
    said = [("", sentence) for sentence in _not_understood(kubelet.manifests or "", entries)]
    for name in COMPONENTS:
        running = [process for process in seen.named(name) if process.pod_uid]
        try:
            component, others = _component(kubelet, name, entries, running)
        except Refusal as refusal:
            refusals[name] = refusal
            # It may be between two starts: also then the operator must know that it cannot be changed.
            said.append((name, f"{name} is left as it is: {refusal.message}"))
            if running:
                components[name] = _probable(kubelet, name, () if to_change else entries, running)
            continue
        if component is not None:
            components[name] = component
        said += [
            (name, f"{other.name} also defines a {name}, as the pod {printable(other.identity)}: it is left as it is")
            for other in others[:_MOST_NAMED]
        ]
    return ControlPlane(components, refusals, tuple(said))


@dataclass(frozen=True)
class EtcdPod:
    """A node's own etcd as a static pod, kube-system/etcd as kubeadm names it: its manifest, the container that runs it, and its command
    line there."""

    data: bytes
    container: str
    argv: tuple[str, ...]


def own_etcd(kubelet: Kubelet) -> EtcdPod | None:
    """None if no manifest of the node runs it: etcd is a unit, or on other machines."""
    for entry in manifest_files(kubelet):
        if entry.identity == "kube-system/etcd" and entry.file.data is not None:
            return next((EtcdPod(entry.file.data, one.name, (*one.command, *one.args)) for one in entry.runs("etcd")), None)
    return None


# ---- the directory


def manifest_files(kubelet: Kubelet) -> list[ManifestFile]:
    """What the kubelet reads as manifests, in its order."""
    folder, found = kubelet.manifests, []
    for name in sorted(kubelet.seen.directories.get(folder, ()), key=os.fsencode) if folder else ():
        path = posixpath.join(folder or "", name)
        file = kubelet.seen.file(path)
        if name.startswith(".") or file is None or file.kind == "none":
            continue
        try:
            found.append(ManifestFile(path, file, _pod(file)))
        except FormatError as error:
            found.append(ManifestFile(path, file, None, error))
    return found


def by_pod(files: Iterable[ManifestFile]) -> dict[str, list[ManifestFile]]:
    """The manifests of each pod, by NAMESPACE/NAME: of several the kubelet uses the last."""
    found: dict[str, list[ManifestFile]] = {}
    for one in files:
        if one.pod is not None:
            found.setdefault(one.identity, []).append(one)
    return found


def _pod(file: File) -> manifest.ManifestPod:
    """Raises FormatError for a file that is not a manifest, or is too large for one."""
    if file.data is None:
        raise FormatError(_UNREAD.get(file.kind, "is over 1 MiB, or cannot be read"))
    if len(file.data) > _MOST_BYTES:
        raise FormatError(f"has {len(file.data)} bytes: daytwo reads manifests of {_MOST_BYTES} at most")
    pod = manifest.read(file.data)
    if not pod.name:
        raise FormatError("is a Pod without a name")
    return pod


def _not_understood(folder: str, entries: Sequence[ManifestFile]) -> list[str]:
    """One sentence about all of them."""
    found = [entry for entry in entries if entry.pod is None]
    if not found:
        return []
    named = shortened([f"{entry.name} ({entry.why})" for entry in found], _MOST_NAMED)
    return [f"{printable(folder)}: daytwo does not understand these files as manifests, and leaves them as they are: {named}"]


def printable(text: str) -> str:
    """Text from a node, short and without characters that a terminal would obey or show differently."""
    shown = "".join(character if character.isascii() and character.isprintable() else ascii(character)[1:-1] for character in text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


# ---- one component


def _component(
    kubelet: Kubelet, name: str, entries: Sequence[ManifestFile], running: Sequence[Process]
) -> tuple[Component | None, list[ManifestFile]]:
    """The node's component, or None, and the manifests that define another one of its kind. Raises Refusal."""
    host = kubelet.seen.host
    own = _own(host, name, entries)
    if own is None:
        _check_not_hidden(kubelet, name, entries, running)
        return None, []
    _check_alone(host, name, own, entries)
    container, *more = own.runs(name)
    if more:
        raise Refusal(host, f"{printable(own.path)}: {1 + len(more)} of its containers run {name}", "leave one of them")
    others = [entry for entry in entries if entry is not own and entry.runs(name)]
    argv = (*container.command, *container.args)
    assert own.pod is not None  # it runs the component
    its = in_pod(f"{own.pod.namespace}_{own.pod.name}-{kubelet.node_name}", running)
    process = _process(argv, [(*other.command, *other.args) for entry in others for other in entry.runs(name)], its)
    if process is None and its:
        raise Refusal(
            host,
            f"{printable(own.path)} defines a {name}, but it is not clear which process of that name belongs to it (PID "
            f"{', '.join(str(one.pid) for one in running[:_MOST_NAMED])})",
            f"leave one {name} on the node, or give each its own arguments",
        )
    if process is None:
        raise Refusal(host, f"{printable(own.path)} defines a {name}, but none runs on the node", "fix that first")
    try:
        for words in (argv, process.argv):
            flags.effective_gates(words)
    except FormatError as error:
        raise Refusal(host, f"{printable(own.path)}: {printable(str(error))}") from None
    return Component(host, name, own.file, own.pod, argv, process, kubelet.node_name, container.name), others


def _probable(kubelet: Kubelet, name: str, entries: Sequence[ManifestFile], running: Sequence[Process]) -> Component:
    """A component that runs and that nothing may change, with the last of these manifests that runs it, and in the pod that kubeadm names
    if there is one."""
    container = manifest.ManifestContainer(name)
    file, pod = File(kubelet.manifests or "", "none"), manifest.ManifestPod("kube-system", name, (container,))
    argv, process = running[0].argv, running[0]
    for entry in entries:
        # A second process of this component is in another pod.
        if entry.pod and (direct := entry.runs(name)) and not (file.kind != "none" and pod.name == name != entry.pod.name):
            file, pod, container = entry.file, entry.pod, direct[-1]
            argv = (*container.command, *container.args)
            process = next(iter(in_pod(f"{pod.namespace}_{pod.name}-{kubelet.node_name}", running)), process)
    return Component(kubelet.seen.host, name, file, pod, argv, process, kubelet.node_name, container.name)


def _own(host: str, name: str, entries: Sequence[ManifestFile]) -> ManifestFile | None:
    """The node's own manifest of a component: the only one, or the one whose pod has the name that kubeadm uses. (A second scheduler has
    another name.) None if no manifest runs the component as such. Raises Refusal if it is not clear."""
    direct = [entry for entry in entries if entry.runs(name)]
    if not direct:
        return None
    candidates = [entry for entry in entries if entry.runs(name) or entry.wraps(name)]
    if len({entry.identity for entry in candidates}) == 1:
        return direct[0]
    named = next((entry for entry in candidates if entry.identity == f"kube-system/{name}"), None)
    if named is None or named not in direct:
        raise Refusal(
            host,
            f"{' and '.join(printable(entry.path) for entry in candidates[:_MOST_NAMED])} may each define a {name}, and it is not clear "
            "which is the node's own",
            f"name its pod {name}, in kube-system, and let its command begin with {name} itself; or leave only one manifest",
        )
    return named


def _check_alone(host: str, name: str, own: ManifestFile, entries: Sequence[ManifestFile]) -> None:
    """Raises Refusal if another file defines the same pod, or may define it: the kubelet uses the last of them, and undoes an edit of an
    earlier one within 20 s."""
    for entry in entries:
        if entry is not own and entry.identity == own.identity:
            raise Refusal(
                host,
                f"{' and '.join(sorted((printable(own.path), printable(entry.path))))} both define a {name}, as the pod "
                f"{printable(own.identity)}; the kubelet uses the last of them",
                "move the stray one out of the manifests directory (a backup copy there is a second pod)",
            )
        if entry.may_run(name):
            raise Refusal(
                host,
                f"{printable(own.path)} defines a {name}, and it is not clear whether {printable(entry.path)} defines it too ({entry.why})",
                "move the stray one out of the manifests directory (the kubelet reads every file there)",
            )


def _process(argv: Sequence[str], others: Sequence[Sequence[str]], running: Sequence[Process]) -> Process | None:
    """The process of a manifest: the only one that has its arguments; else, since the kubelet may not have applied the manifest yet, the
    only one that does not have those of another manifest. None if there is none, or if it is not clear."""
    rest = [process for process in running if process.argv not in {tuple(other) for other in others}]
    exact = [process for process in running if process.argv == tuple(argv)]
    for candidates in (exact, rest):
        if len(candidates) == 1:
            return candidates[0]
    return None


def _check_not_hidden(kubelet: Kubelet, name: str, entries: Sequence[ManifestFile], running: Sequence[Process]) -> None:
    """For a component that no manifest runs as such. Raises Refusal if it runs all the same, or should run: if any component runs on the
    node, a file that is not understood and has the component's name is its manifest."""
    host, folder = kubelet.seen.host, printable(kubelet.manifests or "")
    wrapped = [(entry, container) for entry in entries for container in entry.wraps(name)] if running else []
    if wrapped:
        entry, container = next((pair for pair in wrapped if pair[0].identity == f"kube-system/{name}"), wrapped[0])
        by = f"through {printable(container.program)}" if container.program else "by its image's own entry point"
        raise Refusal(
            host,
            f"{printable(entry.path)} starts {name} {by}, and a flag at the end of such a command may not reach it",
            f"let the container's command begin with {name} itself",
        )
    any_runs = any(process.pod_uid for other in COMPONENTS for process in kubelet.seen.named(other))
    suspects = [entry for entry in entries if entry.pod is None and (_stem(entry.path) == name or entry.may_run(name))] if any_runs else []
    if not (running or suspects):
        return
    why = "; ".join(f"{printable(entry.path)}: {entry.why}" for entry in suspects[:_MOST_NAMED])
    raise Refusal(
        host,
        f"{name} {'runs as a static pod' if running else 'does not run'}, and no manifest in {folder} has such a container"
        + (f" ({why})" if why else ""),
        "give it a manifest that daytwo can read first",
    )


def _stem(path: str) -> str:
    """`kube-apiserver` of kube-apiserver.yaml, the name that kubeadm and others give a component's manifest."""
    name, extension = posixpath.splitext(posixpath.basename(path))
    return name if extension in (".yaml", ".yml", ".json", ".manifest") else ""


def ignored_files(kubelet: Kubelet, components: Mapping[str, Component]) -> list[str]:
    """The processes with a component's name on a node that are not changed or asked, as sentences."""
    chosen = {component.process.pid for component in components.values()}
    sentences = list(kubelet.seen.ignored)
    for name in COMPONENTS:
        for process in kubelet.seen.named(name):
            if process.pid not in chosen:
                pod = " and ".join(process.pods) or "without a name"
                sentences.append(f"process {process.pid} is a {name} of another static pod ({pod}), not the control plane's: left as it is")
    return sentences
