"""What a kubelet's configuration may contain: its fields by minor release, their types, and the flags that set the same.

The table is fields.json in this folder, which names its sources. A kubelet first reads its configuration file strictly. If that fails,
it reads the file leniently, and ignores an unknown field with a line in its log (cmd/kubelet/app/server.go;
pkg/kubelet/kubeletconfig/util/codec). A value of a wrong type stops it. Both are refused here.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from roles.engine.bounds import read_json
from roles.engine.kube.amounts import parse_quantity
from roles.engine.kube.times import parse_duration
from roles.engine.kubelet.thresholds import parse_reclaim, parse_threshold

OLDEST: Final = 21
NEWEST: Final = 37

# pkg/kubelet/cm, parsePercentage.
_PERCENT = re.compile(r"(100|[0-9]{1,2})%")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})")
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "uint32": (0, 2**32 - 1)}


@dataclass(frozen=True)
class KubeletField:
    """One field of KubeletConfiguration v1beta1, as one minor release has it.

    `path` is dotted, with `[]` for the items of a list of objects ("registerWithTaints[].key"). `kind` is one of string, bool, int32,
    int64, uint32, float, duration (text such as "1m30s"), duration_or_int (or nanoseconds), quantity (text or number), time, object, and
    map[X] (from strings) or list[X] of these. `text`: how a string, or each string in a map, is parsed later (quantity, duration,
    percent). `keys`: those a map may have. `default`: what the kubelet sets if the field is missing (Linux); None if it sets nothing, or
    nothing constant. `flag`: the one that sets the same field. `useless`: it no longer has any effect.
    """

    path: str
    kind: str
    since: int
    until: int | None
    values: tuple[str, ...] = ()
    text: str | None = None
    keys: tuple[str, ...] = ()
    default: Any = None
    flag: str | None = None
    useless: bool = False


@dataclass(frozen=True)
class KubeletFlag:
    """One flag of the kubelet, without its dashes. `kind`: string, bool, int32, int64, float, duration, list or map. `field`: the path of
    the field it sets, None if the configuration has none."""

    name: str
    kind: str
    field: str | None

    @property
    def switch(self) -> bool:
        """It needs no value, and never takes the next word as its value (roles.engine.editing.flags.find)."""
        return self.kind == "bool"


@dataclass(frozen=True)
class FieldProblem:
    """Why a desired value is refused. `path` as it is written in the data, with the number of a list's item in brackets. No Finding:
    it knows no file and no host yet, which the audit adds."""

    path: str
    value: object
    rule: str
    way_out: str | None = None
    #: The name that was probably meant.
    meant: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}{'; ' + self.way_out if self.way_out else ''}"


@dataclass(frozen=True)
class More:
    """A field whose change needs more than a restart of the kubelet, and more than a drained node (drained.py).

    `refused`: the change would break something, or could not be proven or undone; else it works, but not for everything at once, which
    is a warning.
    """

    path: str
    reason: str
    way_out: str
    refused: bool = True


# ---- the table


@cache
def _table() -> dict[str, Any]:
    text = resources.files(__package__ or "roles.engine.kubelet").joinpath("fields.json").read_text(encoding="utf-8")
    table: dict[str, Any] = read_json(text)
    return table


def _at(steps: list[tuple[int, Any]], minor: int) -> Any:
    """The value at a minor: that of the last step up to it."""
    return next((value for since, value in reversed(steps) if since <= minor), None)


def _known(minor: int) -> None:
    if not OLDEST <= minor <= NEWEST:
        raise LookupError(f"the fields of a kubelet 1.{minor} are not known: the table has 1.{OLDEST} to 1.{NEWEST}")


@cache
def fields(minor: int) -> Mapping[str, KubeletField]:
    """Every field of a minor release (36 for 1.36) by its path, nested ones too. Raises LookupError for a minor not in the table."""
    _known(minor)
    by_field: dict[str, str] = {}
    for flag in flags(minor).values():
        # Two flags set one field if the older one was kept as `experimental-`.
        if flag.field and not (flag.field in by_field and flag.name.startswith("experimental-")):
            by_field[flag.field] = flag.name
    found = {}
    for path, entry in _table()["fields"].items():
        since = entry["kind"][0][0]
        if since <= minor <= entry.get("to", minor):
            found[path] = KubeletField(
                path,
                _at(entry["kind"], minor),
                since,
                entry.get("to"),
                tuple(_at(entry.get("values", []), minor) or ()),
                entry.get("text"),
                tuple(entry.get("keys", ())),
                _at(entry.get("default", []), minor),
                by_field.get(path),
                minor >= entry.get("useless", NEWEST + 1),
            )
    return MappingProxyType(found)


@cache
def flags(minor: int) -> Mapping[str, KubeletFlag]:
    """Every flag of a minor release by its name. Raises LookupError for a minor that is not in the table."""
    _known(minor)
    return MappingProxyType(
        {
            name: KubeletFlag(name, entry["kind"], _at(entry.get("field", []), minor))
            for name, entry in _table()["flags"].items()
            if entry.get("from", OLDEST) <= minor <= entry.get("to", minor)
        }
    )


@cache
def switches() -> frozenset[str]:
    """The names of all boolean flags of all minors in the table. They never take the next word as their value."""
    return frozenset(name for minor in range(OLDEST, NEWEST + 1) for name, flag in flags(minor).items() if flag.switch)


def flag_for(minor: int, path: str) -> str | None:
    """The flag, without dashes, that sets a field; None if there is no such flag or field."""
    found = fields(minor).get(path)
    return found.flag if found else None


def field_for_flag(minor: int, flag: str) -> str | None:
    """The path of the field that a flag (without dashes) sets; None if there is no such field or flag."""
    found = flags(minor).get(flag.replace("_", "-"))
    return found.field if found else None


# ---- checks


def check(minor: int, wanted: Mapping[str, object]) -> list[FieldProblem]:
    """Every reason why a kubelet of this minor would refuse, or silently ignore, a part of a desired configuration.

    `wanted` is nested as in the configuration file. An empty list: it decodes strictly. Raises LookupError for a minor that is not in the
    table.
    """
    return list(_object(minor, wanted, "", ""))


def _object(minor: int, wanted: Mapping[str, object], path: str, shown: str) -> Iterator[FieldProblem]:
    """`path` in the table, `shown` as the operator writes it; both empty at the top."""
    for name, value in wanted.items():
        here, written = (f"{path}.{name}", f"{shown}.{name}") if path else (str(name), str(name))
        # A dot within a name does not address a nested field.
        known = fields(minor).get(here) if isinstance(name, str) and "." not in name else None
        if known is None:
            yield _unknown(minor, path, str(name), written, value)
        else:
            yield from _value(minor, known, known.kind, value, here, written)


def _unknown(minor: int, parent: str, name: str, shown: str, value: object) -> FieldProblem:
    path = f"{parent}.{name}" if parent else name
    rule = f"a kubelet 1.{minor} has no such field, and would ignore it with only a line in its log"
    if path in ("kind", "apiVersion"):
        return FieldProblem(shown, value, "names the kind of the file, and is not a setting", "leave it out")
    known = fields(minor)
    if "." in name and (path in known or name in known):
        return FieldProblem(shown, value, rule, f"nest it as the configuration file does: {_nested(name)}")
    entry = _table()["fields"].get(path)
    if entry is not None and "." not in name:
        since = entry["kind"][0][0]
        return FieldProblem(
            shown, value, f"{rule}: it exists since 1.{since}" if since > minor else f"{rule}: it was removed in 1.{entry['to'] + 1}"
        )
    siblings = {_leaf(other): other for other in known if _parent(other) == parent}
    if same := next((leaf for leaf in siblings if leaf.lower() == name.lower()), None):
        return FieldProblem(shown, value, f"{rule}: names are case-sensitive", f"write {same}", same)
    if field := field_for_flag(minor, name.removeprefix("--")):
        return FieldProblem(shown, value, rule, f"that is a flag; its field is {field}")
    if near := difflib.get_close_matches(name, siblings, 1, 0.75):
        return FieldProblem(shown, value, rule, f"did you mean {near[0]}?", near[0])
    elsewhere = [other for other in known if _leaf(other).lower() == name.lower()]
    return FieldProblem(shown, value, rule, f"did you mean {' or '.join(elsewhere)}?" if elsewhere else None)


def _leaf(path: str) -> str:
    return path.rpartition(".")[2]


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _nested(path: str) -> str:
    first, *rest = path.split(".")
    return first + "".join(f": {{{part}" for part in rest) + ": ..." + "}" * len(rest)


def _value(minor: int, field: KubeletField, kind: str, value: object, path: str, shown: str) -> Iterator[FieldProblem]:
    if value is None:
        yield FieldProblem(shown, value, "has no value (null): a kubelet treats it as not set, or stops", "leave the field out")
        return
    outer, bracket, inner = kind.partition("[")
    inner = inner.removesuffix("]")
    if outer == "object" and not bracket:
        if isinstance(value, Mapping):
            yield from _object(minor, value, path, shown)
        else:
            yield FieldProblem(shown, value, f"must be a mapping of fields, not {_called(value)}", _fields_of(minor, path))
    elif outer == "list":
        if not isinstance(value, (list, tuple)):
            yield FieldProblem(shown, value, f"must be a list of {_PLURAL[inner]}, not {_called(value)}", "write [ ] around it")
            return
        for index, item in enumerate(value):
            yield from _value(minor, field, inner, item, path + "[]", f"{shown}[{index}]")
    elif outer == "map":
        if not isinstance(value, Mapping):
            yield FieldProblem(shown, value, f"must be a mapping, not {_called(value)}", f"write {{name: {_EXAMPLE[inner]}}}")
            return
        for key, item in value.items():
            if not isinstance(key, str):
                yield FieldProblem(shown, key, f"has a key that is not a text: {_called(key)}", "put it in quotes")
            elif field.keys and key not in field.keys:
                yield FieldProblem(
                    f"{shown}.{key}", item, f"is not one of the allowed names: {', '.join(field.keys)}", _near(key, field.keys)
                )
            else:
                yield from _value(minor, field, inner, item, path, f"{shown}.{key}")
    else:
        yield from _scalar(field, kind, value, shown)


_PLURAL = {"string": "texts", "int32": "whole numbers", "object": "mappings"}
_EXAMPLE = {"string": "text", "bool": "true", "list[string]": "[text]", "quantity": "1Gi"}


def _fields_of(minor: int, path: str) -> str:
    return "its fields: " + ", ".join(_leaf(other) for other in fields(minor) if _parent(other) == path)


def _near(name: str, names: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(name, names, 1, 0.5)
    return f"did you mean {found[0]!r}?" if found else None


def _called(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value!r}"
    return "a mapping" if isinstance(value, Mapping) else "a list" if isinstance(value, (list, tuple)) else f"a {type(value).__name__}"


def _scalar(field: KubeletField, kind: str, value: object, shown: str) -> Iterator[FieldProblem]:
    if kind in _RANGES:
        low, high = _RANGES[kind]
        if isinstance(value, bool) or not isinstance(value, int):
            way_out = f"write {value.strip()} without quotes" if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]+\s*", value) else None
            yield FieldProblem(shown, value, f"must be a whole number, not {_called(value)}", way_out)
        elif not low <= value <= high:
            yield FieldProblem(shown, value, f"is out of the range of {kind}, {low} to {high}: {value}")
    elif kind == "bool":
        if not isinstance(value, bool):
            yield FieldProblem(shown, value, f"must be true or false, not {_called(value)}", "write true or false, without quotes")
    elif kind == "float":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            yield FieldProblem(shown, value, f"must be a number, not {_called(value)}")
    elif kind == "quantity":
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            yield FieldProblem(shown, value, f"must be a quantity, not {_called(value)}", "write it as 500Mi or 1Gi")
        elif not _reads(parse_quantity, str(value)):
            yield FieldProblem(shown, value, f"is not a quantity: {value!r}", "write it as 500Mi or 1Gi")
    elif kind == "duration_or_int" and isinstance(value, int) and not isinstance(value, bool):
        if not _RANGES["int64"][0] <= value <= _RANGES["int64"][1]:
            yield FieldProblem(shown, value, f"is out of the range of int64 nanoseconds: {value}")
    elif not isinstance(value, str):
        called = {"duration": "a duration", "duration_or_int": "a duration", "time": "a time"}.get(kind, "text")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        unit = (
            "give it a unit, in quotes" if number and called == "a duration" else "put it in quotes" if number or called == "text" else None
        )
        yield FieldProblem(shown, value, f"must be {called}, not {_called(value)}", unit)
    else:
        yield from _text(field, {"duration_or_int": "duration"}.get(kind, kind), value, shown)


def _text(field: KubeletField, kind: str, value: str, shown: str) -> Iterator[FieldProblem]:
    kind = field.text or kind
    if kind == "duration" and not _reads(parse_duration, value):
        yield FieldProblem(shown, value, f"is not a duration: {value!r}", "write it as 30s, 5m or 1h30m (units ns, us, ms, s, m, h)")
    elif kind == "quantity" and not _reads(parse_quantity, value):
        yield FieldProblem(shown, value, f"is not a quantity: {value!r}", "write it as 500Mi, 1Gi or 200m")
    elif kind == "quantity" and value.startswith("-"):
        yield FieldProblem(shown, value, f"cannot be negative: {value!r}")
    elif kind == "percent" and not _PERCENT.fullmatch(value):
        yield FieldProblem(shown, value, f"is not a percentage: {value!r}", "write it as 50%")
    elif kind == "time" and not _TIME.fullmatch(value):
        yield FieldProblem(shown, value, f"is not a time: {value!r}", "write it as 2026-01-02T03:04:05Z")
    elif field.values and value not in field.values:
        allowed = ", ".join(one or '""' for one in field.values)
        yield FieldProblem(shown, value, f"is not one of the allowed values ({allowed}): {value!r}", _near(value, field.values))


def _reads(parse: Callable[[str], object], text: str) -> bool:
    """True if a parser accepts a text."""
    try:
        parse(text)
    except ValueError:
        return False
    return True


# ---- changes that need more than a restart

_REBOOT = "the cgroups of running pods and daemons stay as they are until the node reboots"
_SERVER = "this kubelet may no longer be reachable for the API server and for daytwo's proof through it, or no longer authorize them"
_REGISTERED = "only read when a node registers for the first time; this node is already registered"
_LATER = "only containers created after the restart get it; running containers keep the old value"
_DRAIN = "kubectl drain the node first, stop the kubelet, change the setting by hand, and start it again"
# Sources: pkg/kubelet/cm/container_manager_linux.go and node_container_manager_linux.go; pkg/kubelet/kubelet_node_status.go
# (initialNode, tryRegisterWithAPIServer); pkg/kubelet/userns/userns_manager.go; the warnings for dynamic configuration in
# config/v1beta1/types.go up to 1.23.
NEEDS_MORE: Final = (
    *(
        More(path, _REBOOT, "drain the node, change the setting by hand, reboot the node")
        for path in ("cgroupRoot", "cgroupsPerQOS", "kubeletCgroups", "systemCgroups", "qosReserved")
    ),
    *(
        More(path, f"the kubelet stops if that cgroup is missing or too small; {_REBOOT}", "create the cgroup first, by hand")
        for path in ("systemReservedCgroup", "kubeReservedCgroup", "enforceNodeAllocatable")
    ),
    More("staticPodPath", "every static pod of the old path stops, also the control plane's", "move manifests and path by hand"),
    More("staticPodURL", "every static pod of the old address stops", "change it by hand on a drained node"),
    *(
        More(path, "running pods belong to the old runtime, and the kubelet would not find them", _DRAIN)
        for path in ("containerRuntimeEndpoint", "imageServiceEndpoint")
    ),
    More(
        "podLogsDir", "logs of running containers stay in the old directory, where the kubelet and log collectors do not find them", _DRAIN,
    ),
    More(
        "volumePluginDir", "flexvolumes in use are no longer found, and the controller-manager must name the same directory",
        "drain the node and move the plugins first",
    ),
    More(
        "enableControllerAttachDetach",
        "volumes that are attached now may never be detached: another component becomes responsible for them",
        "drain the node first, and change it by hand",
    ),
    More("userNamespaces.idsPerPod", "the kubelet does not start with pods of a different length (`wrong user namespace length`)", _DRAIN),
    More(
        "serverTLSBootstrap",
        "the kubelet serves nothing until its certificate request is approved (or keeps a certificate that is never renewed)",
        "use deploys/kubelet_certificates.py, which approves the request of that very node",
    ),
    *(
        More(path, _SERVER, "change it by hand, then try `kubectl logs` and `kubectl get --raw /api/v1/nodes/NAME/proxy/healthz`")
        for path in (
            "enableServer", "address", "port", "authentication.x509.clientCAFile", "authentication.webhook.enabled", "authorization.mode",
            "enableDebuggingHandlers",
        )
    ),
    *(
        More(path, "daytwo, kubeadm and monitoring check this kubelet at its health endpoint", "change it by hand")
        for path in ("healthzPort", "healthzBindAddress")
    ),
    More(
        "rotateCertificates",
        "the kubelet's client certificate would expire, and the node would fail with it, unless something else renews it",
        "make sure that something else renews the certificate, then change it by hand",
    ),
    More("podCIDR", "only read by a kubelet without an API server; a node's CIDR comes from its Node object", "leave it out"),
    More("runOnce", "the kubelet would start its pods and exit (refused since 1.32)", "leave it out"),
    *(
        More(path, _REGISTERED, way_out, refused=False)
        for path, way_out in (
            ("registerNode", "it matters when the Node object is deleted"),
            ("registerWithTaints", "kubectl taint the node"),
            ("providerID", "delete the Node object and let the node register again"),
        )
    ),
    *(
        More(path, _LATER, "restart the workloads, or drain the node, to apply it to all containers", refused=False)
        for path in (
            "seccompDefault", "cpuCFSQuota", "cpuCFSQuotaPeriod", "singleProcessOOMKill", "podPidsLimit", "clusterDNS", "clusterDomain",
            "resolvConf",
        )
    ),
)  # fmt: skip

# Fields that another deploy sets, by its name.
OWNED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "featureGates": "feature_gates",
        **dict.fromkeys(
            (
                "evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim", "evictionMaxPodGracePeriod",
                "evictionPressureTransitionPeriod", "mergeDefaultEvictionSettings",
            ),
            "eviction",
        ),
    }
)  # fmt: skip


def needs_more(changed: Iterable[str]) -> list[More]:
    """What a change of fields needs in addition to a restart of the kubelet and a drained node. `changed`: dotted paths of fields whose
    effective value changes: a map's entry as the map or as the entry, an object as itself or by its fields."""
    return list(dict.fromkeys(more for path in changed for more in NEEDS_MORE if _concerns(f"{more.path}.", f"{path}.")))


