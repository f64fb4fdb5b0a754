"""The drivers behind one protocol. A question to a BMC runs in a process of its own: its library is loaded there only, its time has a
bound, and its password goes through a pipe, never through arguments."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from roles.engine.bounds import read_json
from roles.engine.context import OutOfReach
from roles.engine.harmless import one_line
from roles.engine.power.model import Command, Driver, Ipmi, Redfish, WakeOnLan
from roles.engine.timeouts import patient

#: What a machine's power is. `unknown`: the driver cannot ask, or the answer is neither.
State = Literal["on", "off", "unknown"]
Verb = Literal["state", "on", "force_off"]
_MOST = 300
_HOME = Path(__file__).resolve().parents[3]


class PowerError(OutOfReach):
    """A power switch did not answer, or refused. Has no secret."""


class Switch(Protocol):
    """The power of one machine. Each call takes a bounded time, and raises PowerError. An accepted order is no result: ask for the state
    until it is there."""

    def state(self) -> State: ...

    def on(self) -> None: ...

    def force_off(self) -> None:
        """Cut the power, whatever runs."""


def switch_of(driver: Driver) -> Switch:
    if isinstance(driver, WakeOnLan):
        return Waking(driver)
    return Programs(driver) if isinstance(driver, Command) else Bmc(driver)


def secret(driver: Redfish | Ipmi) -> str:
    """The password of a BMC. Raises PowerError."""
    if driver.password_env:
        if not (found := os.environ.get(driver.password_env)):
            raise PowerError(f"the environment has no {driver.password_env}, which power names as password_env")
        return found
    path = Path(driver.password_file).expanduser()
    try:
        # One open file for the check and the reading: nobody can replace it between them.
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno())
            if not stat.S_ISREG(mode.st_mode) or mode.st_mode & 0o077 or mode.st_uid not in (0, os.geteuid()):
                raise PowerError(f"password_file {path}: others may read or write it; `chmod 600 {path}`, as a file of your own")
            return file.readline().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PowerError(f"password_file {path}: {(isinstance(error, OSError) and error.strerror) or 'it is no text'}") from None


@dataclass(frozen=True)
class Bmc:
    """A BMC, asked by `python -m roles.engine.power`."""

    driver: Redfish | Ipmi

    def state(self) -> State:
        return _state(self._ask("state"))

    def on(self) -> None:
        self._ask("on")

    def force_off(self) -> None:
        self._ask("force_off")

    def _ask(self, verb: Verb) -> str:
        asked = json.dumps({"verb": verb, "password": secret(self.driver), "power": self.driver.model_dump(mode="json")})
        said = _run([sys.executable, "-m", "roles.engine.power"], self.driver, asked)
        try:
            found = read_json(said)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise PowerError(f"{self.driver.about}: the driver gave no answer")
        if error := found.get("error"):
            raise PowerError(f"{self.driver.about}: {one_line(str(error))[:_MOST]}")
        return str(found.get("state", ""))


@dataclass(frozen=True)
class Programs:
    """The operator's own programs: 0 is success, and the first line that `status` prints decides."""

    driver: Command

    def state(self) -> State:
        lines = _run(self.driver.status, self.driver).splitlines()
        return _state(lines[0].strip().lower() if lines else "")

    def on(self) -> None:
        _run(self.driver.on, self.driver)

    def force_off(self) -> None:
        _run(self.driver.off, self.driver)


@dataclass(frozen=True)
class Waking:
    """Wake-on-LAN: it can only turn a machine on, and cannot ask it anything."""

    driver: WakeOnLan

    def state(self) -> State:
        return "unknown"

    def on(self) -> None:
        frame, sent, errors = magic(self.driver.mac), 0, []
        for address in self.driver.broadcast:
            try:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
                    out.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                    out.sendto(frame, (address, self.driver.port))
                    sent += 1
            except OSError as error:
                errors.append(f"{address}: {error.strerror or error}")
        if not sent:
            raise PowerError(f"{self.driver.about}: the frame could not be sent: {'; '.join(errors)}")

    def force_off(self) -> None:
        raise PowerError(f"{self.driver.about}: Wake-on-LAN cannot turn a machine off; go to it, and hold its power button")


def magic(mac: str) -> bytes:
    """The frame that wakes a machine: six bytes FF, and sixteen times its MAC address (AMD, Magic Packet Technology, 20213)."""
    return b"\xff" * 6 + bytes.fromhex(mac.replace(":", "").replace("-", "")) * 16


def _state(text: str) -> State:
    return "on" if text == "on" else "off" if text == "off" else "unknown"


def _run(argv: Sequence[str], driver: Driver, given: str | None = None) -> str:
    """Standard output of a program that has ended with 0. Raises PowerError."""
    seconds = patient(driver.timeout)
    try:
        # gevent's subprocess.run refuses `stdin` beside `input`, even if one is None.
        source: dict[str, Any] = {"stdin": subprocess.DEVNULL} if given is None else {"input": given, "cwd": _HOME}
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=seconds, check=False, **source)
    except subprocess.TimeoutExpired:
        raise PowerError(f"{driver.about}: no answer within {seconds:g} s") from None
    except OSError as error:
        raise PowerError(f"{driver.about}: {argv[0]}: {error.strerror or error}") from None
    if done.returncode != 0:
        # What a program of the operator complains may repeat a secret of its own: its last line, and no more.
        lines = done.stderr.strip().splitlines()
        said = f": {one_line(lines[-1])[:_MOST]}" if lines and given is None else ""
        raise PowerError(f"{driver.about}: exit status {done.returncode}{said}")
    return str(done.stdout)[:65536]
