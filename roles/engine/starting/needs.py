"""What the start of a kubelet and of components needs, from their files: the present ones, or those of a change. Pure."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from roles.engine.bounds import digits
from roles.engine.control_plane import Component, own_etcd
from roles.engine.editing import FormatError, any_flag, flags, kubelet_config, manifest, manifest_parts, unit
from roles.engine.kubelet import Kubelet, drained, kubelet_plan
from roles.engine.kubelet.values import lookup
from roles.engine.starting.model import RECORD, FileRow, Holds, ImageNeed, KeyNeed, KeyRow, Needs, PathNeed, PortNeed, Stops
from roles.engine.starting.table import ETCD, KEYS, KUBELET, SERVING_KEY, SNI, TUNABLES, rows
from roles.engine.transaction import Refusal
from roles.engine.transaction.by_hand import RESOLVERS

#: The files of a change, by path; None: it removes the file.
Changed = Mapping[str, bytes | None]
_SCHEME = "unix://"
# Kubernetes' default from this minor on, and from the one in which failCgroupV1 is true by default (config/v1beta1/defaults.go).
_CONTAINERD_SINCE, _NO_CGROUP_V1_SINCE = 27, 35
_CONTAINERD = "unix:///run/containerd/containerd.sock"
#: The fields that decide which rules count: their flag, and what counts if neither is set.
_SETTINGS: Final[Mapping[str, tuple[str, object]]] = {
    "protectKernelDefaults": ("protect-kernel-defaults", False),
    "failSwapOn": ("fail-swap-on", True),
    "failCgroupV1": ("", None),
    "rotateCertificates": ("rotate-certificates", False),
    "serverTLSBootstrap": ("rotate-server-certificates", False),
    "enableServer": ("enable-server", True),
    "cgroupDriver": ("cgroup-driver", "cgroupfs"),
    "memorySwap.swapBehavior": ("", ""),
    "podPidsLimit": ("pod-max-pids", -1),
    "reservedSystemCPUs": ("reserved-cpus", ""),
    "cpuManagerPolicyOptions": ("", {}),
}
#: The ports that a kubelet listens on: field, flag, what counts if neither is set, and the field and flag of its address.
_PORTS: Final = (
    ("port", "port", 10250, "address", "address", "0.0.0.0"),  # noqa: S104 - the kubelet's default
    ("readOnlyPort", "read-only-port", 0, "address", "address", "0.0.0.0"),  # noqa: S104
    ("healthzPort", "healthz-port", 10248, "healthzBindAddress", "healthz-bind-address", "127.0.0.1"),
)
#: hostPath types that the kubelet checks and does not make (pkg/volume/hostpath/host_path.go, checkType).
_TYPES: Final = {
    "File": Holds.file,
    "Directory": Holds.directory,
    "Socket": Holds.socket,
    "CharDevice": Holds.device,
    "BlockDevice": Holds.device,
}
_DEVICE = "/dev/kmsg"
_ROOTLESS = "KubeletInUserNamespace"
#: Files in the kubelet's root directory in which it keeps what a policy assigned: the flag of that policy. It starts only with one that it
#: can read and that has the same policy (pkg/kubelet/cm/cpumanager, memorymanager: state/state_checkpoint.go, policy_static.go).
_CHECKPOINTS: Final = {drained.CPU: "cpu-manager-policy", drained.MEMORY: "memory-manager-policy"}
#: Those of which only an empty one is looked for (pkg/kubelet/allocation/state, pkg/kubelet/cm/dra/state).
PLAIN_CHECKPOINTS: Final = ("allocated_pods_state", "actuated_pods_state", "dra_manager_state")
#: Settings of a unit without which systemd does not start it (systemd.unit(5), systemd.exec(5)), and what must be there.
_OF_UNIT: Final = {
    **{f"{kind}PathExists": Holds.existing for kind in ("Condition", "Assert")},
    **{f"{kind}PathIsDirectory": Holds.directory for kind in ("Condition", "Assert")},
    **{f"{kind}FileNotEmpty": Holds.file for kind in ("Condition", "Assert")},
    **{f"{kind}FileIsExecutable": Holds.program for kind in ("Condition", "Assert")},
    "WorkingDirectory": Holds.directory,
}
#: Among the settings: the state of the kubelet's unit file.
UNIT_STATE: Final = "UnitFileState"
#: What daytwo itself writes to.
RECORDS: Final = "/var/lib/daytwo"


def kubelet_needs(kubelet: Kubelet, changed: Changed | None = None, argv: Iterable[str] | None = None) -> Needs:
    """What the next start of a kubelet needs: with its present files, or after a change of these files (then `argv` is its command line, if
    it is known). Raises FormatError, Refusal."""
    changed = dict(changed or {})
    if argv is None:
        service = kubelet_plan.KubeletEdit(kubelet, changed).service if changed else kubelet.service
        argv = [word.text for word in service.argv]
    words = tuple(argv)
    configuration = _configuration(kubelet, changed)
    read = _Values(words, configuration)
    minor = kubelet.process.minor
    found = {name: read.value(name, flag, default) for name, (flag, default) in _SETTINGS.items()}
    if found["failCgroupV1"] is None:
        found["failCgroupV1"] = minor is not None and minor >= _NO_CGROUP_V1_SINCE
    gates = {**(configuration.get("featureGates") or {}), **flags.effective_gates(words)}
    rootless = gates.get(_ROOTLESS) is True
    found[_ROOTLESS] = rootless
    found[UNIT_STATE] = kubelet.seen.unit.first(UNIT_STATE) if kubelet.seen.unit else ""
    paths = [*_paths(rows(KUBELET), read), *_of_unit(kubelet, changed)]
    if not rootless:
        paths.append(PathNeed(KUBELET, "the kubelet itself", _DEVICE, Holds.device, Stops.start))
    paths.append(PathNeed(RECORD, "the record of a change", RECORDS, Holds.written, Stops.start))
    # Only looked at: nothing names them.
    folder = next((one.path for one in paths if one.named_by == "--cert-dir"), "")
    root = next((one.path for one in paths if one.named_by == "--root-dir"), "")
    others = [*RESOLVERS, *([f"{folder}/kubelet.crt", f"{folder}/kubelet.key"] if folder else [])]
    others += [f"{root}/{name}" for name in PLAIN_CHECKPOINTS if root]
    paths += [PathNeed("", "", path, Holds.file, Stops.note) for path in others if path not in {one.path for one in paths}]
    endpoint = next((one.path for one in paths if one.named_by == "containerRuntimeEndpoint"), "")
    if not endpoint and minor is not None and minor >= _CONTAINERD_SINCE:
        endpoint = _CONTAINERD.removeprefix(_SCHEME)
        paths.append(PathNeed(KUBELET, "containerRuntimeEndpoint", endpoint, Holds.socket, Stops.start))
    provider, folder = (flags.last_flag(words, f"image-credential-provider-{name}") or "" for name in ("config", "bin-dir"))
    node_ip = flags.last_flag(words, "node-ip") or ""
    return Needs(
        kubelet.node_name,
        tuple(_usable(paths)),
        tuple(_ports(read)),
        TUNABLES,
        endpoint,
        found,
        minor,
        kubelet.unit_name,
        tuple(filter(None, node_ip.split(","))),
        dict(_reserved(read)),
        folder if _plain(provider) and _plain(folder) else "",
        provider if _plain(provider) and _plain(folder) else "",
        _keys(KUBELET, paths),
        dict(_checkpoints(read, root)),
        reaches=next((one.path for one in paths if one.named_by == "--kubeconfig" and _plain(one.path)), ""),
    )


def component_needs(component: Component, data: bytes | None = None) -> Needs:
    """What the next start of a component needs: with its present manifest, or with `data`. Raises FormatError."""
    data = component.data if data is None else data
    argv = manifest.container_argv(data, component.container)
    port = flags.last_flag(argv, "secure-port") or str(component.address[1])
    address = flags.last_flag(argv, "bind-address") or "0.0.0.0"  # noqa: S104 - the component's default
    # What it holds already is its own, whatever its process is by then.
    number = digits(port)
    new = number is not None and number != component.address[1] and manifest_parts.host_network(data)
    ports = (PortNeed(component.name, "--secure-port", number or 0, address),) if new else ()
    return replace(_of_manifest(component.name, component.node_name, data, component.container), ports=ports)


def _of_manifest(component: str, node_name: str, data: bytes, container: str) -> Needs:
    """The files and keys that a container's flags and its pod's volumes name, and the images of that pod. Raises FormatError."""
    given = any_flag.every(manifest.container_argv(data, container))
    paths: list[PathNeed] = []
    keys: list[KeyNeed] = []
    for row in rows(component):
        for value in given.get(row.flag, ()):
            # A certificate and its key: CERTIFICATE,KEY:NAMES.
            parts = value.split(":")[0].split(",") if row.flag == SNI else [value]
            places = [manifest_parts.place_of(data, container, part) if part.startswith("/") else None for part in parts]
            sources = [place.source for place in places if place is not None and place.source is not None]
            paths += [PathNeed(component, row.name, source, row.holds, row.stops, row.dates) for source in sources]
            if row.flag == SNI and len(sources) == 2:
                paths[-2] = replace(paths[-2], holds=Holds.certificates)
                keys.append(KeyNeed(KeyRow(component, row.name, row.name, SERVING_KEY), *sources))
    for name, path, kind in manifest_parts.host_paths(data):
        if kind in _TYPES:
            paths.append(PathNeed(component, f"volume {name} ({kind})", path, _TYPES[kind], Stops.start))
    images = tuple(ImageNeed(component, image, policy) for image, policy in manifest_parts.images(data) if _plain(image))
    return Needs(node_name, tuple(_usable(paths)), (), keys=(*_keys(component, paths), *keys), images=images)


def node_needs(kubelet: Kubelet, components: Iterable[Component] = ()) -> Needs | None:
    """What the next start of a kubelet, of these components of its node, and of its own etcd needs, with their present files; None if the
    kubelet's cannot be read, which others report."""
    try:
        found = kubelet_needs(kubelet)
    except (FormatError, Refusal):
        return None
    for component in components:
        with contextlib.suppress(FormatError):
            found = together(found, component_needs(component))
    if etcd := own_etcd(kubelet):
        with contextlib.suppress(FormatError):
            found = together(found, _of_manifest(ETCD, kubelet.node_name, etcd.data, etcd.container))
    return found


