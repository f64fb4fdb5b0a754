"""The three witnesses of a machine that is off: its BMC, its lease, and the wire. No one of them makes `off`: a BMC may lie, a lease ends
with its kubelet, and a network may be down."""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from roles.engine.api import ApiFailure
from roles.engine.api.nodes import node_lease
from roles.engine.bounds import digits
from roles.engine.kube import Object, is_ready
from roles.engine.kube.fields import node_addresses, status_of
from roles.engine.kube.workloads import node_path
from roles.engine.objects import Session
from roles.engine.power import PowerError, State, Switch
from roles.engine.remote import RemoteError, Shell
from roles.engine.scripts import filled
from roles.engine.timeouts import patient

WIRE_SECONDS = 60
_SSH, _KUBELET = 22, 10250


@dataclass(frozen=True)
class Seen:
    """What the witnesses say at one time. `bmc_why`: why its BMC says nothing; `silent`: None if the wire could not be asked; `answers`:
    what did. `lease`: for how many seconds it has not been renewed; `quiet`: for longer than it lasts, and the Node is NotReady."""

    bmc: State = "unknown"
    bmc_why: str = ""
    asks_bmc: bool = True
    ready: bool = False
    lease: float = 0.0
    quiet: bool = False
    silent: bool | None = None
    answers: str = ""

    @property
    def is_off(self) -> bool:
        return (self.bmc == "off" or not self.asks_bmc) and self.quiet and self.silent is True

    @property
    def lies(self) -> bool:
        """Its BMC says off, and the machine answers."""
        return self.bmc == "off" and self.silent is False

    def __str__(self) -> str:
        bmc = f"its BMC says {self.bmc}" if self.asks_bmc else "its driver cannot ask the machine"
        why = f" ({self.bmc_why})" if self.bmc_why else ""
        node = "Ready" if self.ready else "NotReady"
        wire = {None: "the wire could not be asked", True: "nothing answers on the wire", False: f"it answers on the wire ({self.answers})"}
        return f"{bmc}{why}; its Node is {node}, and its lease is {self.lease:.0f} s old; {wire[self.silent]}"


class Witnesses:
    """Those of one machine, from before its shutdown on. `neighbour`: the host that asks the wire."""

    def __init__(self, session: Session, node: Object, name: str, switch: Switch, neighbour: Shell, *, asks_bmc: bool) -> None:
        self._session, self._name, self._switch, self._neighbour = session, name, switch, neighbour
        self._addresses, self._kubelet_port = addresses(node), kubelet_port(node)
        self._asks_bmc = asks_bmc
        self._renewed: datetime | None = None
        self._since = time.monotonic()

    def look(self, *, reached: bool) -> Seen:
        """`reached`: it answers this machine's SSH. Raises nothing: a witness that cannot be asked says nothing."""
        bmc, why = self.bmc()
        ready, age, quiet = self._lease()
        silent, answers = (False, "SSH") if reached else self.neighbour()
        return Seen(bmc, why, self._asks_bmc, ready, age, quiet, silent, answers)

    def bmc(self) -> tuple[State, str]:
        try:
            return self._switch.state(), ""
        except PowerError as error:
            return "unknown", str(error)

    def _lease(self) -> tuple[bool, float, bool]:
        """Whether the Node is Ready, how long the lease has not changed, and whether that is too long. Time is this machine's: the node's
        own clock decides nothing."""
        try:
            lease = self._session.asked(lambda api: node_lease(api, self._name))
            node = self._session.fetch(node_path(self._name))
        except ApiFailure:
            return False, 0.0, False
        if lease.renewed != self._renewed:
            self._renewed, self._since = lease.renewed, time.monotonic()
        age, ready = time.monotonic() - self._since, node is not None and is_ready(node)
        return ready, age, node is not None and not ready and age > lease.duration

    def neighbour(self) -> tuple[bool | None, str]:
        """Whether nothing answers a control-plane node, which asks the machine's internal addresses; None if that could not be asked. And
        what answered."""
        if not self._addresses:
            return None, ""
        script = filled("wire.sh.j2", addresses=self._addresses, ports=[_SSH, self._kubelet_port])
        try:
            said = self._neighbour.run("sh -s", stdin=script, timeout=patient(WIRE_SECONDS)).stdout
        except RemoteError:
            return None, ""
        return heard(said)


def heard(lines: list[str]) -> tuple[bool | None, str]:
    """What the script wire.sh.j2 printed. Pure."""
    if "end" not in lines or not any(line.startswith("tried ") for line in lines):
        return None, ""
    answers = list(dict.fromkeys(line.removeprefix("answers ") for line in lines if line.startswith("answers ")))
    return not answers, ", ".join(answers)


def addresses(node: Object) -> list[str]:
    """The internal addresses of a Node. They are what its kubelet says: only those that are addresses count."""
    found = []
    for kind, address in node_addresses(node):
        if kind == "InternalIP":
            with contextlib.suppress(ValueError):
                found.append(str(ipaddress.ip_address(address)))
    return found[:2]


def kubelet_port(node: Object) -> int:
    endpoints: Any = status_of(node).get("daemonEndpoints")
    endpoint: Any = endpoints.get("kubeletEndpoint") if isinstance(endpoints, Mapping) else None
    port = digits(str(endpoint.get("Port"))) if isinstance(endpoint, Mapping) else None
    return port if port is not None and 0 < port < 65536 else _KUBELET
