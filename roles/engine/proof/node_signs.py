"""What a node itself shows of one process (templates/signs.sh.j2): one command for all signs of a change, and its typed answer."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from roles.engine.node.logind import MOST_LOCKS, Inhibitor, parse_inhibitor
from roles.engine.scripts import decoded_text, filled

SECONDS = 60
_LIMIT = re.compile(r"^(Max [a-z ]+?) {2,}(\S+) +(\S+)", re.MULTILINE)
# proc_net_tcp(5): the local address and port in hex, the other side, the state, ..., the inode.
_LISTENS = re.compile(r"^\s*[0-9]+: [0-9A-F]+:([0-9A-F]{4}) \S+ 0A (?:\S+ +){5}([0-9]+)", re.MULTILINE)


@dataclass(frozen=True)
class FileFacts:
    """A file that a process writes: which one it is (device and inode), its bytes, and when it was last written."""

    identity: str
    size: int
    written: int


@dataclass(frozen=True)
class Wanted:
    """What to read. `kinds`: locks, process, ports, cgroups; `log`: `journal`, the name of a container, or "": no log; `written`: by path
    inside the container the path on the node; `certificates`: files with certificates; `anonymous`: URLs that are asked without
    credentials."""

    kinds: frozenset[str] = frozenset()
    log: str = ""
    written: Mapping[str, str] = field(default_factory=dict)
    certificates: tuple[str, ...] = ()
    anonymous: tuple[str, ...] = ()

    def script(self, pid: str) -> str:
        return filled(
            "signs.sh.j2",
            pid=pid,
            wanted=self.kinds,
            log=self.log,
            written=list(self.written.items()),
            certificates=self.certificates,
            anonymous=self.anonymous,
            most_locks=MOST_LOCKS,
        )

    @property
    def nothing(self) -> bool:
        return self == Wanted()


@dataclass(frozen=True)
class NodeSigns:
    """`delay`: how long logind waits for locks, in seconds; None: it did not answer. `open_files`: the limit of the process;
    `oom_score_adj`: its adjustment; `ports`: where it listens (TCP). `pod_limits`: memory.max, or cgroup v1's
    memory.limit_in_bytes, of the cgroup of all pods, in each driver's place. `log`: the last line that it has written. `written`: by path
    inside the container the file as the process sees it, and the node's own. `certificates`: PEM, by file. `anonymous`: HTTP statuses
    without credentials, by URL (0: no answer)."""

    inhibitors: tuple[Inhibitor, ...] = ()
    delay: float | None = None
    open_files: int | None = None
    oom_score_adj: int | None = None
    ports: frozenset[int] = frozenset()
    pod_limits: tuple[str, ...] = ()
    log: str = ""
    written: Mapping[str, tuple[FileFacts | None, FileFacts | None]] = field(default_factory=dict)
    certificates: Mapping[str, str] = field(default_factory=dict)
    anonymous: Mapping[str, int] = field(default_factory=dict)


def parse(lines: Iterable[str]) -> NodeSigns:
    """Raises ValueError if the answer is cut short or malformed."""
    one: dict[str, list[str]] = {}
    many: dict[str, list[list[str]]] = {}
    for line in lines:
        name, *fields = line.split(" ")
        one[name] = fields
        many.setdefault(name, []).append(fields)
    if "end" not in one or "signs" not in one:
        raise ValueError("its answer was cut short")
    try:
        limits = {name: soft for name, soft, _ in _LIMIT.findall(_text(one.get("limits", [""])[0]))}
        own = set(_text(one.get("sockets", [""])[0]).split())
        return NodeSigns(
            inhibitors=tuple(parse_inhibitor(_text(fields[0])) for fields in many.get("inhibitor", ())),
            delay=int(one["delay"][0]) / 1e6 if one.get("delay", [""])[0] else None,
            open_files=_number(limits.get("Max open files", "")),
            oom_score_adj=_number(one.get("oom", [""])[0]),
            ports=frozenset(int(port, 16) for port, inode in _LISTENS.findall(_text(one.get("tcp", [""])[0])) if inode in own),
            pod_limits=tuple(_text(fields[0]).strip() for fields in many.get("limit", ())),
            log=_text(one.get("log", [""])[0]).strip(),
            written={_text(path): (_file(inside), _file(outside)) for path, inside, outside in many.get("written", ())},
            certificates={_text(path): _text(content) for path, content in many.get("certificate", ())},
            anonymous={_text(url): _number(status[0] if status else "") or 0 for url, *status in many.get("anonymous", ())},
        )
    except (IndexError, ValueError, binascii.Error) as error:
        raise ValueError(f"its answer cannot be parsed ({type(error).__name__}: {error})") from None


_text = partial(decoded_text, strict=True)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def _file(text: str) -> FileFacts | None:
    if text == "-":
        return None
    identity, size, written = text.split(",")
    return FileFacts(identity, int(size), int(written))
