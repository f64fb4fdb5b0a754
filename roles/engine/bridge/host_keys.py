"""Checks host keys by the rules of the operator's own ssh, at each connection; the key of a jump host by the rules for that host.

The rules are what `ssh -G` prints for this host, user and port (ssh itself handles Match blocks, Include, tokens and the system's files).
If they are surely the same for all hosts, one answer serves all (ssh_config.py). They are applied like OpenSSH's check_host_key and
verify_host_key (sshconnect.c). pyinfra itself knows neither the system's known_hosts nor RevokedHostKeys, and by default it accepts any
key of a new host, whatever ssh_config says.

Written for pyinfra 3.10 (connectors/sshuserclient/client.py, connectors/ssh.py). `guard` is called by config.py, before pyinfra connects
to any host.
"""

from __future__ import annotations

import base64
import functools
import os
import pwd
import socket
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

from roles.engine.bridge.ssh_config import SharedRules, shared_rules
from roles.engine.editing.known_hosts import KnownKey, fingerprint, keys_of, lists_key, verdict
from roles.engine.harmless import one_line

#: The two data keys that override ssh_config, like -o on ssh's command line.
STRICT, KNOWN_HOSTS = "ssh_strict_host_key_checking", "ssh_known_hosts_file"
_STRICT = {"true": "yes", "yes": "yes", "false": "no", "no": "no", "off": "no", "ask": "ask", "accept-new": "accept-new"}
_SECONDS = 30
_RSA = ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa")
_KRL = b"SSHKRL\n\0"
_one_at_a_time = BoundedSemaphore()
# By configuration file: whether all hosts have the same rules, and then the one answer of `ssh -G`.
_asking = BoundedSemaphore()
_shared: dict[str | None, SharedRules | None] = {}
_answers: dict[str | None, str] = {}


class HostKeyError(paramiko.SSHException):
    """The rules of the operator's ssh cannot be read, or they refuse the host's key. Says which, and the way out."""


