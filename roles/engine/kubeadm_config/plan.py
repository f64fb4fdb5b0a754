"""Which settings of a run all nodes share, what kubeadm's ConfigMaps must have to keep them, and what does not survive an upgrade. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.control_plane import COMPONENTS
from roles.engine.editing import ABSENT, FormatError, cluster_configuration, flags, kubelet_config
from roles.engine.harmless import one_line
from roles.engine.kube.fields import at
from roles.engine.kubeadm_config.stored import CLUSTER, KEYS, KUBELET, NAMESPACE, StoredSettings
from roles.engine.kubelet.values import same_setting
from roles.engine.transaction import Refusal, mask_manifest, mask_text

#: The path of a setting: ("featureGates", NAME) of any component, or the field of a KubeletConfiguration, part by part. Of a control-plane
#: component also ("extraArgs", FLAG), a list of values, and ("extraVolumes", PATH), True for a file that is mounted.
ConfigMapPath = tuple[str, ...]
GATES, ARGUMENTS, VOLUMES = "featureGates", "extraArgs", "extraVolumes"
_EXTRAS = (ARGUMENTS, VOLUMES)
_KUBELET = "kubelet"
_HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def as_given(configuration: Mapping[str, Any], settings: Mapping[ConfigMapPath, Any]) -> Mapping[ConfigMapPath, Any]:
    """The settings unchanged, whatever the rest of the configuration is."""
    return settings


@dataclass(frozen=True)
class ComponentDesired:
    """One component of one node of a run, with the settings in its data (None: absent). `by_kubeadm`: kubeadm made it, and rewrites it from
    its ConfigMaps. `write` turns settings into fields of a KubeletConfiguration whose current content is `configuration`."""

    host: str
    node: str
    component: str
    by_kubeadm: bool
    settings: Mapping[ConfigMapPath, Any]
    write: Callable[[Mapping[str, Any], Mapping[ConfigMapPath, Any]], Mapping[ConfigMapPath, Any]] = as_given

    @property
    def map(self) -> str:
        return KUBELET if self.component == _KUBELET else CLUSTER


@dataclass(frozen=True)
class Shared:
    """`wanted`: by component, the settings that all its nodes share; `notes`: what does not survive an upgrade, why, and what to do."""

    wanted: Mapping[str, Mapping[ConfigMapPath, Any]]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ConfigMapField:
    """One value of a ConfigMap's YAML that changes; None: not set. In kubeadm-config the path is (component, gate),
    (component, "extraArgs", flag) or (component, "extraVolumes", path)."""

    path: ConfigMapPath
    before: Any
    after: Any

    @property
    def recorded(self) -> dict[str, Any]:
        return {"path": list(self.path), "before": self.before, "after": self.after}

    def __str__(self) -> str:
        return mask_text(f"{'.'.join(self.path)}={shown(self.after)}")


@dataclass(frozen=True)
class Edited:
    """The YAML after an edit, and the changed fields: none if it had these values already."""

    after: bytes
    fields: tuple[ConfigMapField, ...]


#: From the current YAML to the edited one. Raises FormatError or Refusal.
ConfigMapEdit = Callable[[bytes], Edited]


def shown(value: Any) -> str:
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {shown(entry)}" for key, entry in value.items()) + "}"
    return str(value)


# ---- shared settings


def share(members: Sequence[ComponentDesired], nodes: Mapping[str, bool], lasting: StoredSettings) -> Shared:
    """The settings that all nodes of a component share. `nodes` are the cluster's, by name: True for a control-plane node.

    If a node with the component is not in the run, no setting counts as shared: daytwo has not read that node. Nodes that kubeadm did not
    make must be in the run too, but their own values do not count.
    """
    wanted: dict[str, dict[ConfigMapPath, Any]] = {}
    notes: list[str] = []
    for component in dict.fromkeys(member.component for member in members):
        own = [member for member in members if member.component == component]
        made = [member for member in own if member.by_kubeadm]
        there = {member.node for member in own}
        missing = sorted(node for node, control_plane in nodes.items() if (control_plane or component == _KUBELET) and node not in there)
        paths = dict.fromkeys(path for member in made for path in member.settings)
        alike = {path: _alike(made, path) for path in paths}
        common = {path: made[0].settings[path] for path, same in alike.items() if same and not missing}
        if common:
            wanted[component] = common
        left = [path for path in paths if path not in common]
        if missing:
            left = [path for path in left if not (alike[path] and _kept(lasting, component, path, made[0].settings[path]))]
            notes += [_narrow(component, made, left, missing)] if left else []
        elif left:
            notes += _per_node(component, made, left, lasting)
    return Shared(wanted, tuple(notes))


def _alike(made: Sequence[ComponentDesired], path: ConfigMapPath) -> bool:
    return all(path in member.settings and _same(member.settings[path], made[0].settings.get(path)) for member in made)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return list(one) == list(other)
    return one is other if one is None or other is None else same_setting(one, other)


def _kept(lasting: StoredSettings, component: str, path: ConfigMapPath, value: Any) -> bool:
    """The ConfigMap has this value already."""
    if path[0] == GATES and len(path) == 2:
        return _same(lasting.gates.get(component, {}).get(path[1]), value)
    if path[0] in _EXTRAS and component != _KUBELET:
        return _same(_extra(lasting.extras.get(component), path), value)
    return component == _KUBELET and _same(at(lasting.kubelet, path), value)


def _extra(extras: cluster_configuration.Extras | None, path: ConfigMapPath) -> Any:
    """A flag's values, or whether a file is mounted; None if there is nothing."""
    if extras is None:
        return None
    if path[0] == ARGUMENTS:
        values = extras.flags.get(path[1])
        return None if values is None else list(values)
    return path[1] in extras.files or None