def together(first: Needs, *others: Needs) -> Needs:
    """The needs of a kubelet and of components of its node, or of two states of them, for one question. The first one's settings count."""
    every = (first, *others)
    return replace(
        first,
        paths=tuple(dict.fromkeys(path for one in every for path in one.paths)),
        ports=tuple(dict.fromkeys(port for one in every for port in one.ports)),
        keys=tuple(dict.fromkeys(key for one in every for key in one.keys)),
        images=tuple(dict.fromkeys(image for one in every for image in one.images)),
        cgroups={name: path for one in reversed(every) for name, path in one.cgroups.items()},
        addresses=tuple(dict.fromkeys(address for one in every for address in one.addresses)),
    )


def _keys(component: str, paths: Iterable[PathNeed]) -> tuple[KeyNeed, ...]:
    """The pairs of which both are named."""
    named = {one.named_by: one.path for one in _usable(paths)}
    pairs = ((row, named.get(row.certificate, ""), named.get(row.key, "")) for row in KEYS if row.component == component)
    return tuple(KeyNeed(row, certificate, key) for row, certificate, key in pairs if certificate and key)


def _checkpoints(read: _Values, root: str) -> Iterator[tuple[str, str]]:
    for name, flag in _CHECKPOINTS.items():
        field = drained.FIELD[name]
        if root and _plain(root):
            yield f"{root}/{name}", str(read.value(field, flag, "") or drained.policy({}, name))


