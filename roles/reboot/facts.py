"""What a reboot of a node depends on, as the node itself shows it (templates/boot_facts.sh.j2), and how far a reboot is."""

from __future__ import annotations

import binascii
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from roles.engine.node.logind import MOST_LOCKS, parse_inhibitor
from roles.engine.objects import NotDone
from roles.engine.remote import RemoteError, Shell
from roles.engine.scripts import decoded_text, filled, properties
from roles.engine.starting import TUNABLES
from roles.engine.timeouts import patient
from roles.reboot import next_boot
from roles.reboot.ending import Ending
from roles.reboot.next_boot import NextBoot

SECONDS = 120
#: For each program that is asked whether a reboot is needed.
SIGN_SECONDS = 20
# The first kernels and packages: a node may have written any number.
MOST = 100
#: The unit in which a node orders its reboot.
UNIT = "daytwo-reboot.service"
#: Units that may be the container runtime, and those that may be the SSH server.
RUNTIMES = ("containerd.service", "crio.service", "docker.service", "cri-docker.service")
SSH = ("ssh.service", "sshd.service", "ssh.socket", "sshd.socket")

_BOOT = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


class FactsError(RemoteError):
    """The answer of a node is incomplete or malformed. Names the host."""


class OrderRefused(NotDone):
    """The node did not take the order to reboot, or to shut down: it goes on as before."""


@dataclass(frozen=True)
class BootUnit:
    """A unit as `systemctl show` prints it; `wanted` are the units that start it."""

    name: str
    load: str = ""
    file_state: str = ""
    active: str = ""
    wanted: tuple[str, ...] = ()

    @property
    def is_active(self) -> bool:
        return self.active in ("active", "activating", "reloading")

    @property
    def why_not_at_boot(self) -> str:
        """Why the next boot does not start it; "" if it does (systemd.unit(5), systemctl(1): is-enabled)."""
        if self.load in ("", "not-found"):
            return "it does not exist"
        if self.load.startswith("masked") or self.file_state.startswith("masked"):
            return "it is masked"
        if self.file_state == "enabled-runtime":
            return "it is enabled only until the next boot"
        if self.file_state == "enabled" or self.wanted:
            return ""
        return f"it is {self.file_state or 'in no state that systemd shows'}, and no other unit starts it"


@dataclass(frozen=True)
class Boot:
    """One boot of a node. `age`: for how many seconds its first process runs; `epoch` is the node's own clock, in seconds; `offset`: how
    many seconds that clock is ahead of the operator's."""

    id: str
    age: float
    epoch: float
    kernel: str
    offset: float = 0.0

    @property
    def began(self) -> float:
        """When it began, by the node's own clock."""
        return self.epoch - self.age