def name_of(path: ConfigMapPath) -> str:
    return path[1] if path[0] in (GATES, *_EXTRAS) and len(path) == 2 else ".".join(path)


def _names(member: ComponentDesired, paths: Iterable[ConfigMapPath]) -> str:
    return ", ".join(f"{name_of(path)}={shown(member.settings[path])}" for path in paths if path in member.settings)


def _narrow(component: str, made: Sequence[ComponentDesired], paths: Sequence[ConfigMapPath], missing: Sequence[str]) -> str:
    named = dict.fromkeys(f"{name_of(path)}={shown(member.settings[path])}" for path in paths for member in made if path in member.settings)
    hosts = ", ".join(member.host for member in made)
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"{made[0].map} is not changed, since {', '.join(missing)} {verb} not in this run ({component}): {', '.join(named)} does not"
        f" survive the next `kubeadm upgrade` of {hosts}. To write it there, run this for all nodes: without nodes=, --limit or components="
    )


def _per_node(component: str, made: Sequence[ComponentDesired], paths: Sequence[ConfigMapPath], lasting: StoredSettings) -> Iterator[str]:
    """Each different patch once, with its hosts."""
    patches: dict[tuple[str, str], list[str]] = {}
    for member in made:
        own = {path: member.settings[path] for path in paths if path in member.settings}
        own = {path: value for path, value in own.items() if not _kept(lasting, component, path, value)}
        if fields := member.write(lasting.kubelet, own) if own else {}:
            patches.setdefault((_names(member, own), _patch(component, fields)), []).append(member.host)
    for (names, patch), hosts in patches.items():
        where = (
            f"{', '.join(hosts)} {component}: {names} does not survive the next `kubeadm upgrade`: it is per node, and {made[0].map} is for"
            " all nodes"
        )
        if not patch:
            yield f"{where}; if the upgrade sets it, run this again to remove it"
            continue
        name = "kubeletconfiguration+merge.yaml" if component == _KUBELET else f"{component}+json.yaml"
        body = "\n".join(f"    {line}" for line in patch.splitlines())
        yield f"{where}; upgrade with a patch there: `kubeadm upgrade node --patches DIR` with this as DIR/{name}:\n{body}"


