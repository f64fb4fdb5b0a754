"""Whom we talk to: what the operator's own ssh would refuse is refused, by a real SSH server on loopback and the real `ssh -G`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import paramiko
import pytest
from pyinfra.connectors import ssh as connector
from pyinfra.connectors.sshuserclient import client as user_client

from roles.engine.bridge import Remote
from roles.engine.bridge.host_keys import KNOWN_HOSTS, STRICT, CheckedClient, HostKeyError, Rules, judge, paths, read_rules, rules_of
from tests.unit.bridge.ssh_server import OTHER, OWN, Server

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here, whose rules these are")


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(OWN)
    yield made
    made.close()


Connect = Callable[..., CheckedClient]


@pytest.fixture
def connect(server: Server, tmp_path: Path) -> Iterator[Connect]:
    """Connect with these lines in ssh_config, beside those that keep this machine's own files out."""
    made: list[CheckedClient] = []

    def try_it(*lines: str, to: str = "127.0.0.1", **data: Any) -> CheckedClient:
        files = [f"UserKnownHostsFile {tmp_path}/known", "GlobalKnownHostsFile none"]
        (tmp_path / "config").write_text("\n".join([*lines, "Host *", *files]) + "\n")
        client = CheckedClient()
        made.append(client)
        client.connect(
            to,
            username="ops",
            password="x",
            port=server.port,
            allow_agent=False,
            look_for_keys=False,
            timeout=60,
            _pyinfra_ssh_config_file=str(tmp_path / "config"),
            _pyinfra_ssh_strict_host_key_checking=data.get("strict"),
            _pyinfra_ssh_known_hosts_file=data.get("known"),
        )
        return client

    yield try_it
    for client in made:
        client.close()


def known(path: Path, name: str, key: paramiko.PKey, marker: str = "") -> None:
    with path.open("a") as file:
        file.write(f"{marker}{name} {key.get_name()} {key.get_base64()}\n")


def refused(connect: Connect, *lines: str, words: str = "has the host key", **more: Any) -> str:
    with pytest.raises(HostKeyError, match=words) as caught:
        connect(*lines, **more)
    return str(caught.value)


@pytest.mark.parametrize("strict", ["yes", "ask", "accept-new", "no"])
def test_another_key_than_the_known_one_is_refused(strict: str, connect: Connect, server: Server, tmp_path: Path) -> None:
    known(tmp_path / "known", f"[127.0.0.1]:{server.port}", OTHER)
    said = refused(connect, f"StrictHostKeyChecking {strict}", words="has another one: another machine answers")
    assert f"{tmp_path}/known:1" in said and OWN.fingerprint in said
    assert server.tried == 0, "the password went to somebody else"


@pytest.mark.parametrize(("strict", "taken"), [("yes", False), ("ask", False), ("accept-new", True), ("no", True)])
def test_a_new_key_is_taken_only_where_ssh_would(strict: str, taken: bool, connect: Connect, server: Server, tmp_path: Path) -> None:
    if not taken:
        refused(connect, f"StrictHostKeyChecking {strict}", words=f"StrictHostKeyChecking {strict}")
        assert not (tmp_path / "known").exists() and server.tried == 0
        return
    connect(f"StrictHostKeyChecking {strict}")
    assert (tmp_path / "known").read_text() == f"[127.0.0.1]:{server.port} {OWN.get_name()} {OWN.get_base64()}\n"
    connect("StrictHostKeyChecking yes")


