"""The container runtime of a node: which cgroup driver it runs with, by its own answer, and where the processes of pods are. Pure.

A kubelet asks its runtime for the driver when it starts (RuntimeConfig), and then ignores its own field `cgroupDriver`. containerd before
2.0 and CRI-O before 1.28 have no such method: the field counts then, and must be what the runtime is configured with. containerd shows its
running configuration in a verbose Status.

Sources: cmd/kubelet/app/server.go (getCgroupDriverFromCRI), KEP-4033; k8s.io/cri-api, pkg/apis/runtime/v1/api.proto; containerd 1.6 to 2.x,
pkg/cri (Status, RuntimeConfig), and its runtime runc, whose option is SystemdCgroup; gRPC over HTTP/2 (PROTOCOL-HTTP2.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from roles.engine.bounds import read_json
from roles.engine.editing import flags
from roles.engine.harmless import one_line
from roles.engine.kubelet.facts import Kubelet
from roles.engine.node import File, start_time
from roles.engine.scripts import decoded, filled
from roles.engine.timeouts import patient

SYSTEMD: Final = "systemd"
CGROUPFS: Final = "cgroupfs"
#: Where the kubelet keeps the cgroups of pods, by driver (pkg/kubelet/cm/cgroup_manager_linux.go).
DIRECTORIES: Final[Mapping[str, str]] = {SYSTEMD: "kubepods.slice", CGROUPFS: "kubepods"}
#: The unit of containerd, as its own packages install it.
CONTAINERD: Final = "containerd.service"
# Time limits: of one call, and of the whole question.
CALL_SECONDS = 10
SECONDS = 60
_SCHEME = "unix://"
# gRPC: OK and UNIMPLEMENTED (google.golang.org/grpc/codes).
_OK, _UNIMPLEMENTED = "0", "12"
_NO_ANSWER = "-"
_HANDLER = re.compile(r'("(?:[^"\\]|\\.)*"):\{"runtimeType":("[^"]*").{0,4000}?"options":(null|\{[^{}]*\})', re.DOTALL)
_RUNC = "io.containerd.runc."
_OPTION = "SystemdCgroup"


@dataclass(frozen=True)
class Runtime:
    """What a container runtime says of itself, one line each. `reported`: the driver that it reports to kubelets (None: it has no such
    method, or leaves it open); `handlers`: the driver of each of its handlers that start runc, as it runs with them; `places`: where that
    is set (FILE:LINE: TEXT); `processes`: how many processes of pods are in each driver's directory; `problem`: why its driver is not known
    ("": it is). `unit`: containerd's own systemd unit, if that serves the kubelet ("": it does not), with the `path` of its configuration
    file, when its process `started` (seconds of the node's clock), and the `file` itself (None: it was not read)."""

    name: str = "the container runtime"
    reported: str | None = None
    handlers: Mapping[str, str] = field(default_factory=dict)
    places: tuple[str, ...] = ()
    processes: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    unit: str = ""
    path: str = ""
    started: float = 0.0
    file: File | None = None

    @property
    def drivers(self) -> frozenset[str]:
        """The driver that it runs with; more than one if its handlers differ."""
        return frozenset((self.reported,)) if self.reported else frozenset(self.handlers.values())


def socket(kubelet: Kubelet, configuration: Mapping[str, Any]) -> str:
    """The socket of the runtime that the kubelet uses (its flag, or /configz). Raises ValueError if that is no Unix socket."""
    named = flags.last_flag(kubelet.process.argv, "container-runtime-endpoint") or str(configuration.get("containerRuntimeEndpoint") or "")
    path = named.removeprefix(_SCHEME)
    if not path.startswith("/") or any(character in path for character in "\n\r\0"):
        raise ValueError(f"the kubelet's containerRuntimeEndpoint is not a Unix socket: {named or '(not set)'}")
    return path


def question(path: str) -> str:
    """A script for `sh -s` that asks the runtime behind a socket. It changes nothing."""
    return filled("runtime.sh.j2", socket=path, seconds=f"{patient(CALL_SECONDS):.0f}")


def parse(lines: Iterable[str]) -> Runtime:
    """The answer to `question`. What cannot be read becomes the runtime's `problem`."""
    records = [line.split(" ") for line in lines]
    single = {name: fields for name, *fields in records}
    if "daytwo" not in single or "end" not in single:
        return Runtime(problem="the node's answer was cut short")
    try:
        return _parse(records, single)
    except (ValueError, TypeError, IndexError, KeyError):
        return Runtime(problem="the node's answer cannot be parsed")


def _parse(records: list[list[str]], single: Mapping[str, list[str]]) -> Runtime:
    processes = {fields[0]: int(fields[1]) for name, *fields in records if name == "processes"}
    counted = {driver: processes.get(directory, 0) for driver, directory in DIRECTORIES.items()}
    if "without" in single:
        missing = {"curl": "the node has no curl to ask it with", "socket": "there is no socket at the kubelet's containerRuntimeEndpoint"}
        return Runtime(processes=counted, problem=missing[single["without"][0]])
    name, option = _name(*single["version"])
    places = tuple(_places(records, option))
    reported, problem = _reported(*single["config"])
    handlers = dict(_handlers(decoded(single["handlers"][1]).decode("utf-8", "replace")))
    if not problem and reported is None and not handlers:
        problem = "it does not report its cgroup driver to kubelets (CRI RuntimeConfig), and shows none in its status"
    path, clock, uptime, ticks, per_second = single.get("unit", ("", "0", "0", "0", "1"))
    started = start_time(int(clock), float(uptime), int(ticks), int(per_second))
    unit = CONTAINERD if path else ""
    return Runtime(name, reported, handlers, places, counted, problem, unit, _text(decoded(path)), started)


def _name(status: str, data: str) -> tuple[str, str]:
    """Name and version for people; and the setting of its driver. A VersionResponse has them in its fields 2 and 3."""
    found = dict(fields(message(decoded(data)))) if status == _OK else {}
    name, version = (_text(found.get(number, b"")) for number in (2, 3))
    whole = f"{name} {version}".strip()
    return one_line(whole) or "the container runtime", "cgroup_manager" if name.startswith("cri-o") else _OPTION


def _reported(status: str, data: str) -> tuple[str | None, str]:
    """The driver of a RuntimeConfigResponse (1: linux; in it 1: cgroup_driver, where 0 is systemd and is left out); and why it is not
    known. The kubelet uses its own field only if the method is not implemented, or the answer leaves it open."""
    if status == _UNIMPLEMENTED:
        return None, ""
    if status != _OK:
        said = "it gives no answer" if status == _NO_ANSWER else f"it answers RuntimeConfig with gRPC status {status}"
        return None, f"{said}, with which a kubelet would not start"
    found = dict(fields(message(decoded(data))))
    if 1 not in found:
        return None, ""
    number = dict(fields(_bytes(found[1]))).get(1, 0)
    driver = {0: SYSTEMD, 1: CGROUPFS}.get(number if isinstance(number, int) else -1)
    return driver, "" if driver else f"it reports the unknown cgroup driver {number!r}"


def _handlers(text: str) -> Iterator[tuple[str, str]]:
    """The drivers of handlers that start runc, from containerd's configuration in JSON."""
    for name, kind, options in _HANDLER.findall(text):
        if read_json(kind).startswith(_RUNC):
            yield one_line(read_json(name)), SYSTEMD if (read_json(options) or {}).get(_OPTION) is True else CGROUPFS


def _places(records: Iterable[list[str]], option: str) -> Iterator[str]:
    for name, *fields in records:
        if name == "setting":
            path = _text(decoded(fields[0]))
            for line in _text(decoded(fields[1])).splitlines():
                number, _, text = line.partition(":")
                if text.strip().startswith(option):
                    yield one_line(f"{path}:{number}: {text.strip()}")


def _text(value: object) -> str:
    return _bytes(value).decode("utf-8", "replace")


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a field has another type")
    return value


# ---- gRPC and protocol buffers, as far as these answers need them


def message(data: bytes) -> bytes:
    """The message in a body: a byte (0: not compressed), its length in four bytes, itself."""
    if len(data) < 5 or data[0] != 0 or len(data) < 5 + int.from_bytes(data[1:5], "big"):
        raise ValueError("not a whole message")
    return data[5 : 5 + int.from_bytes(data[1:5], "big")]


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, by number: integers, and bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
        elif kind == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ValueError("a field is longer than its message")
            yield number, data[at : at + length]
            at += length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("an integer is cut short")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


# ---- the cgroup of a container

# A pod's cgroup and a container's cgroup in it, as the kubelet's two drivers and the runtimes name them:
#   cgroupfs  .../kubepods/burstable/pod<UID>/<ID>
#   systemd   .../kubepods-burstable-pod<UID with _ for ->.slice/cri-containerd-<ID>.scope, crio-<ID>.scope, docker-<ID>.scope
# and .../kubepods-burstable-pod<UID>.slice:cri-containerd:<ID> if the runtime's driver differs from the kubelet's.
# Static pods have 32 hex digits without dashes.
_CONTAINER = re.compile(
    r"(?:^|[/-])pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?[/:]((?:[a-z]+[-:])*)([0-9a-f]{64})(?:\.scope)?(?:/|$)"
)
# CRI-O's monitor of a container has a cgroup next to the container's: crio-conmon-<ID>.scope.
_MONITOR = "conmon-"


def container_of(cgroup: str) -> tuple[str, str] | None:
    """Pod UID and container ID from a path in /proc/PID/cgroup; None if it is not a container's."""
    found = _CONTAINER.search(cgroup)
    if found is None or found.group(2).endswith(_MONITOR):
        return None
    return found.group(1).replace("_", "-"), found.group(3)
