"""The question to a node about its next start, and its answer. Pure."""

from __future__ import annotations

import binascii
import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from roles.engine.certificates import UNREAD, parse_material, parse_pems
from roles.engine.kubelet import allocatable
from roles.engine.scripts import decoded_list, decoded_text, filled
from roles.engine.starting.cri import read_health
from roles.engine.starting.model import Listener, Needs, PathFact, StartFacts
from roles.engine.timeouts import patient

_PREFIX = "start: "
_MARK = "daytwo-start"
_MOST_BYTES = 16384
# Time limits: of one call to the container runtime, and of the whole question.
CALL_SECONDS = 10
SECONDS: Final = 60


def question(needs: Needs) -> str:
    """A script for `sh -s` that asks a node about these needs; it can stand before any other script. It changes nothing."""
    return filled(
        "starting.sh.j2",
        mark=_MARK,
        all_seconds=f"{patient(SECONDS):.0f}",
        seconds=f"{patient(CALL_SECONDS):.0f}",
        most_bytes=_MOST_BYTES,
        paths=needs.paths,
        tunables=[one.path for one in needs.tunables],
        ports=sorted({one.port for one in needs.ports}),
        unit=needs.unit,
        addresses=needs.addresses,
        cgroups=list(enumerate(needs.cgroups.values())),
        socket=needs.socket,
        provider_config=needs.provider_config,
        provider_folder=needs.provider_folder,
        keys=needs.keys,
        checkpoints=list(enumerate(needs.checkpoints)),
        reaches=needs.reaches,
        images=[one.listed_as for one in needs.images],
    )


def answer(needs: Needs, lines: Iterable[str]) -> StartFacts:
    """The facts in a node's answer, among other lines. A record that cannot be parsed is left out: then its fact is not known."""
    records = [line.removeprefix(_PREFIX).split(" ") for line in lines if line.startswith(_PREFIX)]
    read = _Answer(needs)
    for record in records:
        try:
            read.add(record)
        except (ValueError, TypeError, IndexError, KeyError, StopIteration, binascii.Error):
            continue
    return StartFacts(**read.found, runtime=read_health(records))


def _two(now: str, most: str) -> tuple[int, int]:
    return int(now), int(most)


#: Records that are one fact: the fact, and what reads its fields.
_FACTS: Final[Mapping[str, tuple[str, Callable[..., object]]]] = {
    "epoch": ("epoch", int),
    "main": ("main_pid", int),
    "swap": ("swap", int),
    "tasks": ("tasks", _two),
    "inotify": ("inotify", _two),
    "cpus": ("cpus", allocatable.cpu_set),
    "addresses": ("addresses", lambda text: frozenset(_usual(decoded_list(text)))),
    "providers": ("providers", decoded_text),
    "programs": ("programs", lambda names: frozenset(decoded_list(names))),
    "api": ("api", lambda code, url: (int(code), decoded_text(url))),
    "end": ("complete", lambda: True),
}


class _Answer:
    def __init__(self, needs: Needs) -> None:
        self._needs = needs
        self._places: dict[str, str] = {}
        self.found: dict[str, Any] = {
            key: {} for key in ("tunables", "paths", "names", "pems", "keys", "nameservers", "space", "cgroups", "checkpoints", "images")
        } | {"listeners": ()}  # fmt: skip

    def add(self, record: list[str]) -> None:
        name, *fields = record
        if name in _FACTS:
            key, read = _FACTS[name]
            self.found[key] = read(*fields)
        elif (reader := getattr(self, f"on_{name}", None)) is not None:
            reader(*fields)

    def _put(self, key: str, name: str, value: object) -> None:
        self.found[key][name] = value

    def _path_of(self, number: str) -> str:
        return self._needs.paths[int(number)].path

    def on_path(self, number: str, kind: str, may: str) -> None:
        self._put("paths", self._path_of(number), _fact(kind, may))

    def on_pems(self, data: str) -> None:
        for number, pem in parse_pems(decoded_text(data), _MOST_BYTES).items():
            self._put("pems", self._places.get(str(number)) or self._path_of(str(number)), pem)

    def on_key(self, number: str, state: str, half: str) -> None:
        self._key(self._needs.keys[int(number)].key, state, half)

    def on_half(self, path: str, state: str, half: str) -> None:
        self._key(decoded_text(path), state, half)

    def _key(self, path: str, state: str, half: str) -> None:
        self._put("keys", path, parse_material(path, b"", decoded_text(half).encode(), UNREAD.get(state)))

    def on_names(self, number: str, key: str, path: str, kind: str, may: str, place: str) -> None:
        named = self._places[place] = decoded_text(path)
        self.found["names"].setdefault(self._path_of(number), {}).setdefault(key, named)
        self._put("paths", named, _fact(kind, may))

    def on_nameservers(self, number: str, address: str) -> None:
        path = self._path_of(number)
        known = self.found["nameservers"].get(path, ())
        self._put("nameservers", path, (*known, *decoded_list(address.rstrip("="))))

    def on_space(self, number: str, free: str, inodes: str, left: str) -> None:
        self._put("space", self._path_of(number), (int(free) / 1024, int(left) if int(inodes) else None))

    def on_tunable(self, file: str, value: str, may: str) -> None:
        self._put("tunables", next(one.name for one in self._needs.tunables if one.path == file), (int(value), "w" in may))

    def on_cgroup(self, number: str, there: str) -> None:
        self._put("cgroups", list(self._needs.cgroups)[int(number)], there == "yes")

    def on_checkpoint(self, number: str, content: str) -> None:
        self._put("checkpoints", list(self._needs.checkpoints)[int(number)], decoded_text(content))

    def on_image(self, number: str, here: str) -> None:
        self._put("images", self._needs.images[int(number)].image, here == "yes")

    def on_requires(self, unit: str, state: str) -> None:
        self.found["requires"] = {**self.found.get("requires", {}), decoded_text(unit): state}

    def on_runs(self, program: str, here: str) -> None:
        self.found["runs"] = {**self.found.get("runs", {}), decoded_text(program): here == "yes"}

    def on_listens(self, port: str, address: str, pid: str, name: str) -> None:
        one = Listener(int(port), _address(address), int(pid), decoded_text(name).strip())
        self.found["listeners"] = (*self.found["listeners"], one)

    def on_controllers(self, version: str, text: str) -> None:
        self.found["cgroup2"] = version == "v2"
        self.found["controllers"] = frozenset(decoded_list(text))


def _fact(kind: str, may: str) -> PathFact:
    return PathFact(kind, "r" in may, "w" in may, "x" in may, "s" not in may, "m" in may)


def _address(text: str) -> str:
    """An address as proc_net_tcp(5) writes it: words of four bytes in the order of the machine, which is taken for little-endian."""
    raw = b"".join(bytes.fromhex(text[place : place + 8])[::-1] for place in range(0, len(text), 8))
    return str(ipaddress.ip_address(raw))


def _usual(words: Iterable[str]) -> Iterator[str]:
    """Addresses in their usual form; if_inet6 has 32 hexadecimal digits."""
    for word in words:
        try:
            yield str(ipaddress.ip_address(bytes.fromhex(word) if len(word) == 32 and ":" not in word else word))
        except ValueError:
            continue
