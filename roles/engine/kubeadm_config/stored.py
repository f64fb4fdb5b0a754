"""What kubeadm keeps for its next upgrade, and for nodes that join: the ConfigMaps kubeadm-config and kubelet-config.

`kubeadm upgrade` rewrites a node's manifests from kubeadm-config and its kubelet's configuration from kubelet-config, whatever the files
contain (cmd/kubeadm/app/cmd/phases/upgrade, cmd/kubeadm/app/constants/constants.go). Pure except `read`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from roles.engine.api import GateMetric
from roles.engine.bridge import at_once, whole
from roles.engine.control_plane import Component
from roles.engine.editing import FormatError, cluster_configuration, kubelet_config
from roles.engine.kube.fields import meta_of
from roles.engine.kubelet import Kubelet
from roles.engine.kubelet.values import in_effect, shown

CLUSTER: Final = "kubeadm-config"
KUBELET: Final = "kubelet-config"
NAMESPACE: Final = "kube-system"
#: The key in the data of each ConfigMap that holds its YAML.
KEYS: Final = {CLUSTER: "ClusterConfiguration", KUBELET: "kubelet"}
_NAME = re.compile(r"""^(clusterName|controlPlaneEndpoint): *["']?([^\s"'#]{1,260})["']? *$""", re.MULTILINE)
#: Fields that kubeadm sets for each node separately (cmd/kubeadm/app/componentconfigs/kubelet.go; instance-config.yaml since 1.34).
_PER_NODE = frozenset({"apiVersion", "kind", "featureGates", "containerRuntimeEndpoint", "resolvConf"})


@dataclass(frozen=True)
class ConfigMap:
    """One of the two ConfigMaps as it was read; `text` is None if it lacks its key."""

    name: str
    text: str | None
    uid: str
    version: str

    @property
    def data(self) -> bytes:
        return (self.text or "").encode()


def path_of(name: str) -> str:
    """The API path of a ConfigMap of kubeadm."""
    return f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"


@dataclass(frozen=True)
class StoredSettings:
    """The settings that kubeadm keeps: `gates` by component (kube-apiserver, ..., kubelet), `kubelet` the fields of its
    KubeletConfiguration; `extras`: by component what kubeadm adds to its pod; `maps`: the existing ConfigMaps by name; `problems`: by
    name, why a ConfigMap cannot be read."""

    maps: Mapping[str, ConfigMap] = field(default_factory=dict)
    gates: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    extras: Mapping[str, cluster_configuration.Extras] = field(default_factory=dict)

    @property
    def by_kubeadm(self) -> bool:
        """True for a cluster that kubeadm made and upgrades."""
        return CLUSTER in self.maps

    @property
    def names(self) -> dict[str, str]:
        """What names the cluster, as far as it is plainly written: clusterName, controlPlaneEndpoint."""
        return dict(_NAME.findall((self.maps[CLUSTER].text if self.by_kubeadm else None) or ""))


@dataclass(frozen=True)
class Found:
    """One component of a node that kubeadm made: the gates, or configuration fields, in its files, and in its running process (None:
    not known)."""

    host: str
    component: str
    files: Mapping[str, Any]
    process: Mapping[str, Any] | None = None


#: A node's kubelet and components, and the gates that they run with, as far as known.
NodeNow = tuple[Kubelet, Mapping[str, Component], Mapping[str, Mapping[str, GateMetric]]]


def written_by_kubeadm(nodes: Iterable[NodeNow]) -> tuple[list[Found], list[Found]]:
    """The gates, and the kubelets' fields, in the files that the next `kubeadm upgrade` writes on the nodes that kubeadm made: the
    manifests and the kubelet's configuration file, not its drop-ins and flags (cmd/kubeadm/app/phases/kubelet/config.go,
    WriteConfigToDisk; phases/controlplane/manifests.go)."""
    gates, fields = [], []
    for kubelet, components, running in nodes:
        if kubelet.style != "kubeadm" or kubelet.config_path is None:
            continue
        host, main = kubelet.seen.host, kubelet.seen.data(kubelet.config_path) or b""
        files = {"kubelet": kubelet_config.gates(main)}
        for name, component in components.items():
            # Gates that cannot be read have a finding of their own.
            with suppress(FormatError):
                files |= {name: component.gates} if component.file.path else {}
        for name, set_to in files.items():
            process = {gate: one.enabled for gate, one in running[name].items()} if running.get(name) else None
            gates.append(Found(host, name, set_to, process))
        fields.append(Found(host, "kubelet", kubelet_config.read(main)))
    return gates, fields


@dataclass(frozen=True)
class Difference:
    """A setting that differs between kubeadm's ConfigMap, a node's files and its running process. None: not set there; `process` is also
    None if it is not known or not compared. No Finding: a plan writes some of them, and status shows them as a table."""

    host: str
    component: str
    setting: str
    lasting: Any
    files: Any
    process: Any = None

    @property
    def source(self) -> str:
        return KUBELET if self.component == "kubelet" else CLUSTER

    def __str__(self) -> str:
        text = f"{self.host} {self.component}: {self.setting} is {shown(self.lasting)} in {self.source}, {shown(self.files)} in its files"
        if self.process is not None:
            text += f", {shown(self.process)} in the process"
        return text


def read_stored(find: Callable[[str], Mapping[str, Any] | None]) -> StoredSettings:
    """Read both ConfigMaps at the same time. `find` returns the object at a path, or None. Raises what `find` raises."""
    found = whole(dict(zip(KEYS, at_once(partial(find, path_of(name)) for name in KEYS), strict=True)))
    return parse([item for item in found.values() if item is not None])


def config_map(item: Mapping[str, Any]) -> ConfigMap:
    """A ConfigMap from the API's JSON."""
    meta = meta_of(item)
    name = str(meta.get("name"))
    text = (item.get("data") or {}).get(KEYS.get(name, ""))
    return ConfigMap(name, None if text is None else str(text), str(meta.get("uid", "")), str(meta.get("resourceVersion", "")))


