"""Which host's key is believed: what the operator's own ssh would refuse is refused here.

pyinfra reads a part of ssh_config only, never the system's known_hosts, and by a default of its own takes the key of every unknown host
(pyinfra/connectors/ssh.py: accept-new), whatever ssh_config says. So each connection, jump hosts too, goes through `Checked`, which asks
`ssh -G` what holds for the host. Nobody is asked at a terminal: many hosts are connected to at once, and CI has none.

Written for pyinfra 3.10 (connectors/sshuserclient/client.py) and paramiko 3 and 4 (client.py: connect).
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import paramiko
from gevent.lock import BoundedSemaphore
from pyinfra.connectors import ssh
from pyinfra.connectors.sshuserclient import client as upstream

from roles.rollout import known_hosts
from roles.rollout.known_hosts import Entry

SSH_PORT = 22
ASK_SECONDS = 20
#: Signatures that an RSA key makes (RFC 8332); the key's own type is ssh-rsa.
_OF_RSA = ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa")
_WAY_OUT = "connect once with ssh and compare the fingerprint, or have the key in known_hosts"

_writing = BoundedSemaphore()


@dataclass(frozen=True)
class Rules:
    """What holds for one host, in the words of ssh_config(5). `strict` is yes, ask, accept-new or no; `user` and `system` are files."""

    strict: str = "ask"
    user: tuple[str, ...] = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
    system: tuple[str, ...] = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
    alias: str = ""
    revoked: str = ""
    hashed: bool = False


def parse(text: str) -> Rules:
    """From the answer of `ssh -G`. Pure."""
    values = dict(line.partition(" ")[::2] for line in text.splitlines())
    strict = values.get("stricthostkeychecking", "ask")
    revoked = values.get("revokedhostkeys", "")
    return Rules(
        strict={"true": "yes", "false": "no", "off": "no"}.get(strict, strict),
        user=_files(values.get("userknownhostsfile", " ".join(Rules.user))),
        system=_files(values.get("globalknownhostsfile", " ".join(Rules.system))),
        alias=values.get("hostkeyalias", ""),
        revoked="" if revoked == "none" else revoked,
        hashed=values.get("hashknownhosts") == "yes",
    )


def _files(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split() if word != "none")


@functools.cache
def rules(host: str, port: int, config_file: str | None) -> Rules:
    """What the operator's ssh holds to for `host`, as the inventory calls it. Without an ssh client: its defaults.

    Raises SSHException where ssh cannot read its configuration.
    """
    command = ["ssh", "-G", *(["-F", os.path.expanduser(config_file)] if config_file else []), "-p", str(port), "--", host]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_SECONDS, check=False)
    except FileNotFoundError:
        return Rules()
    except subprocess.TimeoutExpired:
        raise paramiko.SSHException(f"host key of {host}: `{' '.join(command)}` gave no answer within {ASK_SECONDS} s") from None
    if done.returncode != 0:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise paramiko.SSHException(f"host key of {host}: `{' '.join(command)}` fails ({said}); fix the SSH configuration")
    return parse(done.stdout.decode("utf-8", "replace"))


class Judge(paramiko.MissingHostKeyPolicy):
    """Judges the key of one host, `name` as known_hosts has it, before anything of ours is shown to it."""

    def __init__(self, name: str, held: Rules) -> None:
        self._name = held.alias or name
        self._rules = held
        self._entries = [entry for file in (*held.user, *held.system) for entry in _read(file)]

    def key_types(self, offered: tuple[str, ...]) -> tuple[str, ...]:
        """The types of key that are asked for, those that are known of the host first."""
        known = known_hosts.kinds(self._entries, self._name)
        first = [one for kind in known for one in (_OF_RSA if kind == "ssh-rsa" else (kind,)) if one in offered]
        return (*first, *(one for one in offered if one not in first))

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Raises SSHException where the operator's ssh would refuse the key; names host, key, rule and way out."""
        kind, text = key.get_name(), key.get_base64()
        shown = f"host key of {self._name}: {kind} {key.fingerprint}"
        files = " or ".join(self._rules.user + self._rules.system) or "no file at all"
        if self._rules.revoked and _is_revoked(self._rules.revoked, kind, text):
            raise paramiko.SSHException(f"{shown} is revoked, or cannot be looked up, in {self._rules.revoked} (RevokedHostKeys)")
        match known_hosts.verdict(self._entries, self._name, kind, text):
            case "known":
                return
            case "revoked":
                raise paramiko.SSHException(f"{shown} is marked @revoked in {files}: it is not to be believed")
            case "changed":
                raise paramiko.SSHException(
                    f"{shown} is not the one in {files}: somebody may be between you and the host; "
                    f'where it has a new key for sure, take the old one out: ssh-keygen -R "{self._name}"'
                )
        if self._rules.strict in ("yes", "ask"):
            raise paramiko.SSHException(f"{shown} is in none of {files} (StrictHostKeyChecking {self._rules.strict}); {_WAY_OUT}")
        self._keep(kind, text)

    def _keep(self, kind: str, text: str) -> None:
        """As ssh does with accept-new: into the first file of the user's. One that cannot be written hinders nobody."""
        name = paramiko.HostKeys.hash_host(self._name) if self._rules.hashed else self._name
        for file in self._rules.user[:1]:
            path = Path(file).expanduser()
            with contextlib.suppress(OSError), _writing:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with path.open("a+b") as stream:
                    stream.seek(max(stream.seek(0, os.SEEK_END) - 1, 0))
                    begin = "" if stream.read() in (b"", b"\n") else "\n"
                    stream.write(f"{begin}{name} {kind} {text}\n".encode())


