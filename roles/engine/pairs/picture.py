"""What is known of a cluster's settings: the flags of its components, its kubelets' fields, its objects, its certificates. Pure.

A side of a pair that is not known is left out, and nothing is said of it. A value that is known not to be set is None.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from roles.engine.certificates import Material
from roles.engine.control_plane import Component
from roles.engine.editing import FlagChanges, FormatError, any_flag, manifest_parts
from roles.engine.kubelet import Kubelet, schema, settings
from roles.engine.kubelet.pending import with_fields
from roles.engine.kubelet.values import in_effect, lookup

KUBELET, ETCD = "kubelet", "etcd"
#: The place of what a cluster has once.
CLUSTER = "the cluster"


@dataclass(frozen=True)
class Server:
    """One control-plane component of one node. `flags`: its command line; `probes`: the ports that its manifest's probes ask; `places`:
    where the node has the files that its flags name, if its container has them at another path."""

    host: str
    component: str
    flags: Mapping[str, tuple[str, ...]]
    probes: tuple[int, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)

    def on_node(self, path: str) -> str:
        return self.places.get(path, path)


@dataclass(frozen=True)
class KubeletSide:
    """One kubelet. `name`: that of its Node object; `fields`: its effective configuration, nested; `flags`: its command line."""

    host: str
    name: str
    minor: int | None
    fields: Mapping[str, Any]
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        """A field; its default if it is not set (None: it has no constant one)."""
        found = lookup(self.fields, name)
        if found is None and self.minor is not None and (known := schema.fields(self.minor).get(name)) is not None:
            return known.default
        return found


@dataclass(frozen=True)
class Handshake:
    """What a kubelet serves, by the CA that an API server demands. `problem`: why that does not prove it ("": it does)."""

    where: str
    problem: str = ""


@dataclass(frozen=True)
class Picture:
    """`nodes`: the Node objects by name (None: not read); `objects`: other objects by their path in the API (None: there is none);
    `materials`: what the files of a host hold, by host and path; `authorities`: whom the kubeconfigs there trust; `handshakes`: by the name
    of the node and the path of the CA."""

    servers: tuple[Server, ...] = ()
    kubelets: tuple[KubeletSide, ...] = ()
    nodes: Mapping[str, Mapping[str, Any]] | None = None
    objects: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    materials: Mapping[tuple[str, str], Material] = field(default_factory=dict)
    authorities: Mapping[tuple[str, str], Material] = field(default_factory=dict)
    handshakes: Mapping[tuple[str, str], Handshake] = field(default_factory=dict)

    def of(self, component: str) -> list[Server]:
        return [one for one in self.servers if one.component == component]

    def by_place(self) -> dict[str, Mapping[str, Any]]:
        """The Node objects, by the host of their kubelet if it was observed, else by their name."""
        hosts = {one.name: one.host for one in self.kubelets}
        return {hosts.get(name, name): node for name, node in (self.nodes or {}).items()}

    def with_flags(self, host: str, component: str, changes: FlagChanges, manifest: bytes = b"", container: str = "") -> Picture:
        """The picture after a change of a component's flags (None: removed); `manifest`: as it is then."""

        def changed(one: Server) -> Server:
            if (one.host, one.component) != (host, component):
                return one
            flags = {name: values for name, values in {**one.flags, **changes}.items() if values is not None}
            return replace(one, flags=flags, places=_places(manifest, container, flags) if manifest else one.places)

        return replace(self, servers=tuple(map(changed, self.servers)))

    def with_settings(self, host: str, changes: Mapping[str, Any]) -> Picture:
        """The picture after a change of a kubelet's fields (dots between their parts; None: removed)."""
        return replace(
            self,
            kubelets=tuple(
                replace(one, fields=with_fields(one.fields, changes)) if changes and one.host == host else one for one in self.kubelets
            ),
        )


def server(component: Component) -> Server:
    """A running component as pairs see it."""
    flags = any_flag.every(component.process.argv)
    return Server(component.host, component.name, flags, component.probe_ports, _places(component.data, component.container, flags))


