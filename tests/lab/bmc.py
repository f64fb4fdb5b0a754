"""BMCs for nodes of the lab: Redfish (sushy-tools), IPMI (pyghmi's own BMC), and a network card that wakes its machine.

python -m tests.lab.bmc redfish NODE PORT FOLDER | ipmi NODE PORT | listen MAC
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import logging
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.lab.cluster import REPOSITORY_ROOT, Lab
from tests.lab.machine import NAMESPACES
from tests.lab.tools import wait_until

#: Of all BMCs here, and the password as the Redfish one keeps it (bcrypt).
USER, PASSWORD, VARIABLE = "daytwo", "on-and-off", "LAB_BMC_PASSWORD"
_KEPT = "$2b$04$6EGufpzlinXy/79O0sP2JeD55g54fy729Lgp.m/BI1h5nsp6wq.tW"
HERE = "127.0.0.1"
ETH_P_ALL = 3


def _free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as one:
        one.bind((HERE, 0))
        return int(one.getsockname()[1])


def _is_open(port: int) -> bool:
    try:
        socket.create_connection((HERE, port), timeout=1).close()
    except OSError:
        return False
    return True


def _certificate(folder: Path) -> None:
    """A certificate for HERE that is its own CA, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bmc")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HERE))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    (folder / "bmc.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "bmc.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))