def _patch(component: str, settings: Mapping[ConfigMapPath, Any]) -> str:
    """A kubeadm patch (cmd/kubeadm/app/util/patches): a JSON merge patch for the kubelet's configuration, one of JSON operations for a
    static pod, whose arguments are a list. "" for an empty patch."""
    if component != _KUBELET:
        given = {path[1]: value for path, value in settings.items() if path[0] == ARGUMENTS and value is not None}
        if given:
            words = [f"--{name}={value}" for name, values in given.items() for value in values]
            return "".join(f"- op: add\n  path: /spec/containers/0/command/-\n  value: {json.dumps(word)}\n" for word in words)
        if any(path[0] in _EXTRAS for path in settings):
            return ""
        gates = ",".join(f"{path[1]}={shown(value)}" for path, value in settings.items() if value is not None)
        # A second --feature-gates flag adds to the first.
        return f"- op: add\n  path: /spec/containers/0/command/-\n  value: --feature-gates={gates}\n" if gates else ""
    fields: dict[ConfigMapPath, Any] = {path: None if value is ABSENT else value for path, value in settings.items()}
    return kubelet_config.edit_fields(_HEAD.encode(), fields).decode() if fields else ""


# ---- edits


def edit(name: str, data: bytes, wanted: Mapping[ConfigMapPath, Any]) -> Edited:
    """One ConfigMap's YAML with the wanted values (None: not set). Raises FormatError."""
    if name == CLUSTER:
        return _edit_cluster(data, wanted)
    content = kubelet_config.read(data)
    fields = tuple(field for path, value in wanted.items() for field in _fields(path, at(content, path), value))
    values = {field.path: ABSENT if field.after is None else field.after for field in fields}
    return Edited(kubelet_config.edit_fields(data, values), fields)


def _edit_cluster(data: bytes, wanted: Mapping[ConfigMapPath, Any]) -> Edited:
    """Gates, flags and mounted files of components; the path begins with the component."""
    now = cluster_configuration.read(data)
    gates = {component: extras.gates for component, extras in now.items()}
    fields = []
    for path, value in wanted.items():
        before = gates.get(path[0], {}).get(path[1]) if len(path) == 2 else _extra(now.get(path[0]), path[1:])
        fields += [] if _same(before, value) else [ConfigMapField(path, before, value)]
    for component in dict.fromkeys(field.path[0] for field in fields):
        own = {field.path[1:]: field.after for field in fields if field.path[0] == component}
        changes = {path[1]: None if value is None else tuple(value) for path, value in own.items() if path[0] == ARGUMENTS}
        if gated := {path[0]: value for path, value in own.items() if len(path) == 1}:
            changes[flags.FEATURE_GATES] = now[component].with_gates(gated)
        mounts = {path[1]: value is True for path, value in own.items() if path[0] == VOLUMES}
        data = cluster_configuration.edit(data, component, changes, mounts)
    return Edited(data, tuple(fields))


def _fields(path: ConfigMapPath, before: Any, after: Any) -> Iterator[ConfigMapField]:
    """The fields that differ. A map that stays a map is compared key by key, so that the keys of others do not count."""
    if isinstance(before, Mapping) and isinstance(after, Mapping) and before and after:
        for key in dict.fromkeys([*before, *after]):
            yield from _fields((*path, key), before.get(key), after.get(key))
    elif not _same(before, after):
        yield ConfigMapField(path, before, after)


