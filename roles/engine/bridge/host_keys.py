"""Whom we talk to: the key of a host is judged by the rules of the operator's own ssh, at each connection; of a jump host by its own.

The rules are what `ssh -G` says for this host, user and port (Match blocks, Include, tokens and the system's files are ssh's to read);
they are applied as OpenSSH's check_host_key and verify_host_key do (sshconnect.c). pyinfra's own way knows neither the system's
known_hosts nor RevokedHostKeys, and its default takes any key of a host that it has not seen, whatever ssh_config says.

Written for pyinfra 3.10 (connectors/sshuserclient/client.py, connectors/ssh.py). `guard` is called by config.py, before pyinfra connects
to any host.
"""

from __future__ import annotations

import base64
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import paramiko
import pyinfra
from gevent.lock import BoundedSemaphore
from pyinfra.connectors import ssh as connector
from pyinfra.connectors.sshuserclient import client as user_client

from roles.engine.editing import KnownKey, fingerprint, keys_of, lists_key, verdict
from roles.engine.harmless import one_line

#: The two data keys that say more than ssh_config, as -o does on ssh's command line.
STRICT, KNOWN_HOSTS = "ssh_strict_host_key_checking", "ssh_known_hosts_file"
_STRICT = {"true": "yes", "yes": "yes", "false": "no", "no": "no", "off": "no", "ask": "ask", "accept-new": "accept-new"}
_SECONDS = 30
_RSA = ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa")
_KRL = b"SSHKRL\n\0"
_one_at_a_time = BoundedSemaphore()


class Unjudged(paramiko.SSHException):
    """The rules of the operator's ssh cannot be read, or they refuse the key that the host shows. Says which, and the way out."""