class _Values:
    """The values of a kubelet: flags override its configuration (cmd/kubelet/app/server.go, NewKubeletCommand)."""

    def __init__(self, argv: tuple[str, ...], configuration: Mapping[str, Any]) -> None:
        self._argv, self._configuration = argv, configuration

    def value(self, field: str, flag: str, default: object) -> Any:
        switch = isinstance(default, bool)
        given = flags.last_flag(self._argv, flag, switch=switch) if flag else None
        if given is not None:
            return flags.parse_bool(given) if switch else given
        found = lookup(self._configuration, field) if field else None
        return default if found is None else found


def _configuration(kubelet: Kubelet, changed: Changed) -> dict[str, Any]:
    def content(path: str) -> bytes | None:
        return changed[path] if path in changed else kubelet.seen.data(path)

    main = content(kubelet.config_path) if kubelet.config_path else None
    return kubelet_config.merge(main, [data for path in kubelet.dropins(changed) if (data := content(path))])


def _paths(table: Iterable[FileRow], read: _Values) -> Iterator[PathNeed]:
    for row in table:
        value = str(read.value(row.field, row.flag, row.default) or "").removeprefix(_SCHEME)
        if row.flag == "lock-file" and value:
            value = posixpath.dirname(value)
        if value.startswith("/"):
            yield PathNeed(row.component, row.name, value, row.holds, row.stops, row.dates)


