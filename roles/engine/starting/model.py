"""What a process needs to start again, what a node answers about it, and what stands in the way. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from roles.engine.certificates import Material
from roles.engine.starting.cri import RuntimeHealth

#: The component of needs that are those of a change itself, and of no program of the node.
RECORD: Final = "daytwo"


class Stops(StrEnum):
    """What would not work. `start`: the process would not start, or not be its node again; `pods`: no new pod would start on the node;
    `network`: no new pod with a network of its own would (those in the host's network would, such as the control plane's); `note`:
    everything starts, and something else is wrong."""

    start = "start"
    pods = "new pods"
    network = "new pods with a network of their own"
    note = "note"


class Cause(StrEnum):
    """Why."""

    unit = "unit"
    tunable = "kernel tunable"
    file = "file"
    certificate = "certificate"
    key = "key"
    identity = "identity"
    checkpoint = "checkpoint"
    runtime = "container runtime"
    cgroups = "cgroups"
    swap = "swap"
    port = "port"
    disk = "disk"
    read_only = "read-only file system"
    limit = "limit"
    address = "address"
    dns = "DNS"
    network = "network plugin"
    sandbox = "sandbox"
    image = "image"
    api = "API server"
    #: What the node cannot show: it may be well, or not.
    unproven = "not proven"


class Holds(StrEnum):
    """What a path must be. `certificates`: a file with at least one; `identity`: a kubeconfig, with the files that it names; `written`: a
    directory that is there and can be written, or can be made; `anything`: a file or a directory."""

    file = "file"
    certificates = "file with certificates"
    identity = "kubeconfig"
    directory = "directory"
    anything = "file or directory"
    existing = "path that exists"
    program = "program"
    socket = "socket"
    device = "device"
    written = "directory that can be written"


@dataclass(frozen=True)
class Tunable:
    """A kernel tunable that a kubelet checks when it starts: its name as sysctl(8) writes it, and the only value that it accepts."""

    name: str
    value: int
    meaning: str

    @property
    def path(self) -> str:
        return f"/proc/sys/{self.name.replace('.', '/')}"


@dataclass(frozen=True)
class FileRow:
    """One field or flag that names a path. `field` is a path in the KubeletConfiguration ("": it has none), `flag` a flag without its
    dashes ("": none); `default`: what counts if neither is set; `dates`: the dates of its first certificate count."""

    component: str
    holds: Holds
    stops: Stops
    field: str = ""
    flag: str = ""
    default: str = ""
    dates: bool = False

    @property
    def name(self) -> str:
        return self.field or f"--{self.flag}"


@dataclass(frozen=True)
class KeyRow:
    """Two fields or flags that name a certificate and its private key, without which a process does not start. `alone`: the file has one
    certificate, and no other."""

    component: str
    certificate: str
    key: str
    source: str
    alone: bool = False


@dataclass(frozen=True)
class KeyNeed:
    """The paths of such a pair."""

    row: KeyRow
    certificate: str
    key: str


@dataclass(frozen=True)
class PathNeed:
    """A path of the node that `named_by` (a field, a flag, a unit's setting, a volume) names. `component` needs it."""

    component: str
    named_by: str
    path: str
    holds: Holds
    stops: Stops
    dates: bool = False


@dataclass(frozen=True)
class PortNeed:
    """A TCP port that a process listens on."""

    component: str
    named_by: str
    port: int
    address: str


@dataclass(frozen=True)
class ImageNeed:
    """The image of a container that is created again, and when the kubelet pulls it: Always, IfNotPresent or Never."""

    component: str
    image: str
    policy: str

    @property
    def listed_as(self) -> str:
        """What the runtime's list of images has of it: the digest that it names, or the name with its tag."""
        name, _, digest = self.image.partition("@")
        # A runtime adds what a name of Docker Hub leaves out: docker.io/library/.
        name = name.removeprefix("index.").removeprefix("docker.io/")
        return digest or (name if ":" in name.rpartition("/")[2] else f"{name}:latest")


@dataclass(frozen=True)
class Needs:
    """What a kubelet and some components of its node need to start. `settings`: the kubelet's values that decide which rules count, by
    their field; `unit`: the kubelet's, whose main process holds what is free after its end; `addresses`: of --node-ip;
    `cgroups`: those that must be there, by the field that names them; `provider_config` and `provider_folder`: of credential providers;
    `keys`: certificates and their private keys; `checkpoints`: files in which the kubelet keeps what a policy assigned, and that policy;
    `reaches`: the kubeconfig whose API server a kubelet that restarts must reach."""

    node_name: str
    paths: tuple[PathNeed, ...] = ()
    ports: tuple[PortNeed, ...] = ()
    tunables: tuple[Tunable, ...] = ()
    socket: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    minor: int | None = None
    unit: str = ""
    addresses: tuple[str, ...] = ()
    cgroups: Mapping[str, str] = field(default_factory=dict)
    provider_folder: str = ""
    provider_config: str = ""
    keys: tuple[KeyNeed, ...] = ()
    checkpoints: Mapping[str, str] = field(default_factory=dict)
    images: tuple[ImageNeed, ...] = ()
    reaches: str = ""


@dataclass(frozen=True)
class PathFact:
    """What is at a path, links followed. `kind`: file, directory, socket, device, other or none; `makeable`: nothing is there, and the
    nearest directory above it can be written."""

    kind: str
    readable: bool = False
    writable: bool = False
    executable: bool = False
    empty: bool = False
    makeable: bool = False

    @property
    def there(self) -> bool:
        return self.kind != "none"


@dataclass(frozen=True)
class Listener:
    """A TCP socket that listens: its address in the usual form, the process that holds it (0: unknown) and its name."""

    port: int
    address: str
    pid: int
    name: str


@dataclass(frozen=True)
class StartFacts:
    """What a node answered. What it did not answer is missing, and nothing follows from it. `tunables`: value, and whether it can be
    written; `names`: the paths that a kubeconfig names, by its own path and the key; `pems`: certificates by path; `keys`: private keys by
    path; `space`: free MiB and inodes (None: its file system does not count them) by directory; `tasks`: threads now, and how many there
    may be; `inotify`: the same of root's inotify instances, if none is left; `providers`: the configuration of credential providers,
    `programs`: the programs in their directory; `checkpoints`: their content by path; `cpus`: those that are online; `images`: whether the
    node has them; `api`: curl's exit status for the API server of the kubelet's kubeconfig, and its URL; `requires`: units
    that the kubelet's requires and that are not loaded, with their state; `runs`: the programs that start containers, and whether they are
    there; `complete`: the answer is whole."""

    epoch: int = 0
    tunables: Mapping[str, tuple[int, bool]] = field(default_factory=dict)
    paths: Mapping[str, PathFact] = field(default_factory=dict)
    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pems: Mapping[str, bytes] = field(default_factory=dict)
    keys: Mapping[str, Material] = field(default_factory=dict)
    nameservers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    space: Mapping[str, tuple[float, int | None]] = field(default_factory=dict)
    listeners: tuple[Listener, ...] = ()
    main_pid: int = 0
    addresses: frozenset[str] | None = None
    controllers: frozenset[str] | None = None
    cgroups: Mapping[str, bool] = field(default_factory=dict)
    tasks: tuple[int, int] | None = None
    inotify: tuple[int, int] | None = None
    runtime: RuntimeHealth | None = None
    swap: int | None = None
    cgroup2: bool | None = None
    providers: str | None = None
    programs: frozenset[str] | None = None
    checkpoints: Mapping[str, str] = field(default_factory=dict)
    cpus: frozenset[int] | None = None
    images: Mapping[str, bool] = field(default_factory=dict)
    api: tuple[int, str] | None = None
    requires: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, bool] = field(default_factory=dict)
    complete: bool = False