def editor(name: str, wanted: Mapping[str, Mapping[ConfigMapPath, Any]], members: Sequence[ComponentDesired]) -> ConfigMapEdit:
    """The edit that writes the shared settings (`wanted` of `share`) to a ConfigMap."""
    if name == CLUSTER:
        settings = {
            (component, *(path[1:] if path[0] == GATES else path)): value
            for component, paths in wanted.items()
            if component != _KUBELET
            for path, value in paths.items()
        }
        return lambda data: edit(CLUSTER, data, settings)
    of_kubelet = wanted.get(_KUBELET, {})
    write = next((member.write for member in members if member.component == _KUBELET and member.by_kubeadm), as_given)

    def of_kubelets(data: bytes) -> Edited:
        fields = write(kubelet_config.read(data), of_kubelet)
        return edit(KUBELET, data, {path: None if value is ABSENT else value for path, value in fields.items()})

    return of_kubelets


def diff(name: str, before: bytes, after: bytes) -> str:
    """A unified diff, secrets masked."""
    where = f"ConfigMap {NAMESPACE}/{name}: {KEYS[name]}"
    old, new = (mask_manifest(data.decode("utf-8", "backslashreplace")).splitlines() for data in (before, after))
    return "\n".join(difflib.unified_diff(old, new, where, where, lineterm=""))


# ---- undoing


def undoing(records: Sequence[Sequence[Mapping[str, Any]]]) -> dict[ConfigMapPath, tuple[Any, tuple[Any, ...]]]:
    """From the fields of the records to undo, newest first: by path the value to restore, and all values that daytwo found or wrote."""
    found: dict[ConfigMapPath, tuple[Any, tuple[Any, ...]]] = {}
    for fields in records:
        for field in fields:
            path = tuple(map(str, field["path"]))
            ours = found.get(path, (None, ()))[1]
            found[path] = (field["before"], (*ours, field["before"], field["after"]))
    return found


def _refuse_unwritable(name: str, fields: Mapping[ConfigMapPath, tuple[Any, tuple[Any, ...]]]) -> None:
    """A record is no ground for a value that daytwo never writes there. Raises Refusal."""
    for path, (value, _) in fields.items():
        if name == KUBELET:
            fine = bool(path) and path[0] not in ("apiVersion", "kind")
        else:
            kind = path[1] if len(path) == 3 else GATES
            fine = name == CLUSTER and path[0] in COMPONENTS and len(path) in (2, 3) and (value is None or _FITS.get(kind, _never)(value))
        if not fine:
            shown_path = one_line(".".join(path))
            raise Refusal(
                f"{NAMESPACE}/{one_line(name)}",
                f"the record names {shown_path}={shown(value)}, which no run of daytwo sets",
                "undo it by hand",
            )


def _never(_: Any) -> bool:
    return False


#: What a value may be, by the kind of its setting.
_FITS: Mapping[str, Callable[[Any], bool]] = {
    GATES: lambda value: isinstance(value, bool),
    ARGUMENTS: lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    VOLUMES: lambda value: value is True,
}


def undo(name: str, fields: Mapping[ConfigMapPath, tuple[Any, tuple[Any, ...]]], force: bool) -> ConfigMapEdit:
    """The edit that restores values. It raises Refusal if someone else changed one since, unless `force`. Raises Refusal for a value that
    daytwo never writes."""
    _refuse_unwritable(name, fields)

    def restore(data: bytes) -> Edited:
        now = edit(name, data, dict.fromkeys(fields))  # for the current values: `before` of its fields
        found = {field.path: field.before for field in now.fields}
        foreign = [
            f"{'.'.join(path)} is {shown(found.get(path))}, and daytwo set it to {shown(ours[1])}"
            for path, (_, ours) in fields.items()
            if not any(_same(found.get(path), value) for value in ours)
        ]
        if foreign and not force:
            raise Refusal(
                f"{NAMESPACE}/{name}",
                f"changed by someone else since: {'; '.join(foreign)}",
                "undo that first, or overwrite it with --data force=true",
            )
        return edit(name, data, {path: before for path, (before, _) in fields.items()})

    return restore


__all__ = [
    "ComponentDesired",
    "ConfigMapEdit",
    "ConfigMapField",
    "ConfigMapPath",
    "Edited",
    "FormatError",
    "Shared",
    "diff",
    "edit",
    "editor",
    "share",
    "undo",
    "undoing",
]