@dataclass(frozen=True)
class BootFacts:
    """`family`: ID and ID_LIKE of os-release(5). `installed`: the releases of installed kernels, and whether each has an initrd. `signs`:
    what asks for a reboot or denies it, as in signs.py; `packages` asked for it. `scheduled`: a scheduled shutdown, in systemd's words;
    `inhibitors`: who forbids one, and why; `ends_pods`: its kubelet delays one, to end the pods itself (shutdownGracePeriod). `fstab`: the
    errors of findmnt(8), None if it was not asked. `took`: seconds of the last boot, if the node knows that. `next`: what the next boot
    sets; `replaced`: the runtimes whose file was replaced since they started; `broken`: units that run, and what their start would
    stop at."""

    host: str
    boot: Boot
    family: str = ""
    installed: Mapping[str, bool] | None = None
    signs: Mapping[str, bool] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    scheduled: str = ""
    state: str = ""
    inhibitors: tuple[str, ...] = ()
    ends_pods: bool = False
    units: Mapping[str, BootUnit] | None = None
    fstab: tuple[str, ...] | None = None
    has_etcd: bool = False
    took: float | None = None
    next: NextBoot = field(default_factory=NextBoot)
    replaced: tuple[str, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()

    def unit(self, name: str) -> BootUnit:
        return (self.units or {}).get(name, BootUnit(name))


@dataclass(frozen=True)
class BootState:
    """A node during its reboot. `result` and `said` are those of the unit that ordered it: `success`, or why it failed."""

    boot: Boot
    state: str
    result: str
    said: str

    def check(self, what: str) -> None:
        """Raises OrderRefused if systemd did not take the order, which is known to have come: `what` in words."""
        if self.result not in ("", "success") and self.state != "stopping":
            raise OrderRefused(f"systemd refused the {what} ({self.result}): {self.said or 'it printed nothing'}")


# ---- scripts and their answers


def facts_script(kubelet_unit: str, root_directory: str = "/var/lib/kubelet") -> str:
    return filled(
        "boot_facts.sh.j2",
        units=[kubelet_unit, *RUNTIMES, *SSH, *next_boot.NETWORKS, *next_boot.WITH_THE_NODE, *next_boot.FIREWALLS, *next_boot.SWAP_UNITS],
        most=MOST,
        most_locks=MOST_LOCKS,
        seconds=SIGN_SECONDS,
        sysctls=[one.name for one in (*TUNABLES, *next_boot.SYSCTLS)],
        modules=[one.name for one in next_boot.MODULES],
        runtimes=RUNTIMES,
        starting=[kubelet_unit, *RUNTIMES, *SSH],
        loaders=[kubelet_unit, *RUNTIMES],
        directories=[root_directory, *next_boot.DIRECTORIES],
    )


def reboot_script(boot_id: str, run: str, ending: Ending | None = None, verb: Literal["reboot", "poweroff"] = "reboot") -> str:
    """Orders the reboot, or the end without a new boot, unless the node has the order already, or runs in another boot by now. `ending` is
    for a reboot."""
    return filled("boot.sh.j2", boot=boot_id, unit=UNIT, run=run, ending=ending, verb=verb)


def state_script() -> str:
    return filled("boot_state.sh.j2", unit=UNIT)


def ask_facts(remote: Shell, kubelet_unit: str, root_directory: str = "/var/lib/kubelet") -> BootFacts:
    """Raises RemoteError."""
    lines, clock = _asked(remote, facts_script(kubelet_unit, root_directory), SECONDS)
    return parse_facts(remote.name, lines, clock)


def ask_state(remote: Shell, seconds: float) -> BootState:
    """Raises RemoteError."""
    lines, clock = _asked(remote, state_script(), seconds)
    return parse_state(remote.name, lines, clock)


def order(remote: Shell, script: str, what: str) -> bool:
    """Order a boot, or a shutdown: `what` in words. False if no answer came: then its effect shows whether the node has the order. Raises
    OrderRefused."""
    try:
        answer = remote.run("sh -s", stdin=script, timeout=patient(SECONDS))
    except RemoteError:
        return False
    if answer.code != 0:
        raise OrderRefused(f"the {what} could not be ordered: {answer.complaint}")
    return True


def ask_clock(remote: Shell) -> float:
    """How many seconds the clock of a host is ahead of the operator's. Raises RemoteError."""
    return ask_state(remote, SECONDS).boot.offset


def _asked(remote: Shell, script: str, seconds: float) -> tuple[list[str], Callable[[float], float]]:
    """The answer, and the function that compares a node's clock with the operator's: halfway between question and answer."""
    before = time.time()
    answer = remote.run("sh -s", stdin=script, timeout=patient(seconds))
    middle = (before + time.time()) / 2
    if answer.code != 0:
        raise FactsError(f"{remote.name}: {answer.complaint}")
    return answer.stdout, lambda epoch: epoch - middle


def parse_facts(host: str, lines: Iterable[str], offset: Callable[[float], float] = lambda epoch: 0.0) -> BootFacts:
    """Raises FactsError if the answer is cut short or malformed."""
    one, many = _records(host, lines)
    try:
        locks = [parse_inhibitor(_text(fields[0])) for fields in many.get("inhibitor", ())]
        return BootFacts(
            host,
            _boot(one, offset),
            family=_text(one["family"][0]),
            installed={_text(release): initrd == "yes" for release, initrd in many.get("installed", ())},
            signs={name: said == "yes" for name, said in many.get("sign", ())},
            packages=tuple(_text(fields[0]) for fields in many.get("package", ())),
            scheduled=_text(one["scheduled"][0]) if "scheduled" in one else "",
            state=_text(one["state"][0]),
            inhibitors=tuple(f"{lock.who} (PID {lock.pid}): {lock.why}" for lock in locks if lock.blocks_shutdown),
            ends_pods=any(lock.is_kubelets for lock in locks),
            units=_units(_text(one["units"][0])),
            fstab=_errors(_text(one["fstab"][0])) if "fstab" in one else None,
            has_etcd="etcd" in one,
            took=_seconds(_text(one["took"][0])),
            next=next_boot.parse(one, many, _text),
            broken=tuple((unit, _text(why).strip()) for unit, why in many.get("broken", ())),
            replaced=tuple(fields[0] for fields in many.get("replaced", ()) if fields[0] in RUNTIMES),
        )
    except (KeyError, IndexError, ValueError, ZeroDivisionError, binascii.Error) as error:
        raise FactsError(f"{host}: its answer about its boot cannot be parsed ({type(error).__name__}: {error})") from None


def parse_state(host: str, lines: Iterable[str], offset: Callable[[float], float] = lambda epoch: 0.0) -> BootState:
    """Raises FactsError if the answer is cut short or malformed."""
    one, _ = _records(host, lines)
    try:
        said = " ".join(_text(one["said"][0]).split())
        return BootState(_boot(one, offset), _text(one["state"][0]).strip(), _text(one["result"][0]).strip(), said)
    except (KeyError, IndexError, ValueError, ZeroDivisionError, binascii.Error) as error:
        raise FactsError(f"{host}: its answer about its boot cannot be parsed ({type(error).__name__}: {error})") from None


def _records(host: str, lines: Iterable[str]) -> tuple[dict[str, list[str]], dict[str, list[list[str]]]]:
    one: dict[str, list[str]] = {}
    many: dict[str, list[list[str]]] = {}
    for line in lines:
        name, *fields = line.split(" ")
        one[name] = fields
        many.setdefault(name, []).append(fields)
    if "end" not in one:
        raise FactsError(f"{host}: its answer about its boot was cut short")
    return one, many


def _boot(one: Mapping[str, list[str]], offset: Callable[[float], float]) -> Boot:
    found = one["boot"][0]
    if not _BOOT.fullmatch(found):
        raise ValueError("the boot id is not a UUID")
    uptime, epoch, ticks, per_second = map(float, one["clock"])
    return Boot(found, uptime - ticks / per_second, epoch, _text(one["kernel"][0]).strip(), offset(epoch))


_text = partial(decoded_text, strict=True)


def _units(text: str) -> dict[str, BootUnit]:
    """By every name of a unit."""
    units = {}
    for block in text.strip().split("\n\n"):
        found = properties(block)
        wanted = tuple(word for key in ("WantedBy", "RequiredBy", "TriggeredBy") for word in found.get(key, "").split())
        unit = BootUnit(
            found.get("Id", ""), found.get("LoadState", ""), found.get("UnitFileState", ""), found.get("ActiveState", ""), wanted
        )
        for name in {unit.name, *found.get("Names", "").split()}:
            units[name] = unit
    return units


def _seconds(text: str) -> float | None:
    """The sum at the end of a line of systemd-analyze(1): `= 1min 11.3s`; None if it has not ended its boot."""
    found = re.search(r"= ((?:(?:[0-9]+(?:\.[0-9]+)?)(?:h|min|ms|s) ?)+)", text)
    units = {"h": 3600.0, "min": 60.0, "s": 1.0, "ms": 0.001}
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(h|min|ms|s)", found[1]) if found else []
    return sum(float(number) * units[unit] for number, unit in parts) if parts else None


def _errors(text: str) -> tuple[str, ...]:
    """The errors of `findmnt --verify`, each with its mount point; its warnings do not count."""
    target, found = "", []
    for line in text.splitlines():
        if not line.startswith(" "):
            target = line.strip()
        elif line.strip().startswith("[E]"):
            found.append(f"{target}: {line.strip().removeprefix('[E]').strip()}")
    return tuple(found)