def parse(items: Iterable[Mapping[str, Any]]) -> StoredSettings:
    """The settings in ConfigMaps, from the API's JSON. Pure."""
    maps = {found.name: found for found in map(config_map, items)}
    gates: dict[str, Mapping[str, bool]] = {}
    kubelet: dict[str, Any] = {}
    problems: dict[str, str] = {}
    extras: dict[str, cluster_configuration.Extras] = {}
    for name, found in maps.items():
        try:
            if found.text is None:
                raise FormatError(f"has no key {KEYS[name]}", way_out="restore it")
            if name == CLUSTER:
                read = cluster_configuration.read(found.data)
                gates |= {component: one.gates for component, one in read.items()}
                extras |= read
            else:
                gates["kubelet"] = kubelet_config.gates(found.data)
                kubelet = kubelet_config.read(found.data)
        except FormatError as error:
            problems[name] = str(error.in_file(f"ConfigMap {NAMESPACE}/{name}"))
    return StoredSettings(maps, gates, kubelet, problems, extras)


def gate_differences(lasting: StoredSettings, found: Iterable[Found]) -> list[Difference]:
    """The gates that differ between ConfigMap, files and process. `files` and `process` are gates by name; a process reports all its gates,
    so only those count that the ConfigMap or the files set."""
    return [difference for one in found if one.component in lasting.gates for difference in _gates(lasting.gates[one.component], one)]


def _gates(lasting: Mapping[str, bool], found: Found) -> Iterator[Difference]:
    for name in sorted({*lasting, *found.files}):
        kept, filed = lasting.get(name), found.files.get(name)
        running = (found.process or {}).get(name)
        if kept != filed or (running is not None and filed is not None and running != filed):
            yield Difference(found.host, found.component, name, kept, filed, running)


def kubelet_differences(lasting: StoredSettings, found: Iterable[Found]) -> list[Difference]:
    """The fields that differ between kubelet-config and the files of kubelets; `files` are the merged fields of their configuration.

    Not compared: gates (see above), and fields that kubeadm sets for each node separately. A field that is 0 or empty counts as not set.
    """
    if KUBELET in lasting.problems or KUBELET not in lasting.maps:
        return []
    kept = dict(_leaves(lasting.kubelet))
    differences: list[Difference] = []
    for one in found:
        files = dict(_leaves(one.files))
        differences += [
            Difference(one.host, "kubelet", name, kept.get(name), files.get(name))
            for name in sorted({*kept, *files})
            if name.partition(".")[0] not in _PER_NODE and not in_effect(kept.get(name), files.get(name))
        ]
    return differences


def _leaves(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