@dataclass(frozen=True)
class Rules:
    """The rules of ssh for the key of one host. `strict` is yes, ask, accept-new or no; `name` is the host's name in known_hosts, `plain`
    the name to try if that is not found ("": none); the files are paths, `revoked` too ("": none)."""

    strict: str
    name: str
    plain: str
    user_files: tuple[str, ...]
    system_files: tuple[str, ...]
    revoked: str = ""
    hashed: bool = False
    by_address: bool = False

    def keys(self, name: str) -> list[KnownKey]:
        """The keys of a name in the files. Raises HostKeyError if an existing file cannot be read."""
        found: list[KnownKey] = []
        for path in (*self.user_files, *self.system_files):
            try:
                found += keys_of(Path(path).read_text("utf-8", "surrogateescape"), name, path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise HostKeyError(f"{path}: known host keys cannot be read ({error.strerror}); make it readable") from None
        return found


def read_rules(text: str, there: Callable[[str], bool] = os.path.exists) -> Rules:
    """The rules from the output of `ssh -G`. Raises HostKeyError for an unknown value."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        values.setdefault(key.lower(), value)
    strict = _STRICT.get(values.get("stricthostkeychecking", "ask"))
    if strict is None:
        value = values["stricthostkeychecking"]
        raise HostKeyError(f"StrictHostKeyChecking {value!r} of ssh is unknown to daytwo; set {STRICT} in the inventory")
    alias = _unless_none(values.get("hostkeyalias", ""))
    host, port = values.get("hostname", "").lower(), values.get("port", "22")
    numbered = not alias and port != "22"
    # daytwo does not run a command for known hosts, so it must not treat any key as new.
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
    """A list of paths as `ssh -G` prints it: separated by blanks, with blanks in them, without quotes. The longest existing path counts;
    else a path ends before the next word that looks like a path."""
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
    """The rules for a host by its name in the inventory (or its ssh_hostname), with its `data` in the inventory. Raises HostKeyError."""
    strict, known = data.get(STRICT), data.get(KNOWN_HOSTS)
    try:
        rules = read_rules(_ssh_configuration(host, user, port, config))
    except FileNotFoundError:
        if strict is None or known is None:
            raise HostKeyError(
                f"ssh is not installed here, and its rules for host keys apply; install it (openssh-client), or set {STRICT} and "
                f"{KNOWN_HOSTS} in the inventory"
            ) from None
        plain = host.lower()
        name = plain if port in (None, 22) else f"[{plain}]:{port}"
        rules = Rules("yes", name, "" if name == plain else plain, (), ("/etc/ssh/ssh_known_hosts",))
    if known is not None:
        rules = replace(rules, user_files=(os.path.expanduser(str(known)),))
    if strict is not None:
        value = _STRICT.get(str(strict).lower())
        if value is None:
            raise HostKeyError(f"{STRICT}={strict} must be yes, ask, accept-new or no; set one of them, or remove it")
        rules = replace(rules, strict=value)
    return rules


def _ssh_configuration(host: str, user: str | None, port: int | None, config: str | None) -> str:
    """The output of `ssh -G`. Raises HostKeyError, and FileNotFoundError if ssh is not installed."""
    file, home = config, os.path.expanduser("~")
    of_ssh = _home_of_ssh(os.getuid())
    if file is None and os.path.realpath(home) != os.path.realpath(of_ssh) and os.path.exists(f"{home}/.ssh/config"):
        file = f"{home}/.ssh/config"
    shared = _shared.get(file)
    if file not in _shared or (shared is not None and not shared.is_current):
        shared = _shared[file] = shared_rules(file, of_ssh)
        _answers.pop(file, None)
    if shared is None or (address := shared.address(host)) is None:
        return _asked(host, user, port, file)
    with _asking:
        if file not in _answers:
            _answers[file] = _asked(host, user, port, file)
    # Of two lines for one keyword the first counts.
    return f"hostname {address[0]}\nport {port or address[1]}\n{_answers[file]}"


@functools.cache
def _home_of_ssh(user: int) -> str:
    """ssh uses the home directory from passwd, pyinfra uses $HOME. Read once: later there may be no file left to open."""
    return pwd.getpwuid(user).pw_dir


def _asked(host: str, user: str | None, port: int | None, file: str | None) -> str:
    command = ["ssh", "-G", *(["-F", file] if file else []), *(["-l", user] if user else []), *(["-p", str(port)] if port else [])]
    try:
        done = subprocess.run(
            [*command, "--", host], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except FileNotFoundError:
        raise
    except OSError as error:
        raise HostKeyError(f"`{' '.join(command)} {host}` cannot be run ({error.strerror}); check `ulimit -Hn`, or use --limit") from None
    except subprocess.TimeoutExpired:
        raise HostKeyError(f"`{' '.join(command)} {host}` gave no answer within {_SECONDS} s; check what Match exec runs") from None
    if done.returncode != 0:
        said = one_line(" ".join(done.stderr.split())) or f"exit status {done.returncode}"
        raise HostKeyError(f"ssh rejects its configuration for {host}: {said}; check it with `{' '.join(command)} {host}`")
    return done.stdout


def judge(rules: Rules, key: paramiko.PKey, address: str = "") -> bool:
    """True for a known key, False for a new one that ssh would accept. Raises HostKeyError for all others. `address` is the peer's, if
    it is known."""
    blob = key.asbytes()
    shown = f"{rules.name} has the host key {key.get_name()} {fingerprint(blob)}"
    if rules.revoked and _is_revoked(rules.revoked, blob):
        why = f"{rules.revoked} (RevokedHostKeys) lists it, or cannot be read"
        raise HostKeyError(f"{shown}, and {why}; give the host a new key, or correct the file")
    said, where = verdict(rules.keys(rules.name), blob)
    if said == "new" and rules.plain and verdict(rules.keys(rules.plain), blob)[0] == "known":
        said = "known"
    if said == "revoked":
        raise HostKeyError(f"{shown}, which {where} marks as @revoked; give the host a new key")
    if said == "changed":
        raise HostKeyError(
            f"{shown}, but {where} has another one: another machine answers, or the host was reinstalled. Compare the "
            "fingerprint at the host's console (ssh-keygen -lf on its /etc/ssh/ssh_host_*_key.pub); if it is the host's own: "
            f"ssh-keygen -R '{rules.name}'"
        )
    if rules.by_address and rules.strict in ("yes", "ask") and address and address != rules.name:
        of_address, where = verdict(rules.keys(address), blob)
        if of_address == "changed":
            raise HostKeyError(f"{shown}, but {where} has another one for its address {address} (CheckHostIP); correct that line")
    if said == "known":
        return True
    if rules.strict == "yes" or (rules.strict == "ask" and not _agreed(shown)):
        raise HostKeyError(
            f"{shown}, which no known_hosts file has; your ssh would refuse it too (StrictHostKeyChecking {rules.strict}). "
            "Compare the fingerprint at the host's console; if it is the host's own, connect to it once with ssh, which saves it"
        )
    return False


def _agreed(shown: str) -> bool:
    if not sys.stdin.isatty():
        return False
    with _one_at_a_time:
        return input(f"{shown}, which no known_hosts file has. Is it the host's own, and should it be saved? [yes/no] ").strip() == "yes"


def _is_revoked(path: str, blob: bytes) -> bool:
    """Also True if the file cannot be checked: ssh refuses the key then, too."""
    try:
        data = Path(path).read_bytes()
        if not data.startswith(_KRL):
            return lists_key(data.decode("utf-8", "surrogateescape"), blob)
        kind = blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii", "replace")
        line = f"{kind} {base64.b64encode(blob).decode()}\n"
        query = subprocess.run(
            ["ssh-keygen", "-Q", "-f", path, "/dev/stdin"], input=line, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return query.returncode != 0


def note(rules: Rules, key: paramiko.PKey) -> None:
    """Save the key in the first of the user's files, like ssh. If that fails, the connection continues."""
    if not rules.user_files:
        return
    name = paramiko.HostKeys.hash_host(rules.name) if rules.hashed else rules.name
    path = Path(rules.user_files[0])
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with open(descriptor, "ab") as file:
            size = os.fstat(descriptor).st_size
            separator = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
            file.write(separator + f"{name} {key.get_name()} {key.get_base64()}\n".encode())
    except OSError as error:
        pyinfra.logger.warning("%s: the host key of %s could not be saved: %s", path, rules.name, error.strerror)
    else:
        pyinfra.logger.warning("%s: the new host key %s was saved in %s", rules.name, fingerprint(key.asbytes()), path)


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
        return ""  # a channel through a jump host has no address


def _kinds(rules: Rules) -> list[str]:
    """The kinds of keys to ask the host for first: those of its known keys."""
    known = [key.kind for name in (rules.name, rules.plain) if name for key in rules.keys(name) if not key.marker]
    return list(dict.fromkeys(name for kind in known for name in (_RSA if kind == "ssh-rsa" else (kind,))))


_Client: Any = user_client.SSHClient


class _QuietTransport(paramiko.Transport):
    """paramiko's transport wakes up ten times a second to look whether it was closed, which costs seconds with a thousand idle connections.
    `close` wakes it up anyway, and the longest wait must only be shorter than the interval of keepalives."""

    _active_check_timeout = 3.0


class CheckedClient(_Client):  # type: ignore[misc]  # pyinfra ships no types
    """pyinfra's client, but it checks host keys by the rules of ssh."""

    def connect(self, hostname: str, **options: Any) -> None:
        """Raises HostKeyError, before it sends anything secret, if ssh would refuse the host's key; and what pyinfra's client raises."""
        data = {
            STRICT: options.pop("_pyinfra_ssh_strict_host_key_checking", None),
            KNOWN_HOSTS: options.pop("_pyinfra_ssh_known_hosts_file", None) or None,
        }
        port = options.get("port")
        rules = rules_of(hostname, options.get("username"), int(port) if port else None, options.get("_pyinfra_ssh_config_file"), data)
        self._policy_of_ssh = _Policy(rules)

        def transport(sock: Any, **more: Any) -> paramiko.Transport:
            # paramiko leaves Nagle's algorithm on, ssh does not: a small packet would wait for the answer to the one before, up to 40 ms.
            if isinstance(sock, socket.socket):  # a ProxyCommand has none
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made = _QuietTransport(sock, **more)
            offered = made.get_security_options()
            first = [kind for kind in _kinds(rules) if kind in offered.key_types]
            offered.key_types = [*first, *(kind for kind in offered.key_types if kind not in first)]
            return made

        # paramiko knows no key, so the policy decides about each one; if the policy were not ours, `strict` would refuse all.
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
        """Set our policy, whatever pyinfra found in ssh_config."""
        super().set_missing_host_key_policy(self._policy_of_ssh)


def guard() -> None:
    """From now on pyinfra connects with CheckedClient, also to jump hosts. Calling it again changes nothing."""
    user_client.SSHClient = connector.SSHClient = CheckedClient
    # If the inventory does not set it, ssh_config decides; pyinfra's default would look like a value of the inventory.
    meta = connector.connector_data_meta
    meta[STRICT] = type(meta[STRICT])(meta[STRICT].description)


def is_checked(client: object) -> bool:
    """True if the connection was made after `guard`."""
    return isinstance(client, CheckedClient)