@contextlib.contextmanager
def _server(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.lab.bmc", *arguments]
    process = subprocess.Popen(command, cwd=REPOSITORY_ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline().strip() == "ready", arguments
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def redfish(node: str, folder: Path) -> Iterator[dict[str, Any]]:
    """The data key `power` of a node with a Redfish BMC, whose certificate only `verify` knows."""
    _certificate(folder)
    (folder / "users").write_text(f"{USER}:{_KEPT}\n")
    port = _free_port(socket.SOCK_STREAM)
    with _server("redfish", node, str(port), str(folder)):
        wait_until("the Redfish BMC", lambda: _is_open(port), 20)
        yield {
            "driver": "redfish", "address": f"https://{HERE}:{port}", "user": USER, "password_env": VARIABLE,
            "verify": str(folder / "bmc.crt"), "poll": 1, "timeout": 60,
        }  # fmt: skip


@contextlib.contextmanager
def ipmi(node: str, folder: Path) -> Iterator[dict[str, Any]]:
    """The same with IPMI; the password is in a file."""
    port, file = _free_port(socket.SOCK_DGRAM), folder / "ipmi-password"
    file.write_text(f"{PASSWORD}\n")
    file.chmod(0o600)
    with _server("ipmi", node, str(port)):
        yield {"driver": "ipmi", "address": HERE, "port": port, "user": USER, "password_file": str(file), "poll": 1, "timeout": 60}


@contextlib.contextmanager
def waking(lab: Lab, node: str) -> Iterator[dict[str, Any]]:
    """The same with Wake-on-LAN: a frame on the lab's bridge with the node's address starts it."""
    machine = lab.machine(node)
    site = machine.network.site
    mac = f"02:77:00:00:{site.number:02x}:{machine.number:02x}"
    # In the network of the bridge, so that only a frame which came over the link to it counts.
    command = ["nsenter", f"--net={NAMESPACES / site.group}", "--", sys.executable, "-m", "tests.lab.bmc", "listen", mac]
    process = subprocess.Popen(command, cwd=REPOSITORY_ROOT, stdout=subprocess.PIPE, text=True)
    output = process.stdout
    assert output is not None and output.readline().strip() == "ready"

    def wake() -> None:
        if output.readline().strip() == "woken":
            lab.powered(node, "on")

    thread = threading.Thread(target=wake, daemon=True)
    thread.start()
    try:
        yield {"driver": "wake_on_lan", "mac": mac, "broadcast": [f"{machine.network.prefix}.255"], "poll": 1}
        wait_until("the frame that wakes the node", lambda: not thread.is_alive(), 20)
    finally:
        process.kill()
        process.wait()
        thread.join(20)


# ---- the servers


def serve_redfish(node: str, port: int, folder: Path) -> None:
    from sushy_tools.emulator import main as emulator  # noqa: PLC0415 - each server loads its own library
    from sushy_tools.emulator.resources.systems import fakedriver  # noqa: PLC0415

    lab = Lab()

    class OfTheLab(fakedriver.FakeDriver):  # type: ignore[misc]
        """Presses the buttons of a node."""

        def get_power_state(self, identity: str) -> str:
            return "On" if lab.powered(node) else "Off"

        def set_power_state(self, identity: str, state: str) -> None:
            # As a BMC does it: the answer (204) comes before the result.
            threading.Thread(target=lab.powered, args=(node, "on" if "On" in state else "off")).start()

    fakedriver.FakeDriver = OfTheLab
    system = {"uuid": "00000000-0000-4000-8000-000000000001", "name": node, "power_state": "On", "nics": []}
    files = {"SUSHY_EMULATOR_AUTH_FILE": str(folder / "users"), "SUSHY_EMULATOR_STATE_DIR": str(folder)}
    emulator.app.configure(extra_config={"SUSHY_EMULATOR_FAKE_DRIVER": True, "SUSHY_EMULATOR_FAKE_SYSTEMS": [system], **files})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "bmc.crt", folder / "bmc.key")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    print("ready", flush=True)
    emulator.app.run(host=HERE, port=port, ssl_context=context, threaded=True)


def serve_ipmi(node: str, port: int) -> None:
    from pyghmi.ipmi import bmc  # noqa: PLC0415
    from pyghmi.ipmi.private.serversession import ServerSession  # noqa: PLC0415

    lab, opened = Lab(), ServerSession.create_open_session_response

    def open_session(self: ServerSession, request: bytearray) -> bytearray:
        """Its BMC knows HMAC-SHA1 only, and accepts all: a client that proposes SHA-256 first must be refused (IPMI 2.0, table 13-10)."""
        known = request[12] == 1
        return opened(self, request) if known else bytearray([request[0], 4, 0, 0]) + request[4:8]

    ServerSession.create_open_session_response = open_session

    class OfTheLab(bmc.Bmc):  # type: ignore[misc]
        """Presses the buttons of a node."""

        def get_power_state(self) -> str:
            return "on" if lab.powered(node) else "off"

        def power_off(self) -> None:
            threading.Thread(target=lab.powered, args=(node, "off")).start()

        def power_on(self) -> None:
            threading.Thread(target=lab.powered, args=(node, "on")).start()

        def is_active(self) -> bool:
            return lab.powered(node)

    server = OfTheLab({USER: PASSWORD}, port=port, address=HERE)
    print("ready", flush=True)
    server.listen()


def programs(node: str, **other: list[str]) -> dict[str, Any]:
    """The lab's own power switch as a `command` driver; `other` replaces a program."""
    own = [sys.executable, "-m", "tests.lab", "power", node]
    return {"driver": "command", "poll": 1, "timeout": 30, **{verb: [*own, verb] for verb in ("status", "on", "off")}, **other}


def listen(mac: str) -> None:
    """Prints `woken` when a magic packet for this address passes."""
    frame = b"\xff" * 6 + bytes.fromhex(mac.replace(":", "")) * 16
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)) as wire:
        print("ready", flush=True)
        until = time.monotonic() + 300
        while time.monotonic() < until:
            if frame in wire.recv(65536):
                print("woken", flush=True)
                return


if __name__ == "__main__":
    kind, who, *rest = sys.argv[1:]
    if kind == "redfish":
        serve_redfish(who, int(rest[0]), Path(rest[1]))
    elif kind == "ipmi":
        serve_ipmi(who, int(rest[0]))
    else:
        listen(who)