def _places(manifest: bytes, container: str, flags: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Those that the node has elsewhere; {} if the manifest cannot be read."""
    paths = {value for values in flags.values() for value in values if value.startswith("/")}
    try:
        found = manifest_parts.on_node(manifest, container, paths)
    except FormatError:
        return {}
    return {path: there for path, there in found.items() if path != there}


def etcd(host: str, argv: tuple[str, ...]) -> tuple[Server, ...]:
    """The etcd of a control-plane node, by the command line in its manifest ((): it has none)."""
    return (Server(host, ETCD, any_flag.every(argv)),) if argv else ()


def kubelet_side(found: Kubelet, names: Collection[str], running: Mapping[str, Any] | None = None) -> KubeletSide:
    """A kubelet as pairs see it, with the fields `names`: those of its /configz (`running`), else those of its files and flags."""
    argv = found.process.argv
    minor = found.minor if found.is_known else None
    fields: Mapping[str, Any] = found.configuration if running is None else running
    if running is None and minor is not None:
        fields = with_fields(fields, dict(_by_flags(minor, argv, names)))
    return KubeletSide(found.seen.host, found.node_name, minor, fields, any_flag.every(argv))


def _by_flags(minor: int, argv: tuple[str, ...], names: Iterable[str]) -> Iterable[tuple[str, Any]]:
    for name in names:
        known = schema.fields(minor).get(name)
        text = settings.on_flags(minor, known.flag, argv) if known is not None and known.flag else None
        if known is not None and text is not None and known.kind not in settings.SPECIAL_SYNTAX:
            yield name, settings.as_value(known.kind, known.flag or "", text)


# ---- the sides of a pair


@dataclass(frozen=True)
class Side:
    """One side of a pair: a setting of an `owner` (a component, or what has it), and where the picture has it. `names`: the flags or fields
    whose change touches it; `reads`: the objects by their path, that it needs; `files`: flags or fields that name files that it needs;
    `kubeconfig`: it needs to know whom its kubeconfig trusts."""

    owner: str
    names: tuple[str, ...]
    get: Callable[[Picture], dict[str, Any]]
    label: str
    reads: tuple[str, ...] = ()
    files: bool = False
    kubeconfig: bool = False
    live: bool = False

    def touched(self, before: Picture, after: Picture) -> set[str]:
        """The places where a change makes its value another one."""
        old, new = self.get(before), self.get(after)
        return {place for place, value in new.items() if place not in old or not _same(old[place], value)}


def _same(one: Any, other: Any) -> bool:
    return one == other or (not isinstance(one, Material) and in_effect(one, other))


def flag(component: str, name: str, default: str | None = None) -> Side:
    """The value of a flag; of several the last one counts."""

    def get(picture: Picture) -> dict[str, Any]:
        return {one.host: one.flags.get(name, (default,))[-1] for one in picture.of(component)}

    return Side(component, (name,), get, f"{component} --{name}")


def flags(component: str, *names: str) -> Side:
    """Flags together: one list that may be given in parts, or the values of several flags by name."""

    def get(picture: Picture) -> dict[str, Any]:
        return {one.host: _alone({name: _joined(one.flags, name) for name in names}) for one in picture.of(component)}

    return Side(component, names, get, f"{component} " + ", ".join(f"--{name}" for name in names))


def fields(*names: str) -> Side:
    """A field of each kubelet; of several fields their values by name."""

    def get(picture: Picture) -> dict[str, Any]:
        return {one.host: _alone({name: one.value(name) for name in names}) for one in picture.kubelets}

    return Side(KUBELET, names, get, f"{KUBELET} {', '.join(names)}")


def kubelet_flag(name: str) -> Side:
    def get(picture: Picture) -> dict[str, Any]:
        return {one.host: _joined(one.flags, name) for one in picture.kubelets}

    return Side(KUBELET, (f"--{name}",), get, f"{KUBELET} --{name}")


def _joined(flags: Mapping[str, tuple[str, ...]], name: str) -> str | None:
    return ",".join(flags[name]) if name in flags else None


def _alone(values: dict[str, Any]) -> Any:
    """The value of a single name, or all values by name."""
    return values if len(values) > 1 else next(iter(values.values()))


def node(label: str, value: Callable[[Mapping[str, Any]], Any]) -> Side:
    """Something of each Node object."""
    return Side("Node", (), lambda picture: {place: value(one) for place, one in picture.by_place().items()}, f"Node {label}", ("nodes",))


def count(label: str, value: Callable[[Picture], int | None], *reads: str) -> Side:
    """How many of something the cluster has; None if that is not known."""
    return Side(CLUSTER, (), lambda picture: _once(value(picture)), label, reads)


def of_object(path: str, label: str, value: Callable[[Mapping[str, Any]], Any]) -> Side:
    """Something of an object in the API, which may not exist."""

    def get(picture: Picture) -> dict[str, Any]:
        found = picture.objects.get(path)
        return {} if found is None else {CLUSTER: value(found)}

    return Side("object", (), get, label, (path,))


def _once(value: object) -> dict[str, Any]:
    return {} if value is None else {CLUSTER: value}


def named(component: str, name: str) -> Side:
    """What the file holds that a component's flag or a kubelet's field names; None if it names none."""

    def get(picture: Picture) -> dict[str, Any]:
        found = {host: _held(picture, host, paths) for host, paths in _paths(picture, component, name)}
        return {host: held for host, (known, held) in found.items() if known}

    return Side(component, (name,), get, f"{component} {'' if component == KUBELET else '--'}{name}", files=True)


def _paths(picture: Picture, owner: str, name: str) -> list[tuple[str, list[str]]]:
    """By host, the files of the node that a flag of a component, or a field of a kubelet, names."""
    if owner == KUBELET:
        return [(one.host, [str(path)] if (path := one.value(name)) else []) for one in picture.kubelets]
    return [(one.host, [one.on_node(path) for path in one.flags.get(name, ())]) for one in picture.of(owner)]


def _held(picture: Picture, host: str, paths: list[str]) -> tuple[bool, Material | None]:
    """Whether it is known, and what these files hold together; None without a file."""
    found = [picture.materials.get((host, path)) for path in paths]
    known = [one for one in found if one is not None]
    return len(known) == len(found), Material.joined(known) if known else None


def trusted(owner: str) -> Side:
    """Whom a component or a kubelet trusts that looks for the API: the CA in its kubeconfig."""

    def get(picture: Picture) -> dict[str, Any]:
        places = {place for place in _kubeconfigs(picture, owner) if place in picture.authorities}
        return {host: picture.authorities[host, path] for host, path in places}

    return Side(owner, ("--kubeconfig" if owner == KUBELET else "kubeconfig",), get, f"{owner} CA in --kubeconfig", kubeconfig=True)


def _kubeconfigs(picture: Picture, owner: str) -> set[tuple[str, str]]:
    if owner == KUBELET:
        return {(one.host, path) for one in picture.kubelets for path in one.flags.get("kubeconfig", ())[-1:]}
    return {(host, path) for host, paths in _paths(picture, owner, "kubeconfig") for path in paths[-1:]}


def kubeconfigs_of(picture: Picture, sides: Iterable[Side]) -> set[tuple[str, str]]:
    """Host and path of each kubeconfig that these sides need."""
    return _readable(place for side in sides if side.kubeconfig for place in _kubeconfigs(picture, side.owner))


def served(owner_flag: str, component: str) -> Side:
    """The kubelets' serving certificates by the CA that a component's flag names: the handshakes, by the names of nodes."""

    def get(picture: Picture) -> dict[str, Any]:
        authorities = {one.flags[owner_flag][-1] for one in picture.of(component) if owner_flag in one.flags}
        hosts = {one.name: one.host for one in picture.kubelets}
        return {
            hosts.get(name, name): {path: found for (whose, path), found in picture.handshakes.items() if whose == name}
            for name, path in picture.handshakes
            if path in authorities
        }

    return Side(KUBELET, (), get, f"{KUBELET} serving certificate", ("nodes",), live=True)


def files_of(picture: Picture, sides: Iterable[Side]) -> set[tuple[str, str]]:
    """Host and path of each file that these sides need."""
    named = ((side.owner, name) for side in sides if side.files for name in side.names)
    return _readable((host, path) for owner, name in named for host, paths in _paths(picture, owner, name) for path in paths)


def _readable(places: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(host, path) for host, path in places if path.startswith("/") and path.isprintable()}