@dataclass(frozen=True)
class Obstacle:
    """What keeps a component of a host from its next start, or its node from new pods. `subject`: the file, tunable, port or other thing;
    `value` and `needed`: what it is, and must be; `why`: one clause with all of that, and the field or flag that asks for it; `way_out`:
    commands and files that are there; `commands`: those that repair it, as root on the host, if commands alone can. It is no Finding: it
    refuses a change before it is one; the audit makes findings of the rest."""

    host: str
    component: str
    cause: Cause
    stops: Stops
    subject: str
    value: str
    needed: str
    why: str
    way_out: str
    commands: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, Cause, Stops, str]:
        """The same for the same obstacle at another time."""
        return self.component, self.cause, self.stops, self.subject

    @property
    def is_of_record(self) -> bool:
        """It keeps a change from its record, and nothing from a start."""
        return self.component == RECORD

    @property
    def rule(self) -> str:
        """What would not work, and why."""
        if self.stops is Stops.note:
            return self.why
        if self.stops is not Stops.start:
            which = "no new pod" if self.stops is Stops.pods else "no new pod with a network of its own"
            return f"{which} would start on the node: {self.why}"
        if self.cause is Cause.api:
            return f"its kubelet would not reach its API server: {self.why}"
        own = {"kubelet": "its kubelet would not start again", RECORD: "a change could not be recorded on the node, or reverted"}
        return f"{own.get(self.component, f'its {self.component} would not start again')}: {self.why}"

    def __str__(self) -> str:
        return f"{self.rule}; {self.way_out}" if self.way_out else self.rule
