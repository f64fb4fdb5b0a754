"""The transient unit of a shadow control plane on a control-plane node: started over SSH, alive as long as this side is."""

from __future__ import annotations

import base64
import random
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from roles.engine.bridge import Feed, Remote
from roles.engine.bridge.tasks import Event, spawn
from roles.engine.control_plane import Component
from roles.engine.editing import last_flag
from roles.engine.remote import RemoteError
from roles.engine.scripts import decoded, decoded_text, filled
from roles.engine.shadow.programs import Ports
from roles.engine.shadow.store import ShadowError
from roles.engine.timeouts import Deadline, patient

# Seconds: from one heartbeat to the next, without any until the unit ends, and that it may live at most.
BEAT_SECONDS, LIFE_SECONDS, MOST_SECONDS = 10, 60, 3600
# Until it says what it has found on the node.
FOUND_SECONDS = 30
# Characters of a log that are shown.
_MOST_SAID = 400
# Below those of NodePorts and of outgoing connections (ip_local_port_range).
_PORTS, _CANDIDATES = range(10100, 29900), 16


@dataclass(frozen=True)
class Own:
    """What of the node's own components a shadow runs. `etcd_pod`: NAMESPACE_NAME of its static pod, as `log_name` of a component."""

    api: Component
    scheduler: Component
    etcd_pod: str

    @property
    def configuration(self) -> str:
        """The path of the scheduler's own configuration in its container; "" if it has none."""
        return last_flag(self.scheduler.process.argv, "config") or ""


@dataclass
class Found:
    """What the unit has found on its node: `memory` in KiB; `configuration` and when it was written (seconds, the node's clock)."""

    memory: int = 0
    ports: tuple[int, ...] = ()
    configuration: bytes = b""
    written: int = 0


@dataclass
class Unit:
    """One unit. `limit`: the bytes of memory that it may use."""

    remote: Remote
    own: Own
    limit: int
    name: str = field(default_factory=lambda: f"daytwo-shadow-{random.SystemRandom().randrange(16**8):08x}")
    found: Found = field(default_factory=Found)
    why: str = ""
    _feed: Feed = field(default_factory=Feed)
    _said: Event = field(default_factory=Event)
    _over: Event = field(default_factory=Event)

    @property
    def folder(self) -> str:
        """A file system of the unit alone, in memory."""
        return folder_of(self.name)

    def open(self) -> Found:
        """Start it, without any program yet. Raises ShadowError and RemoteError."""
        self._feed.put(base64.b64encode(self._script().encode()).decode() + "\n")
        spawn(self._hold)
        if not self._said.wait(patient(FOUND_SECONDS)):
            self.close()
            raise ShadowError(f"{self.remote.name}: no answer about a shadow control plane within {patient(FOUND_SECONDS):g} s")
        self.check()
        spawn(self._beat)
        return self.found

    def start(self, files: Mapping[str, bytes]) -> None:
        """Its etcd and API server."""
        for name, data in files.items():
            self._feed.put(f"file {name} {base64.b64encode(data).decode()}\n")
        self._feed.put("start\n")

    def schedule(self) -> None:
        self._feed.put("schedule\n")

    def check(self) -> None:
        """Raises ShadowError if it has ended."""
        if self._over.is_set():
            raise ShadowError(f"{self.remote.name}: the shadow control plane has ended: {self.why or 'without a word'}")

    def close(self) -> None:
        """End it. It is gone when this returns, or its node does not answer: then it ends by itself."""
        self._feed.put("q\n")
        self._feed.put(None)
        self._over.wait(patient(FOUND_SECONDS))

    def wait_until(self, true: Callable[[], bool], seconds: float, what: str) -> None:
        """Raises ShadowError if it does not become true in time, or if the unit ends."""
        deadline = Deadline(seconds)
        while not true():
            self.check()
            deadline.pause(0.1, late=ShadowError(f"{self.remote.name}: the shadow control plane: {what} within {deadline.seconds:g} s"))

    def _hold(self) -> None:
        try:
            answer = self.remote.run(command(self.name, self.limit), on_line=self._heard, feed=self._feed)
            self.why = self.why or ("" if answer.code == 0 else answer.complaint)
        except RemoteError as error:
            self.why = self.why or str(error)
        finally:
            self._over.set()
            self._said.set()

    def _beat(self) -> None:
        while not self._over.is_set():
            self._feed.put(".\n")
            self._over.wait(BEAT_SECONDS)

    def _heard(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        try:
            if word == "refused":
                self.why = _REFUSED.get(rest, rest)
            elif word == "ended":
                name, _, log = rest.partition(" ")
                self.why = " ".join([f"{name} has ended:", *decoded_text(log).split()])[-_MOST_SAID:]
            elif word == "memory":
                self.found.memory = int(rest)
            elif word == "configuration":
                written, data = rest.split(" ")
                self.found.written, self.found.configuration = int(written), decoded(data)
            elif word == "ports":
                self.found.ports = tuple(map(int, rest.split()))
                self._said.set()
        except ValueError:
            self.why = "its answer cannot be read"

    def _script(self) -> str:
        return filled(
            "shadow.sh.j2",
            folder=self.folder,
            api=self.own.api.process,
            api_pod=self.own.api.log_name,
            scheduler=self.own.scheduler.process,
            scheduler_pod=self.own.scheduler.log_name,
            etcd_pod=self.own.etcd_pod,
            configuration=self.own.configuration,
            ports=" ".join(map(str, random.SystemRandom().sample(_PORTS, _CANDIDATES))),
            life=round(patient(LIFE_SECONDS)),
        )


_REFUSED = {
    **{
        name: f"{name} does not run any more as it was seen, or its program cannot be proven to be the node's own"
        for name in ("kube-apiserver", "kube-scheduler")
    },
    "etcd": "no process can be proven to be the etcd of the node's own static pod",
    "configuration": "the scheduler's configuration cannot be read",
    "folder": "its folder cannot be used",
}


def ports(found: Sequence[int]) -> Ports:
    """Raises ValueError if there are not enough."""
    if len(found) < len(Ports.__dataclass_fields__):
        raise ValueError("no free ports on the loopback")
    return Ports(*found[:4])


def folder_of(name: str) -> str:
    # systemd mounts what is RuntimeDirectory over a file system of the same place.
    return f"/run/{name}/own"


def command(name: str, limit: int) -> str:
    """The command that starts the unit, with its standard input and output as those of the unit."""
    properties = {
        "CPUWeight": 20,
        "IPAddressAllow": "localhost",
        "IPAddressDeny": "any",
        "KillMode": "control-group",
        "KillSignal": "SIGKILL",
        "LimitCORE": 0,
        "MemoryMax": limit,
        "Nice": 10,
        "OOMScoreAdjust": 1000,
        "PrivateTmp": "yes",
        "ProtectHome": "yes",
        "ProtectSystem": "strict",
        # The place of the folder, which systemd removes at the end.
        "RuntimeDirectory": name,
        "RuntimeDirectoryMode": "0700",
        "RuntimeMaxSec": MOST_SECONDS,
        "TasksMax": 500,
        "TemporaryFileSystem": f"{folder_of(name)}:mode=0700,size={limit // 2}",
    }
    # systemd makes one dollar sign of two. The first line of the standard input is the script.
    first = 'IFS= read -r script && eval "$$(printf %s "$$script" | base64 -d)"'
    words = ["systemd-run", "--pipe", "--wait", "--quiet", "--collect", f"--unit={name}", "--description=daytwo: a shadow control plane"]
    return shlex.join([*words, *(f"--property={key}={value}" for key, value in properties.items()), "/bin/sh", "-c", first])