@dataclass(frozen=True)
class Rules:
    """How ssh judges the key of one host. `strict` is yes, ask, accept-new or no; `name` is what known_hosts has it under, `plain` what
    it is looked for under where that is not known ("": nothing); the files are paths, `revoked` too ("": none)."""

    strict: str
    name: str
    plain: str
    user_files: tuple[str, ...]
    system_files: tuple[str, ...]
    revoked: str = ""
    hashed: bool = False
    by_address: bool = False

    def keys(self, name: str) -> list[KnownKey]:
        """What the files have of a name. Raises Unjudged where one is there and cannot be read."""
        found: list[KnownKey] = []
        for path in (*self.user_files, *self.system_files):
            try:
                found += keys_of(Path(path).read_text("utf-8", "surrogateescape"), name, path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise Unjudged(f"{path}: known host keys cannot be read ({error.strerror}); make it readable") from None
        return found


def read_rules(text: str, there: Callable[[str], bool] = os.path.exists) -> Rules:
    """From what `ssh -G` printed. Raises Unjudged on a value that ssh does not have."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        values.setdefault(key.lower(), value)
    strict = _STRICT.get(values.get("stricthostkeychecking", "ask"))
    if strict is None:
        raise Unjudged(f"StrictHostKeyChecking {values['stricthostkeychecking']!r} of ssh is not known here; set {STRICT} in the inventory")
    alias = _unless_none(values.get("hostkeyalias", ""))
    host, port = values.get("hostname", "").lower(), values.get("port", "22")
    numbered = not alias and port != "22"
    # What a command knows of hosts is not asked: then no key is new.
    if _unless_none(values.get("knownhostscommand", "")) and strict != "no":
        strict = "yes"
    return Rules(
        strict,
        alias.lower() or (f"[{host}]:{port}" if numbered else host),
        host if numbered else "",
        paths(values.get("userknownhostsfile", ""), there),
        paths(values.get("globalknownhostsfile", ""), there),
        os.path.expanduser(_unless_none(values.get("revokedhostkeys", ""))),
        values.get("hashknownhosts") == "yes",
        values.get("checkhostip") == "yes" and not any(_unless_none(values.get(key, "")) for key in ("proxyjump", "proxycommand")),
    )


def paths(text: str, there: Callable[[str], bool] = os.path.exists) -> tuple[str, ...]:
    """A list of paths as `ssh -G` prints it: with blanks between them, and blanks in them, without quotes. The longest that is there
    counts; else a path goes on until a word begins as one."""
    words, found = text.split(" ") if text else [], []
    while words:
        ends = [end for end in range(len(words), 0, -1) if there(os.path.expanduser(" ".join(words[:end])))]
        new = next((number for number, word in enumerate(words) if number and word.startswith(("/", "~", "none"))), len(words))
        end = ends[0] if ends else new
        path = _unless_none(" ".join(words[:end]))
        found += [os.path.expanduser(path)] if path else []
        del words[:end]
    return tuple(found)


def _unless_none(value: str) -> str:
    return "" if value.lower() == "none" else value


def rules_of(host: str, user: str | None, port: int | None, config: str | None, data: Mapping[str, Any]) -> Rules:
    """The rules for a host by its name in the inventory (or its ssh_hostname), with what the inventory says in `data`. Raises Unjudged."""
    strict, known = data.get(STRICT), data.get(KNOWN_HOSTS)
    try:
        rules = read_rules(_asked(host, user, port, config))
    except FileNotFoundError:
        if strict is None or known is None:
            raise Unjudged(
                f"there is no ssh here, whose rules for host keys would count; install it (openssh-client), or set {STRICT} and "
                f"{KNOWN_HOSTS} in the inventory"
            ) from None
        plain = host.lower()
        name = plain if port in (None, 22) else f"[{plain}]:{port}"
        rules = Rules("yes", name, "" if name == plain else plain, (), ("/etc/ssh/ssh_known_hosts",))
    if known is not None:
        rules = replace(rules, user_files=(os.path.expanduser(str(known)),))
    if strict is not None:
        said = _STRICT.get(str(strict).lower())
        if said is None:
            raise Unjudged(f"{STRICT}={strict} is none of yes, ask, accept-new and no; give one of them, or take it out")
        rules = replace(rules, strict=said)
    return rules


def _asked(host: str, user: str | None, port: int | None, config: str | None) -> str:
    """What `ssh -G` says. Raises Unjudged, and FileNotFoundError where there is no ssh."""
    file, home = config, os.path.expanduser("~")
    # ssh goes by the home of the user's entry in passwd, pyinfra by $HOME.
    elsewhere = os.path.realpath(home) != os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)
    if file is None and elsewhere and os.path.exists(f"{home}/.ssh/config"):
        file = f"{home}/.ssh/config"
    command = ["ssh", "-G", *(["-F", file] if file else []), *(["-l", user] if user else []), *(["-p", str(port)] if port else [])]
    try:
        done = subprocess.run(
            [*command, "--", host], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unjudged(f"`{' '.join(command)} {host}` gave no answer within {_SECONDS} s; look at what Match exec runs") from None
    if done.returncode != 0:
        said = one_line(" ".join(done.stderr.split())) or f"exit status {done.returncode}"
        raise Unjudged(f"ssh does not take its configuration for {host}: {said}; `{' '.join(command)} {host}` says the same")
    return done.stdout


def judge(rules: Rules, key: paramiko.PKey, address: str = "") -> bool:
    """True for a key that is known, False for one that is new and may be taken. Raises Unjudged for all others. `address` is the
    peer's, where it is known."""
    blob = key.asbytes()
    shown = f"{rules.name} shows the key {key.get_name()} {fingerprint(blob)}"
    if rules.revoked and _is_revoked(rules.revoked, blob):
        why = f"{rules.revoked} (RevokedHostKeys) has it, or cannot be read"
        raise Unjudged(f"{shown}, and {why}; give the host another key, or correct the file")
    said, where = verdict(rules.keys(rules.name), blob)
    if said == "new" and rules.plain and verdict(rules.keys(rules.plain), blob)[0] == "known":
        said = "known"
    if said == "revoked":
        raise Unjudged(f"{shown}, which {where} has as @revoked; give the host another key")
    if said == "changed":
        raise Unjudged(
            f"{shown}, and {where} has another one: somebody else answers there, or the host was installed again. Compare the "
            "fingerprint at the host's console (ssh-keygen -lf on its /etc/ssh/ssh_host_*_key.pub); if it is the host's own: "
            f"ssh-keygen -R '{rules.name}'"
        )
    if rules.by_address and rules.strict in ("yes", "ask") and address and address != rules.name:
        of_address, where = verdict(rules.keys(address), blob)
        if of_address == "changed":
            raise Unjudged(f"{shown}, and {where} has another one for its address {address} (CheckHostIP); correct that line")
    if said == "known":
        return True
    if rules.strict == "yes" or (rules.strict == "ask" and not _agreed(shown)):
        raise Unjudged(
            f"{shown}, which no file of known hosts has, and your ssh would not take it either (StrictHostKeyChecking {rules.strict}). "
            "Compare the fingerprint at the host's console; if it is the host's own, connect to it once with ssh, which notes it"
        )
    return False


def _agreed(shown: str) -> bool:
    if not sys.stdin.isatty():
        return False
    with _one_at_a_time:
        return input(f"{shown}, which no file of known hosts has. Is it the host's own, and shall it be noted? [yes/no] ").strip() == "yes"


def _is_revoked(path: str, blob: bytes) -> bool:
    """True as well where it cannot be said: ssh goes no further then, either."""
    try:
        data = Path(path).read_bytes()
        if not data.startswith(_KRL):
            return lists_key(data.decode("utf-8", "surrogateescape"), blob)
        kind = blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii", "replace")
        line = f"{kind} {base64.b64encode(blob).decode()}\n"
        asked = subprocess.run(
            ["ssh-keygen", "-Q", "-f", path, "/dev/stdin"], input=line, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return asked.returncode != 0


def note(rules: Rules, key: paramiko.PKey) -> None:
    """Into the first of the user's files, as ssh does. That it cannot be written stops nobody."""
    if not rules.user_files:
        return
    name = paramiko.HostKeys.hash_host(rules.name) if rules.hashed else rules.name
    path = Path(rules.user_files[0])
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with open(descriptor, "ab") as file:
            size = os.fstat(descriptor).st_size
            begun = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
            file.write(begun + f"{name} {key.get_name()} {key.get_base64()}\n".encode())
    except OSError as error:
        pyinfra.logger.warning("%s: the key of %s could not be noted: %s", path, rules.name, error.strerror)
    else:
        pyinfra.logger.warning("%s %s is new, and noted in %s", rules.name, fingerprint(key.asbytes()), path)


class _Policy(paramiko.MissingHostKeyPolicy):
    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        if not judge(self._rules, key, _address(client)):
            note(self._rules, key)


def _address(client: paramiko.SSHClient) -> str:
    transport = client.get_transport()
    try:
        return str(transport.getpeername()[0]) if transport else ""
    except (OSError, AttributeError, IndexError, TypeError):
        return ""  # a channel through a jump host has none


def _kinds(rules: Rules) -> list[str]:
    """The kinds of keys to ask the host for first: those that are known of it."""
    known = [key.kind for name in (rules.name, rules.plain) if name for key in rules.keys(name) if not key.marker]
    return list(dict.fromkeys(name for kind in known for name in (_RSA if kind == "ssh-rsa" else (kind,))))


_Client: Any = user_client.SSHClient


class CheckedClient(_Client):  # type: ignore[misc]  # pyinfra ships no types
    """pyinfra's client, with ssh's own judgement of host keys in the place of pyinfra's."""

    def connect(self, hostname: str, **options: Any) -> None:
        """Raises Unjudged, before anything secret is said, where ssh would not take the host's key; and what pyinfra's raises."""
        data = {
            STRICT: options.pop("_pyinfra_ssh_strict_host_key_checking", None),
            KNOWN_HOSTS: options.pop("_pyinfra_ssh_known_hosts_file", None) or None,
        }
        port = options.get("port")
        rules = rules_of(hostname, options.get("username"), int(port) if port else None, options.get("_pyinfra_ssh_config_file"), data)
        self._policy_of_ssh = _Policy(rules)

        def transport(sock: Any, **more: Any) -> paramiko.Transport:
            made = paramiko.Transport(sock, **more)
            offered = made.get_security_options()
            first = [kind for kind in _kinds(rules) if kind in offered.key_types]
            offered.key_types = [*first, *(kind for kind in offered.key_types if kind not in first)]
            return made

        # With no key known to paramiko, each one comes before the policy; should it not be ours, strict is what is left.
        try:
            super().connect(
                hostname,
                _pyinfra_ssh_strict_host_key_checking="yes",
                _pyinfra_ssh_known_hosts_file=os.devnull,
                transport_factory=transport,
                **options,
            )
        except BaseException:
            self.close()
            raise

    def set_missing_host_key_policy(self, policy: object) -> None:
        """Ours, whatever pyinfra takes from its own look at ssh_config."""
        super().set_missing_host_key_policy(self._policy_of_ssh)


def guard() -> None:
    """From now on pyinfra connects by CheckedClient, to jump hosts as well. Twice does no harm."""
    user_client.SSHClient = connector.SSHClient = CheckedClient
    # What the inventory does not say is ssh_config's to say; the default would be an answer of the inventory's.
    meta = connector.connector_data_meta
    meta[STRICT] = type(meta[STRICT])(meta[STRICT].description)


def is_checked(client: object) -> bool:
    """The connection was made after `guard`."""
    return isinstance(client, CheckedClient)
