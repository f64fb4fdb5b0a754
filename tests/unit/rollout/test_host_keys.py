"""What the operator's ssh would refuse is refused: a real SSH server on loopback, ssh_config and known_hosts in a scratch folder."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from paramiko.ed25519key import Ed25519Key
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.exceptions import DeployError, PyinfraError
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.connectors import ssh
from pyinfra.connectors.sshuserclient import client as upstream

from roles.rollout import host_keys, known_hosts
from roles.rollout import remote as bridge
from roles.rollout.host_keys import Checked, Rules
from roles.rollout.known_hosts import parse, verdict

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh client")
ECDSA, OTHER, RSA = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate(), paramiko.RSAKey.generate(2048)


class Door(paramiko.ServerInterface):
    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        self.shown = password
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED


class Server:
    """Takes any password, with the keys it is given."""

    def __init__(self, *keys: paramiko.PKey) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.name = f"[127.0.0.1]:{self.port}"
        self._keys = keys
        self.passwords: list[Door] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            transport, door = paramiko.Transport(peer), Door()
            for key in self._keys:
                transport.add_server_key(key)
            self.passwords.append(door)
            transport.start_server(event=threading.Event(), server=door)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(ECDSA)
    yield made
    made.close()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    host_keys.rules.cache_clear()
    return tmp_path / "config"


def configured(config: Path, strict: str = "", more: str = "") -> Path:
    """An ssh_config with files of its own; the known_hosts of the user and of the system."""
    folder = config.parent
    lines = [f"UserKnownHostsFile {folder}/user", f"GlobalKnownHostsFile {folder}/system"]
    lines += [f"StrictHostKeyChecking {strict}"] if strict else []
    config.write_text("\n".join(["Host *", *lines, more]) + "\n")
    return folder


def line(name: str, key: paramiko.PKey = ECDSA) -> str:
    return f"{name} {key.get_name()} {key.get_base64()}\n"


def connect(server: Server, config: Path, **more: object) -> str:
    """The type of the host's key that was believed. Raises SSHException."""
    client = Checked()
    try:
        client.connect(
            "127.0.0.1", port=server.port, username="root", password="secret", allow_agent=False, look_for_keys=False, timeout=20,
            _pyinfra_ssh_config_file=str(config), **more,
        )  # fmt: skip
        transport = client.get_transport()
        assert transport is not None
        return transport.get_remote_server_key().get_name()
    finally:
        client.close()


def fleet(server: Server, config: Path) -> bridge.Fleet:
    """As pyinfra's own command makes it, without its monkey patches."""
    access = {"ssh_port": server.port, "ssh_user": "root", "ssh_password": "x", "ssh_config_file": str(config), "ssh_allow_agent": False}
    state = State()
    state.init(Inventory(([("127.0.0.1", {**access, "ssh_look_for_keys": False})], {})), Config(CONNECT_TIMEOUT=20))
    connect_all(state)
    return bridge._fleet(state)


@needs_ssh
@pytest.mark.parametrize("strict", ["yes", "ask", ""])
def test_an_unknown_host_is_refused_as_ssh_refuses_it(server: Server, config: Path, strict: str) -> None:
    folder = configured(config, strict)
    with pytest.raises(paramiko.SSHException, match=r"host key of \[127\.0\.0\.1\]:\d+: \S+ SHA256:\S+ is in none of .*user.*compare"):
        connect(server, config)
    assert not (folder / "user").exists() and not any(hasattr(door, "shown") for door in server.passwords), "nothing was shown to it"


@needs_ssh
@pytest.mark.parametrize("file", ["user", "system"])
def test_a_host_that_is_known_to_the_user_or_the_system(server: Server, config: Path, file: str) -> None:
    (configured(config, "yes") / file).write_text(line(server.name))
    assert connect(server, config) == ECDSA.get_name()


@needs_ssh
def test_accept_new_takes_a_new_one_and_keeps_it(server: Server, config: Path) -> None:
    folder = configured(config, "accept-new")
    (folder / "user").write_text(line("else").rstrip("\n"))
    connect(server, config)
    assert (folder / "user").read_text() == line("else") + line(server.name)
    connect(server, config)
    assert (folder / "user").read_text().count(server.name) == 1
    (folder / "user").write_text(line(server.name, OTHER))
    with pytest.raises(paramiko.SSHException, match=r"is not the one in .*ssh-keygen -R"):
        connect(server, config)


@needs_ssh
def test_a_hashed_name_is_kept_and_found(server: Server, config: Path) -> None:
    folder = configured(config, "accept-new", "HashKnownHosts yes")
    connect(server, config)
    assert (folder / "user").read_text().startswith("|1|")
    configured(config, "yes")
    host_keys.rules.cache_clear()
    assert connect(server, config)


@needs_ssh
@pytest.mark.parametrize("strict", ["yes", "accept-new", "no"])
@pytest.mark.parametrize("pattern", ["127.0.0.*", "[127.0.0.1]:*", "*,!other"])
def test_a_changed_key_behind_a_pattern_is_never_new(server: Server, config: Path, strict: str, pattern: str) -> None:
    pattern = pattern if "[" in pattern or pattern.startswith("*") else f"[{pattern}]:{server.port}"
    (configured(config, strict) / "system").write_text(line(pattern, OTHER))
    with pytest.raises(paramiko.SSHException, match="is not the one in"):
        connect(server, config)