def test_without_a_word_in_any_file_nobody_is_asked_without_a_terminal(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    refused(connect, words="StrictHostKeyChecking ask")


@pytest.mark.parametrize(("answer", "taken"), [("yes", True), ("y", False), ("", False)])
def test_at_a_terminal_one_is_asked(answer: str, taken: bool, connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    questions: list[str] = []
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr("builtins.input", lambda text: questions.append(text) or answer)
    if taken:
        connect()
    else:
        refused(connect)
    assert (tmp_path / "known").exists() is taken and OWN.fingerprint in questions[0]


def test_the_inventory_may_say_otherwise(connect: Connect, server: Server, tmp_path: Path) -> None:
    other = tmp_path / "of the inventory"
    connect("StrictHostKeyChecking yes", strict="accept-new", known=str(other))
    assert other.exists() and not (tmp_path / "known").exists()
    refused(connect, "StrictHostKeyChecking accept-new", strict="yes", words="StrictHostKeyChecking yes")
    refused(connect, strict="maybe", words="ssh_strict_host_key_checking=maybe must be yes, ask, accept-new or no")


def test_the_system_s_file_counts(connect: Connect, server: Server, tmp_path: Path) -> None:
    name, system = f"[127.0.0.1]:{server.port}", tmp_path / "system file"
    known(system, name, OWN)
    lines = (f'GlobalKnownHostsFile "{system}"', "StrictHostKeyChecking yes")
    connect(*lines)
    system.write_text("")
    known(system, name, OTHER)
    refused(connect, f'GlobalKnownHostsFile "{system}"', "StrictHostKeyChecking accept-new", words="has another one")


def test_several_files_with_blanks_and_tokens_in_their_names(connect: Connect, server: Server, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    known(tmp_path / f"a b/known {server.port}", "alias", OWN)
    connect(
        "StrictHostKeyChecking yes", "HostKeyAlias ALIAS", f'UserKnownHostsFile {tmp_path}/none "{tmp_path}/a b/known %p" {tmp_path}/last'
    )
    assert not (tmp_path / "none").exists()


def test_user_and_port_matter(connect: Connect, server: Server, tmp_path: Path) -> None:
    block = ("Match user ops", "StrictHostKeyChecking yes", "Match all", "StrictHostKeyChecking accept-new")
    refused(connect, *block, words="StrictHostKeyChecking yes")
    connect("Match user nobody", *block[1:])


def test_a_key_known_without_the_port_counts_as_with_ssh(connect: Connect, tmp_path: Path) -> None:
    known(tmp_path / "known", "127.0.0.1", OWN)
    connect("StrictHostKeyChecking yes")


def test_several_keys_of_one_kind_are_all_known(connect: Connect, server: Server, tmp_path: Path) -> None:
    for key in (OTHER, OWN):
        known(tmp_path / "known", f"[127.0.0.1]:{server.port}", key)
    connect("StrictHostKeyChecking yes")


def test_the_host_is_asked_for_the_kind_of_key_that_is_known(connect: Connect, server: Server, tmp_path: Path) -> None:
    rsa = paramiko.RSAKey.generate(2048)
    server.keys = (OWN, rsa)
    known(tmp_path / "known", f"[127.0.0.1]:{server.port}", rsa)
    connect("StrictHostKeyChecking yes")


@pytest.mark.parametrize("way", ["marker", "list", "krl"])
def test_a_revoked_key_is_refused_though_it_is_known(way: str, connect: Connect, server: Server, tmp_path: Path) -> None:
    name = f"[127.0.0.1]:{server.port}"
    known(tmp_path / "known", name, OWN)
    connect("StrictHostKeyChecking no")
    lines = ["StrictHostKeyChecking no"]
    if way == "marker":
        known(tmp_path / "known", name, OWN, "@revoked ")
    else:
        (tmp_path / "key.pub").write_text(f"{OWN.get_name()} {OWN.get_base64()}\n")
        lines.append(f'RevokedHostKeys "{tmp_path}/re voked"')
        if way == "list":
            (tmp_path / "re voked").write_text(f"# gone\n{OWN.get_name()} {OWN.get_base64()} w1\n")
        else:
            subprocess.run(["ssh-keygen", "-q", "-k", "-f", tmp_path / "re voked", tmp_path / "key.pub"], check=True)
    refused(connect, *lines, words="@revoked" if way == "marker" else "RevokedHostKeys")


@pytest.mark.parametrize("way", ["list", "krl"])
def test_one_that_is_not_among_the_revoked_is_taken(way: str, connect: Connect, server: Server, tmp_path: Path) -> None:
    known(tmp_path / "known", f"[127.0.0.1]:{server.port}", OWN)
    (tmp_path / "revoked").write_text(f"{OTHER.get_name()} {OTHER.get_base64()}\n")
    if way == "krl":
        (tmp_path / "other.pub").write_text((tmp_path / "revoked").read_text())
        subprocess.run(["ssh-keygen", "-q", "-k", "-f", tmp_path / "revoked", tmp_path / "other.pub"], check=True)
    connect("StrictHostKeyChecking yes", f"RevokedHostKeys {tmp_path}/revoked")
    (tmp_path / "revoked").unlink()
    refused(connect, "StrictHostKeyChecking yes", f"RevokedHostKeys {tmp_path}/revoked", words="cannot be read")


def test_a_jump_host_is_judged_by_its_own_rules(connect: Connect, server: Server, tmp_path: Path) -> None:
    bastion = Server(OTHER)
    try:
        own = f'UserKnownHostsFile "{tmp_path}/of bastion"'
        lines = ("Host bastion", "HostName 127.0.0.1", f"Port {bastion.port}", "User jump", own, "StrictHostKeyChecking yes")
        lines += ("Host target", "ProxyJump bastion", "StrictHostKeyChecking accept-new", "HostName 127.0.0.1")
        refused(connect, *lines, to="target", words=rf"\[127.0.0.1\]:{bastion.port} has the host key .*StrictHostKeyChecking yes")
        known(tmp_path / "of bastion", f"[127.0.0.1]:{bastion.port}", OWN)
        refused(connect, *lines, to="target", words="has another one")
        # The inventory's words are about the target alone.
        refused(connect, *lines, to="target", strict="no", known=str(tmp_path / "known"), words="has another one")
    finally:
        bastion.close()


def test_pyinfra_connects_by_it(tmp_path: Path) -> None:
    assert connector.SSHClient is user_client.SSHClient is CheckedClient
    assert connector.connector_data_meta[STRICT].default is None


def test_a_connection_that_was_made_before_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = object.__new__(connector.SSHConnector)
    remote = Remote(type("Host", (), {"connector": made, "name": "w1"})())
    for client, checked in ((None, True), (paramiko.SSHClient(), False), (CheckedClient(), True)):
        made.client = client
        assert remote.is_checked is checked


def test_without_ssh_the_inventory_must_say_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostKeyError, match="ssh is not installed here"):
        rules_of("w1", None, None, None, {STRICT: "yes"})
    found = rules_of("W1", None, 2222, None, {STRICT: "yes", KNOWN_HOSTS: "/known"})
    assert (found.strict, found.name, found.plain, found.user_files) == ("yes", "[w1]:2222", "w1", ("/known",))


def test_a_configuration_that_ssh_does_not_take_is_said(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Nonsense yes\n")
    with pytest.raises(HostKeyError, match=r"ssh rejects its configuration for w1: .*config: line 1: .*nonsense"):
        rules_of("w1", None, None, str(tmp_path / "config"), {})


def test_rules_as_ssh_prints_them() -> None:
    text = (
        "hostname W1.example.net\nport 22\nstricthostkeychecking true\nuserknownhostsfile /a b/c /d\ncheckhostip yes\nhashknownhosts yes\n"
    )
    assert read_rules(text, lambda path: False) == Rules("yes", "w1.example.net", "", ("/a b/c", "/d"), (), "", True, True)
    assert read_rules(f"{text}proxyjump b\n").by_address is False
    assert read_rules("hostname w1\nport 22\nstricthostkeychecking accept-new\nknownhostscommand /bin/x\n").strict == "yes"
    with pytest.raises(HostKeyError, match="StrictHostKeyChecking 'sometimes'"):
        read_rules("stricthostkeychecking sometimes\n")


def test_paths_with_blanks() -> None:
    assert paths("/a /b", lambda path: False) == ("/a", "/b")
    assert paths("/a /b", lambda path: path == "/a /b") == ("/a /b",)
    assert paths("none", lambda path: False) == paths("", lambda path: False) == ()


def test_the_address_counts_where_the_operator_says_so(tmp_path: Path) -> None:
    known(tmp_path / "known", "w1", OWN)
    known(tmp_path / "known", "10.0.0.1", OTHER)
    rules = Rules("yes", "w1", "", (str(tmp_path / "known"),), ())
    assert judge(rules, OWN, "10.0.0.1")
    with pytest.raises(HostKeyError, match="CheckHostIP"):
        judge(replace(rules, by_address=True), OWN, "10.0.0.1")
