"""What a container runtime says of itself to a kubelet that starts, and what a new pod would find there. Pure.

Sources: k8s.io/cri-api api.proto (StatusResponse, RuntimeCondition); pkg/kubelet/kubelet.go (updateRuntimeUp: RuntimeReady, NetworkReady);
k8s.io/cri-client (NewRemoteRuntimeService: Version of the v1 API must answer); containerd's verbose Status (cniconfig, sandboxImage).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from roles.engine.kubelet import ask, runtime

OK, UNIMPLEMENTED, NO_ANSWER = "0", "12", "-"


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
    keys = ("version", "config", "handlers")
    known = runtime.parse(["daytwo 1", *(" ".join((key, *single[key])) for key in keys if key in single), "end"])
    folders = tuple(filter(None, _text(single, "programs-in").split("\n")))
    path, wanted = _network(single.get("network"))
    sandbox, here = (*single.get("sandbox", ()), "", "unknown")[:2] if "sandbox" in single else ("", "unknown")
    return RuntimeHealth(
        True,
        known.name,
        single["version"][0],
        single.get("config", ("",))[0],
        known.drivers,
        _conditions(*single.get("conditions", ("", ""))),
        ask.decoded(sandbox),
        {"yes": True, "no": False}.get(here),
        tuple(filter(None, _text(single, "pause").split("\n"))),
        folders,
        frozenset(filter(None, _text(single, "plugins").split("\n"))) if folders else None,
        path,
        wanted,
    )


def _text(single: Mapping[str, list[str]], name: str) -> str:
    return ask.decoded(single[name][0]) if name in single else ""


def _conditions(status: str, data: str) -> dict[str, tuple[bool, str]]:
    """StatusResponse: 1 status; in it 1 conditions; in each 1 type, 2 status, 3 reason, 4 message."""
    found: dict[str, tuple[bool, str]] = {}
    try:
        answer = dict(runtime.fields(runtime.message(runtime.decoded(data)))) if status == OK else {}
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


def _network(fields: list[str] | None) -> tuple[str, frozenset[str]]:
    """The file of a network configuration, and the programs that it names (CNI specification: type of each plugin, and of its ipam)."""
    if fields is None:
        return "", frozenset()
    try:
        content: Any = json.loads(ask.decoded(fields[1]))
        plugins = content.get("plugins", [content])
        named = [one.get("type") for plugin in plugins for one in (plugin, plugin.get("ipam") or {})]
    except (ValueError, AttributeError, TypeError, IndexError):
        return "", frozenset()
    return ask.decoded(fields[0]), frozenset(one for one in named if isinstance(one, str) and one)