@needs_ssh
@pytest.mark.parametrize("strict", ["yes", "accept-new", "no"])
def test_a_revoked_key_is_refused_whatever_else_is_known(server: Server, config: Path, strict: str) -> None:
    folder = configured(config, strict)
    (folder / "user").write_text(line(server.name))
    (folder / "system").write_text("@revoked " + line("*"))
    with pytest.raises(paramiko.SSHException, match="@revoked"):
        connect(server, config)
    (folder / "system").unlink()
    configured(config, strict, f"RevokedHostKeys {folder}/revoked")
    host_keys.rules.cache_clear()
    (folder / "revoked").write_text(line("").strip() + "\n")
    with pytest.raises(paramiko.SSHException, match="RevokedHostKeys"):
        connect(server, config)


@needs_ssh
def test_a_host_is_asked_for_the_key_that_is_known_of_it(config: Path) -> None:
    both = Server(ECDSA, RSA)
    try:
        (configured(config, "yes") / "user").write_text(line(both.name, RSA))
        assert connect(both, config) == "ssh-rsa"
    finally:
        both.close()


@needs_ssh
def test_an_alias_is_looked_up_without_a_port(server: Server, config: Path) -> None:
    (configured(config, "yes", "HostKeyAlias cp1") / "user").write_text(line("cp1"))
    assert connect(server, config)


@needs_ssh
def test_the_inventory_goes_over_ssh_config(server: Server, config: Path, tmp_path: Path) -> None:
    configured(config, "yes")
    own = tmp_path / "own"
    connect(server, config, _pyinfra_ssh_strict_host_key_checking="accept-new", _pyinfra_ssh_known_hosts_file=str(own))
    assert own.read_text() == line(server.name)
    configured(config, "no")
    host_keys.rules.cache_clear()
    with pytest.raises(paramiko.SSHException, match="is in none of"):
        connect(server, config, _pyinfra_ssh_strict_host_key_checking="yes")
    with pytest.raises(paramiko.SSHException, match="is none of yes, ask"):
        connect(server, config, _pyinfra_ssh_strict_host_key_checking="perhaps")


@needs_ssh
def test_a_configuration_that_ssh_does_not_understand_is_no_permission(server: Server, config: Path) -> None:
    config.write_text("Host *\n  StrictHostKeyChecking perhaps\n")
    with pytest.raises(paramiko.SSHException, match="fix the SSH configuration"):
        connect(server, config)


@needs_ssh
def test_pyinfra_itself_connects_so(server: Server, config: Path) -> None:
    folder = configured(config, "yes")
    with pytest.raises(PyinfraError, match="No hosts remaining"):
        fleet(server, config)
    assert not any(hasattr(door, "shown") for door in server.passwords)
    (folder / "user").write_text(line(server.name))
    assert [one.name for one in fleet(server, config).targets] == ["127.0.0.1"]


@needs_ssh
def test_a_connection_that_was_made_before_is_not_used(server: Server, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (configured(config, "yes") / "user").write_text(line(server.name))
    monkeypatch.setattr(ssh, "SSHClient", Checked.__mro__[1])
    with pytest.raises(DeployError, match=r"config\.py was not read"):
        fleet(server, config)


def test_jump_hosts_are_checked_too() -> None:
    assert upstream.SSHClient is Checked is ssh.SSHClient
    assert ssh.connector_data_meta["ssh_strict_host_key_checking"].default is None


def test_without_an_ssh_client_its_defaults_hold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host_keys.rules.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host_keys.rules("cp1", 22, None) == Rules() and Rules().strict == "ask"


def test_the_words_of_ssh() -> None:
    said = "stricthostkeychecking true\nuserknownhostsfile /a /b\nglobalknownhostsfile none\nrevokedhostkeys none\nhashknownhosts yes\n"
    assert host_keys.parse(said) == Rules("yes", ("/a", "/b"), (), hashed=True)
    assert host_keys.parse("stricthostkeychecking false\n").strict == "no" and host_keys.parse("") == Rules()


def test_lines_of_known_hosts() -> None:
    key = Ed25519Key.generate() if hasattr(Ed25519Key, "generate") else ECDSA
    kind, text = key.get_name(), key.get_base64()
    entries = parse(
        f"# one\n\nbad line\nCP1,10.0.0.1\t{kind} {text} with a comment\n@cert-authority *.example {kind} {text}\n!cp9,cp? {kind} AAAA\n"
    )
    assert [verdict(entries, name, kind, text) for name in ("cp1", "10.0.0.1", "a.example", "cp9", "cp2")] == [
        "known",
        "known",
        "new",
        "new",
        "changed",
    ]
    assert known_hosts.kinds(entries, "cp1") == [kind] and verdict(entries, "cp1", kind, "BBBB") == "changed"
    assert parse("|1|broken x y")[0].is_of("cp1") is False
