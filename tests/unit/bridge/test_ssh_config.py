"""The rules that all hosts share are those that the real `ssh -G` prints for each of them."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roles.engine.bridge import host_keys
from roles.engine.bridge.host_keys import HostKeyError, read_rules, rules_of
from roles.engine.bridge.ssh_config import shared_rules

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here, whose rules these are")

HOSTS = ("w1", "w2", "a.example.net", "db")
HOME = pwd.getpwuid(os.getuid()).pw_dir


def ssh_g(config: Path, host: str) -> str:
    return subprocess.run(["ssh", "-G", "-F", str(config), "--", host], capture_output=True, text=True, check=True).stdout


blocks = st.sampled_from(["Host *", "Host w1", "Host w?", "host *.net !w2", "Host=w1 w2", "Host !w1 *", "HOST a.example.net db"])
values = st.sampled_from(
    [
        "HostName 10.0.0.1", "hostname Node.Example.net", "Port 2222", "Port=22", "User root", "IdentityFile ~/.ssh/x",
        "StrictHostKeyChecking yes", "StrictHostKeyChecking accept-new", "UserKnownHostsFile /a /b", "HostKeyAlias cluster",
        "CheckHostIP yes", "ProxyJump jump", "KnownHostsCommand /bin/x %H", "HashKnownHosts yes", "RevokedHostKeys /r", "# a comment",
        "Include {other}",
    ]
)  # fmt: skip
texts = st.lists(st.one_of(blocks, values), max_size=8).map("\n".join)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts, texts)
def test_shared_rules_are_those_of_ssh(tmp_path: Path, text: str, other: str) -> None:
    (tmp_path / "other").write_text(other.replace("Include {other}", ""))
    config = tmp_path / "config"
    config.write_text(text.replace("{other}", str(tmp_path / "other")))
    shared = shared_rules(str(config), HOME)
    if shared is None:
        return
    answer = ssh_g(config, HOSTS[0])
    for host in HOSTS:
        address = shared.address(host)
        assert address is not None
        assert read_rules(f"hostname {address[0]}\nport {address[1]}\n{answer}") == read_rules(ssh_g(config, host)), host


@pytest.mark.parametrize(
    "text",
    [
        "Match host w1\n  StrictHostKeyChecking no", "Host w1\n  UserKnownHostsFile /other", "Host w1\n  HostKeyAlias other",
        "Host w1\n  ProxyJump jump", "Host w1\n  Include /etc/hosts", "Host *\n  HostName %h.example.net", "CanonicalizeHostname yes",
        'Host "w1"\n  User root', "Host w1\n  Tag x", "a line that nobody knows?",
    ],
)  # fmt: skip
def test_not_sure(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    found = shared_rules(str(tmp_path / "config"), HOME)
    assert found is None or "nobody" in text, "ssh itself refuses an unknown keyword"


def test_a_configuration_that_includes_itself(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"Include {tmp_path}/config\n")
    assert shared_rules(str(tmp_path / "config"), HOME) is None


@pytest.mark.parametrize("host", ["W1", "[w1]", "w1:22", "-w1", "w1 w2", ""])
def test_an_unusual_name_gets_its_own_question(tmp_path: Path, host: str) -> None:
    (tmp_path / "config").write_text("User root\n")
    found = shared_rules(str(tmp_path / "config"), HOME)
    assert found is not None and found.address(host) is None


def test_ssh_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text("Host w1\n  Port 2222\nHost *\n  UserKnownHostsFile /known\n  StrictHostKeyChecking yes\n")
    asked: list[str] = []
    original = host_keys._asked
    monkeypatch.setattr(host_keys, "_asked", lambda host, *rest: asked.append(host) or original(host, *rest))
    names = [rules_of(host, None, None, str(config), {}).name for host in ("w1", "w2", "w3")]
    assert names == ["[w1]:2222", "w2", "w3"] and asked == ["w1"]
    assert rules_of("w2", None, 2200, str(config), {}).name == "[w2]:2200"
    config.write_text("Host *\n  Port 1\n")
    assert [rules_of(host, None, None, str(config), {}).name for host in ("w3", "w4")] == ["[w3]:1", "[w4]:1"]
    config.write_text("Match host w9\n  Port 1\n")
    assert [rules_of(host, None, None, str(config), {}).name for host in ("w8", "w9")] == ["w8", "[w9]:1"]
    assert asked == ["w1", "w3", "w8", "w9"]


def test_with_no_file_left_to_open_there_are_rules_or_a_reason(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("User root\n")
    assert rules_of("w1", None, None, str(config), {}).name == "w1"
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(free := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        assert rules_of("w2", None, None, str(config), {}).name == "w2"
        with pytest.raises(HostKeyError, match=r"w1:22` cannot be run \(Too many open files\); check `ulimit -Hn`"):
            rules_of("w1:22", None, None, str(config), {})  # an unusual name: ssh itself is asked
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