def _concerns(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


#: For roles.engine.bounds.misshaped: what daytwo reads, in files and at /configz (k8s.io/kubelet/config/v1beta1/types.go). A kubelet does
#: not start with a value of another type. Whoever is root on a node may write one all the same, and make a kubelet say it.
SHAPE: Mapping[str, Any] = {
    "featureGates": {"*": bool},
    **{key: {"*": partial(parse_threshold, "the threshold")} for key in ("evictionHard", "evictionSoft")},
    "evictionMinimumReclaim": {"*": partial(parse_reclaim, "the reclaim")},
    "evictionSoftGracePeriod": {"*": parse_duration},
    **{key: {"*": parse_quantity} for key in ("systemReserved", "kubeReserved")},
    **{key: {"*": str} for key in ("qosReserved", "cpuManagerPolicyOptions")},
    **dict.fromkeys(("maxPods", "podsPerCore", "port", "healthzPort"), int),
    **{key: [str] for key in ("enforceNodeAllocatable", "allowedUnsafeSysctls", "clusterDNS", "tlsCipherSuites")},
    **{key: {} for key in ("memorySwap", "logging", "crashLoopBackOff", "tracing")},
    "authentication": {"anonymous": {"enabled": bool}, "webhook": {"enabled": bool}, "x509": {}},
    "authorization": {"mode": str, "webhook": {}},
    **dict.fromkeys(("staticPodPath", "healthzBindAddress", "address", "resolvConf", "reservedSystemCPUs"), str),
    **dict.fromkeys(("containerRuntimeEndpoint", "tlsCertFile", "tlsPrivateKeyFile", "cpuManagerPolicy", "memoryManagerPolicy"), str),
    "registerWithTaints": [{}],
    "reservedMemory": [{"limits": {}}],
    "shutdownGracePeriodByPodPriority": [{"shutdownGracePeriodSeconds": int}],
}
