"""Certificates and public keys in files of a node: a private key never leaves it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable

from roles.engine.bridge import Remote, RemoteError
from roles.engine.certificates import Certificate, CertificateError, Material, parse_material
from roles.engine.scripts import templates
from roles.engine.timeouts import patient

SECONDS = 30
#: A file may hold a chain; a folder of etcd has five files, or three for each node of the cluster.
_MOST_BYTES, _MOST_FILES = 65536, 100


def read_files(remote: Remote, paths: Collection[str], folders: Collection[str] = ()) -> dict[str, list[Certificate]]:
    """The certificates of files (of a kubeconfig its client certificate), and of all *.crt and *.pem
    in `folders`, but for *key.pem, by path. Raises RemoteError."""
    found = read_materials(remote, paths, folders, keys=False)
    return {path: list(one.certificates) for path, one in found.items() if one.certificates}


def read_materials(remote: Remote, paths: Collection[str], folders: Collection[str] = (), *, keys: bool = True) -> dict[str, Material]:
    """The same with the public keys in the files (`keys`), and those of private keys if the node has openssl. Raises RemoteError."""
    template = templates().get_template("certificates.sh.j2")
    script = template.render(paths=paths, folders=folders, keys=keys, most_bytes=_MOST_BYTES, most_files=_MOST_FILES)
    answer = remote.run("sh -s", stdin=script, timeout=patient(SECONDS))
    if answer.code != 0 or "end" not in answer.stdout:
        raise RemoteError(f"{remote.name}: its certificates cannot be read: {' '.join(answer.stderr[-3:]) or 'the answer was cut short'}")
    return parse_files(answer.stdout)


def parse_files(lines: Iterable[str]) -> dict[str, Material]:
    """Files that cannot be read as X.509 or as keys are left out."""
    found: dict[str, Material] = {}
    for line in lines:
        kind, *fields = line.split(" ")
        if kind != "certificates" or len(fields) != 3:
            continue
        try:
            path, data, keys = (base64.b64decode(text.removesuffix("-"), validate=True) for text in fields)
            name = path.decode("utf-8", "replace")
            if (one := parse_material(name, data, keys)) != Material(name):
                found[name] = one
        except (CertificateError, binascii.Error, ValueError):
            continue
    return found
