"""Certificates and public keys in files of a node: a private key never leaves it."""

from __future__ import annotations

import binascii
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from roles.engine.certificates import UNREAD, Certificate, CertificateError, Material, Unread, parse_material, parse_pems
from roles.engine.remote import RemoteError, Shell
from roles.engine.scripts import decoded, decoded_text, filled
from roles.engine.timeouts import patient

SECONDS = 30
#: A file may hold a chain; a folder of etcd has five files, or three for each node of the cluster.
_MOST_BYTES, _MOST_FILES = 65536, 100


def read_files(remote: Shell, paths: Collection[str], folders: Collection[str] = ()) -> dict[str, list[Certificate]]:
    """The certificates of files (of a kubeconfig its client certificate), and of all *.crt and *.pem
    in `folders`, but for *key.pem, by path. Raises RemoteError."""
    found = parse_files(_asked(remote, paths=paths, folders=folders, keys=False, kubeconfigs=()))
    return {path: list(one.certificates) for path, one in found.items() if one.certificates}


def read_trust(remote: Shell, paths: Collection[str], kubeconfigs: Collection[str]) -> tuple[dict[str, Material], dict[str, Material]]:
    """Certificates and public keys in files, those of private keys too, and the CAs that kubeconfigs trust; both by path. What is not known
    says why. Raises RemoteError."""
    lines = _asked(remote, paths=paths, folders=(), keys=True, kubeconfigs=kubeconfigs)
    return parse_files(lines), parse_authorities(lines)


def _asked(remote: Shell, **what: object) -> Sequence[str]:
    script = filled("certificates.sh.j2", **what, most_bytes=_MOST_BYTES, most_files=_MOST_FILES)
    answer = remote.run("sh -s", stdin=script, timeout=patient(SECONDS))
    if answer.code != 0 or "end" not in answer.stdout:
        raise RemoteError(f"{remote.name}: its certificates cannot be read: {' '.join(answer.stderr[-3:]) or 'the answer was cut short'}")
    return answer.stdout


def parse_files(lines: Iterable[str]) -> dict[str, Material]:
    """By path. What cannot be read as X.509 or as keys says so."""
    pems: dict[int, bytes] = {}
    found: dict[str, Material] = {}
    for line in lines:
        kind, *fields = line.split(" ")
        try:
            if kind == "pems" and len(fields) == 1:
                pems = parse_pems(decoded_text(fields[0].removesuffix("-"), strict=True), _MOST_BYTES)
            elif kind == "file" and len(fields) == 4:
                number, name, state, keys = int(fields[0]), decoded_text(fields[1].removesuffix("-"), strict=True), fields[2], fields[3]
                found[name] = _material(name, pems.get(number, b""), decoded(keys.removesuffix("-"), strict=True), UNREAD.get(state))
        except (binascii.Error, ValueError):
            continue
    return found


def parse_authorities(lines: Iterable[str]) -> dict[str, Material]:
    """By the kubeconfig that names them."""
    found: dict[str, Material] = {}
    for line in lines:
        kind, *fields = line.split(" ")
        if kind != "authority" or len(fields) != 3:
            continue
        try:
            name = decoded_text(fields[0].removesuffix("-"), strict=True)
            made = _material(name, decoded(fields[2].removesuffix("-"), strict=True), b"", UNREAD.get(fields[1]))
        except (binascii.Error, ValueError):
            continue
        found[name] = replace(made, unread=Unread.no_authority) if made.unread is Unread.other else made
    return found


def _material(name: str, pem: bytes, keys: bytes, unread: Unread | None) -> Material:
    try:
        made = parse_material(name, pem, keys, unread)
    except CertificateError:
        return Material(name, unread=Unread.other)
    return made if made != Material(name) else Material(name, unread=Unread.other)
