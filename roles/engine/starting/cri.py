"""What a container runtime says of itself to a kubelet that starts, and what a new pod would find there. Pure.

Sources: k8s.io/cri-api api.proto (StatusResponse, RuntimeCondition); pkg/kubelet/kubelet.go (updateRuntimeUp: RuntimeReady, NetworkReady);
k8s.io/cri-client (NewRemoteRuntimeService: Version of the v1 API must answer); containerd's verbose Status (cniconfig, sandboxImage).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from roles.engine.bounds import read_json
from roles.engine.kubelet import runtime
from roles.engine.scripts import decoded, decoded_list, decoded_text

OK, UNIMPLEMENTED, NO_ANSWER = "0", "12", "-"
#: The answers that leave a node, in the order in which it prints them.
_ANSWERS = ("version", "config", "conditions", "handlers")


@dataclass(frozen=True)
class RuntimeHealth:
    """The gRPC status of Version and of RuntimeConfig ("": not asked). `asked`: the node has what it is asked with. `drivers`: its cgroup
    drivers; `conditions`: RuntimeReady and NetworkReady, with the reason if they do not hold. `sandbox`: the image of sandboxes ("": not
    known) and whether the node has it (None: not known); `pauses`: such images that the node has; `plugin_folders` and `plugins`: the
    programs of network plugins (None: not known); `wanted_plugins`: those of the network configuration, which is in the file `network`."""

    asked: bool = True
    name: str = "the container runtime"
    version: str = ""
    config: str = ""
    drivers: frozenset[str] = frozenset()
    conditions: Mapping[str, tuple[bool, str]] = field(default_factory=dict)
    sandbox: str = ""
    has_sandbox: bool | None = None
    pauses: tuple[str, ...] = ()
    plugin_folders: tuple[str, ...] = ()
    plugins: frozenset[str] | None = None
    network: str = ""
    wanted_plugins: frozenset[str] = frozenset()


def read_health(records: Iterable[list[str]]) -> RuntimeHealth | None:
    """From the records of templates/starting.sh.j2; None if the runtime was not asked. What cannot be parsed is left out."""
    single = {name: fields for name, *fields in records}
    if "without" in single:
        return RuntimeHealth(asked=False)
    if "version" not in single:
        return None
    path, contents = _contents(*single.get("contents", ()))
    answers = {key: (*single[key], base64.b64encode(contents.get(key, b"")).decode() + "=") for key in _ANSWERS if key in single}
    keys = ("version", "config", "handlers")
    known = runtime.parse(["daytwo 1", *(" ".join((key, *answers[key])) for key in keys if key in answers), "end"])
    folders = tuple(_listed(single, "programs-in"))
    wanted = _programs(contents.get("network", b""))
    sandbox, here = (*single.get("sandbox", ()), "", "unknown")[:2] if "sandbox" in single else ("", "unknown")
    return RuntimeHealth(
        True,
        known.name,
        single["version"][0],
        single.get("config", ("",))[0],
        known.drivers,
        _conditions(*answers.get("conditions", ("", ""))),
        decoded_text(sandbox),
        {"yes": True, "no": False}.get(here),
        tuple(sorted(_listed(single, "pause"))),
        folders,
        frozenset(_listed(single, "plugins")) if folders else None,
        path if wanted else "",
        wanted,
    )


def _listed(single: Mapping[str, list[str]], name: str) -> list[str]:
    return decoded_list(single[name][0]) if name in single else []


def _contents(folder: str = "", network: str = "", data: str = "") -> tuple[str, dict[str, bytes]]:
    """The file of the network configuration, and what the node's head(1) printed of several files: each is behind a line with its path."""
    path, rest = decoded_text(network), b"\n" + decoded(data)
    places = {f"{decoded_text(folder)}/{key}": key for key in _ANSWERS} | ({path: "network"} if path else {})
    found: dict[str, bytes] = {}
    last = ""
    for place, key in places.items():
        before, separator, after = rest.partition(f"\n==> {place} <==\n".encode())
        if separator:
            if last:
                found[last] = before
            last, rest = key, after
    return path, found | ({last: rest} if last else {})


def _conditions(status: str, data: str) -> dict[str, tuple[bool, str]]:
    """StatusResponse: 1 status; in it 1 conditions; in each 1 type, 2 status, 3 reason, 4 message."""
    found: dict[str, tuple[bool, str]] = {}
    try:
        answer = dict(runtime.fields(runtime.message(decoded(data)))) if status == OK else {}
        for number, one in runtime.fields(_bytes(answer.get(1, b""))):
            if number == 1:
                parts = dict(runtime.fields(_bytes(one)))
                kind, reason, text = (_bytes(parts.get(place, b"")).decode("utf-8", "replace") for place in (1, 3, 4))
                found[kind] = bool(parts.get(2, 0)), f"{reason}: {text}".strip(": ")
    except ValueError:
        return {}
    return found


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""


def _programs(data: bytes) -> frozenset[str]:
    """The programs that a network configuration names (CNI specification: type of each plugin, and of its ipam)."""
    try:
        content: Any = read_json(data)
        plugins = content.get("plugins", [content])
        named = [one.get("type") for plugin in plugins for one in (plugin, plugin.get("ipam") or {})]
    except (ValueError, AttributeError, TypeError, IndexError):
        return frozenset()
    return frozenset(one for one in named if isinstance(one, str) and one)