def _read(file: str) -> list[Entry]:
    try:
        return known_hosts.parse(Path(file).expanduser().read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise paramiko.SSHException(f"{file} cannot be read: {error.strerror}") from error


def _is_revoked(file: str, kind: str, text: str) -> bool:
    """By ssh-keygen(1), which reads lists of keys and KRLs; what cannot be looked up counts as revoked, as for ssh."""
    with tempfile.NamedTemporaryFile("w", suffix=".pub") as public:
        public.write(f"{kind} {text}\n")
        public.flush()
        try:
            done = subprocess.run(
                ["ssh-keygen", "-Q", "-f", os.path.expanduser(file), public.name],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return True
    return done.returncode != 0


class _Checking(paramiko.SSHClient):
    """Stands between pyinfra's client and paramiko's: whatever that one has decided on keys of hosts, this one decides."""

    asked: tuple[str, str | None, str | None, str | None]

    def connect(self, hostname: str, port: int = SSH_PORT, **more: Any) -> None:  # type: ignore[override]
        name, config_file, strict, known = self.asked
        held = rules(name, int(port), config_file)
        judge = Judge(
            hostname if int(port) == SSH_PORT else f"[{hostname}]:{port}",
            Rules(
                strict or held.strict,
                (known,) if known else held.user,
                held.system,
                held.alias,
                held.revoked,
                held.hashed and not known,
            ),
        )
        # Of these paramiko knows nothing, so that it asks the judge about every key.
        self._host_keys, self._system_host_keys = paramiko.HostKeys(), paramiko.HostKeys()
        self.set_missing_host_key_policy(judge)
        make = more.pop("transport_factory", None) or paramiko.Transport

        def transport(*arguments: Any, **options: Any) -> paramiko.Transport:
            made = cast(paramiko.Transport, make(*arguments, **options))
            security = made.get_security_options()
            security.key_types = judge.key_types(tuple(security.key_types))
            return made

        super().connect(hostname, port=int(port), transport_factory=transport, **more)


class Checked(upstream.SSHClient, _Checking):  # type: ignore[misc]  # pyinfra ships no types
    """pyinfra's client, with keys of hosts judged as the operator's ssh judges them."""

    def connect(self, hostname: str, **more: Any) -> None:  # type: ignore[override]
        """Raises SSHException where the host's key is refused."""
        self.asked = (
            hostname,
            more.get("_pyinfra_ssh_config_file"),
            # What the inventory says goes over ssh_config, as `ssh -o` does.
            _word(more.pop("_pyinfra_ssh_strict_host_key_checking", None)),
            more.get("_pyinfra_ssh_known_hosts_file"),
        )
        # Else pyinfra reads the policy as it knows it, which may be one that it does not know.
        super().connect(hostname, _pyinfra_ssh_strict_host_key_checking="yes", **more)


def _word(value: Any) -> str | None:
    if value is None:
        return None
    word = {"off": "no", "true": "yes", "false": "no"}.get(str(value).lower(), str(value).lower())
    if word not in ("yes", "ask", "accept-new", "no"):
        raise paramiko.SSHException(f"ssh_strict_host_key_checking={value!r} is none of yes, ask, accept-new and no")
    return word


def install() -> None:
    """From now on pyinfra connects by `Checked` only, and has no default of its own for StrictHostKeyChecking."""
    ssh.SSHClient = upstream.SSHClient = Checked
    ssh.connector_data_meta["ssh_strict_host_key_checking"].default = None


def is_checked(connector: object) -> bool:
    """False for an SSH connection that was made before `install`."""
    client = getattr(connector, "client", None)
    return client is None or not isinstance(connector, ssh.SSHConnector) or isinstance(client, Checked)
