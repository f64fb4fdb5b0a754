"""For every field of a kubelet's configuration: a value it takes, and values of other types, made from the table and not chosen by hand."""

from __future__ import annotations

import base64
from typing import Any

from roles.engine.editing import kubelet_config
from roles.engine.kubelet import Kubelet, find
from roles.engine.kubelet.schema import KubeletField, fields
from tests.unit.node import node
from tests.unit.node.node import parse

_GOOD: dict[str, Any] = {
    "string": "text",
    "bool": True,
    "int32": 1,
    "int64": 1,
    "uint32": 1,
    "float": 0.5,
    "duration": "1m30s",
    "duration_or_int": "5s",
    "quantity": "1Gi",
    "percent": "50%",
    "time": "2026-01-02T03:04:05Z",
    "object": {},
}
# The first one of each is what a near type takes.
_MISTYPED: dict[str, list[Any]] = {
    "string": [5, True, ["text"], {"a": "text"}],
    "bool": ["true", 1, [True]],
    "int32": [2**31, "1", True, 1.5, [1]],
    "int64": [1.5, "1", True, 2**63, {}],
    "uint32": [-1, "1", 2**32, False],
    "float": ["0.5", True, [0.5]],
    "duration": ["1d", 60, "60", "1 minute", True, ["60s"]],
    "duration_or_int": ["5", True, 1.5, ["5s"]],
    "quantity": ["x", True, "1 Gi", ["1Gi"]],
    "time": ["yesterday", 5, True],
    "object": ["text", 5, ["text"]],
}
# Text that Go reads as a duration, and Kubernetes as a quantity; and text that they do not.
DURATIONS = ["0", "+0", "-0", "1h", "1.5h", ".5s", "1.s", "1h2m3s", "-5m", "1m1m", "2562047h47m16s", "3µs", "3us"]
NO_DURATIONS = ["", "1", "00", "1d", "1 s", "s", ".s", "1,5s", "1h 2m", "5S", "--1s", "2562048h", "٣s", "1h2", " 1s"]
QUANTITIES = ["1", "1.5", ".5Gi", "1.", "100m", "1e3", "1E6", "1e-3", "1E", "+1k", "5n", "3u", "12Ei", "007"]
NO_QUANTITIES = ["", "1 Gi", "1GB", "1gi", "1Mb", "1KI", "1e", "1e+", "0x10", "1_000", "10%", "٣", "1K", "1.2.3"]


def limits(quantity: object) -> dict[str, Any]:
    """The configuration that has a quantity decoded as one."""
    return {"reservedMemory": [{"numaNode": 0, "limits": {"memory": quantity}}]}


# A map whose names are read further on.
_KEYS = {"featureGates": "ContextualLogging"}
# Texts that are read when the kubelet starts.
_THRESHOLDS = ("evictionHard", "evictionSoft", "evictionMinimumReclaim")


def good(field: KubeletField) -> Any:
    """A value of the right type."""
    return _good(field, field.kind)


def _good(field: KubeletField, kind: str) -> Any:
    outer, _, inner = kind.partition("[")
    if outer == "list":
        return [_good(field, inner.removesuffix("]"))]
    if outer == "map":
        return {next(iter(field.keys), _KEYS.get(field.path, "name")): _good(field, inner.removesuffix("]"))}
    if field.path in _THRESHOLDS:
        return "1Gi"
    if kind == "string":
        return next((value for value in field.values if value), _GOOD[field.text or kind])
    return _GOOD[kind]


def mistyped(field: KubeletField) -> list[Any]:
    """Values of other types: each is one that a decoder refuses, whatever the field's meaning."""
    return _mistyped(field.kind)


def telling(field: KubeletField) -> list[Any]:
    """Of those the first, and of a list or a map also the first of what is in it."""
    found = mistyped(field)
    return [found[0], *(found[3:4] if field.kind.startswith(("list[", "map[")) else ())]


def _mistyped(kind: str) -> list[Any]:
    outer, _, inner = kind.partition("[")
    inner = inner.removesuffix("]")
    if outer == "list":
        return ["text", 5, {"a": "b"}, *([value] for value in _mistyped(inner))]
    if outer == "map":
        return ["text", 5, ["a"], *({"name": value} for value in _mistyped(inner))]
    return _MISTYPED[kind]


def nested(path: str, value: Any) -> dict[str, Any]:
    """The configuration that sets one path of the table, `[]` being a list of one."""
    first, _, rest = path.partition(".")
    inner = nested(rest, value) if rest else value
    return {first.removesuffix("[]"): [inner] if first.endswith("[]") else inner}


def every(minor: int) -> list[tuple[str, Any]]:
    """(path, good value) of all fields."""
    return [(path, good(field)) for path, field in fields(minor).items()]


def misspelt(path: str) -> list[str]:
    """Names that are not the field's, nor any other's."""
    parent, dot, leaf = path.rpartition(".")
    return [parent + dot + leaf[0].upper() + leaf[1:], parent + dot + leaf + "x"]


MAIN, DROPINS, EXTRA = "/var/lib/kubelet/config.yaml", "/etc/kubelet.d", "/etc/default/kubelet"
ARGV = node.KUBEADM_ARGV
FOLDER = [f"directory {node.b64(DROPINS)}"]
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def kubelet(main: str = "", dropins: dict[str, str] | None = None, extra: str = "", argv: tuple[str, ...] = ARGV) -> Kubelet:
    """A kubeadm node's; `dropins` by file name, `extra` the flags of KUBELET_EXTRA_ARGS."""
    files: dict[str, bytes | None] = {MAIN: (HEAD + main).encode()}
    words = [*argv]
    unit = node.KUBEADM_DROPIN
    if dropins is not None:
        words.append(f"--config-dir={DROPINS}")
        unit = unit.replace(b"--config=/var/lib/kubelet/config.yaml", b"--config=/var/lib/kubelet/config.yaml --config-dir=/etc/kubelet.d")
        assert unit != node.KUBEADM_DROPIN
        files |= {f"{DROPINS}/{name}": (HEAD + text).encode() for name, text in dropins.items()}
    if extra:
        files[EXTRA] = f'KUBELET_EXTRA_ARGS="{extra}"\n'.encode()
        words += extra.split()
    place = {"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": unit}
    return find(parse("n1", node.answer(argv=words, files=files, dropins=place, extra=FOLDER if dropins is not None else ())))


def written(fields: dict[str, Any]) -> str:
    data = HEAD.encode()
    changes = {tuple(name.split(".")): value for name, value in fields.items()}
    return kubelet_config.edit_fields(data, changes).decode().removeprefix(HEAD)


# As containerd 1.7.24 and 1.6.20 have answered; the request for an unknown method has no message.
VERSION_17 = "version 0 AAAAACMKBTAuMS4wEgpjb250YWluZXJkGgoxLjcuMjR+ZHMxIgJ2MQ==="
UNIMPLEMENTED = "config 12 ="
RUNC = (
    '"runc":{"runtimeType":"io.containerd.runc.v2","runtimePath":"","runtimeEngine":"","PodAnnotations":null,"ContainerAnnotations":null,'
    '"runtimeRoot":"","options":{"SystemdCgroup":true}'
)


def coded(data: bytes | str) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode() + "="


def handlers(*found: str) -> str:
    return f"handlers 0 {coded(chr(10).join(found))}"