def _of_unit(kubelet: Kubelet, changed: Changed) -> Iterator[PathNeed]:
    """The programs that systemd must find to start the unit (systemd.service(5)). Its environment files were read already."""
    yield PathNeed(KUBELET, f"ExecStart= of {kubelet.unit_name}", kubelet.process.binary, Holds.program, Stops.start)
    needed: dict[str, list[PathNeed]] = {}
    for file in (kubelet.sources.fragment, *kubelet.sources.dropins):
        data = changed.get(file.path, file.data)
        for entry in unit.entries(unit.UnitFile(file.path, data)) if data is not None else ():
            words = entry.value.string.split()
            if (holds := _OF_UNIT.get(entry.key)) is not None:
                # An empty one takes back those before it; `|` makes one of several enough, `!` turns it round, `%` is a specifier.
                kept = needed.setdefault(entry.key, [])
                if not words or entry.key == "WorkingDirectory":
                    kept.clear()
                if words and words[0].startswith("/") and "%" not in words[0]:
                    kept.append(PathNeed(KUBELET, f"{entry.key}= of {file.path}", words[0], holds, Stops.start))
            # With a dash it may fail.
            if (entry.section, entry.key) == ("Service", "ExecStartPre") and words and "-" not in words[0][:3] and "%" not in words[0]:
                program = words[0].lstrip("@:+!")
                if program.startswith("/"):
                    yield PathNeed(KUBELET, f"ExecStartPre= of {file.path}", program, Holds.program, Stops.start)
    for kept in needed.values():
        yield from kept


def _ports(read: _Values) -> Iterator[PortNeed]:
    for field, flag, default, at, at_flag, usual in _PORTS:
        if field == "port" and read.value("enableServer", "enable-server", True) is False:
            continue
        if port := digits(str(read.value(field, flag, default))):
            yield PortNeed(KUBELET, field, port, str(read.value(at, at_flag, usual) or usual))


def _reserved(read: _Values) -> Iterator[tuple[str, str]]:
    """The cgroups that must be there, by their field (pkg/kubelet/cm: node_container_manager_linux.go,
    enforceNodeAllocatableCgroups; container_manager_linux.go, NewContainerManager)."""
    enforced = read.value("enforceNodeAllocatable", "enforce-node-allocatable", ["pods"])
    keys = enforced.split(",") if isinstance(enforced, str) else enforced
    for key, field, flag in (
        ("system-reserved", "systemReservedCgroup", "system-reserved-cgroup"),
        ("kube-reserved", "kubeReservedCgroup", "kube-reserved-cgroup"),
    ):
        name = str(read.value(field, flag, "") or "").strip("/")
        if name and _plain(name) and any(str(one).removesuffix("-compressible") == key for one in keys or ()):
            yield field, name
    root = str(read.value("cgroupRoot", "cgroup-root", "") or "").strip("/")
    if root and _plain(root) and read.value("cgroupsPerQOS", "cgroups-per-qos", True) is not False:
        yield "cgroupRoot", root


def _plain(path: str) -> bool:
    return not any(character in path for character in "\n\r\0")


def _usable(paths: Iterable[PathNeed]) -> Iterator[PathNeed]:
    """Paths that a line of a script can hold; a few hundred at most."""
    yield from [one for one in dict.fromkeys(paths) if _plain(one.path)][:400]
