"""What a file of certificates and keys holds: the certificates, the public halves of the keys, and what of it is not known. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key, load_pem_public_key

from roles.engine.certificates.x509 import Certificate, CertificateError, is_issued_by, parse_certificates

#: The answer of pems.sh.j2: a file by its number, a line of its certificates, or the certificate in a kubeconfig.
_LINE = re.compile(r"([0-9]+)(?:([ :])(.*))?", re.DOTALL)
_PUBLIC = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)
_PRIVATE = re.compile(rb"-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----.*?-----END (?P=kind)-----", re.DOTALL)


class Unread(StrEnum):
    """Why what a file holds is not known; the words for people, with the way out."""

    gone = "it does not exist on the node"
    no_openssl = "the node has no openssl, which shows the public half of a private key: install openssl there"
    locked = "openssl shows no public half of its private key: it has a password, or is damaged"
    no_authority = "it names no CA that can be read, so that of the system may count"
    other = "it cannot be read as a certificate or a key"


#: As public_half.sh.j2 and certificates.sh.j2 say it.
UNREAD = {"gone": Unread.gone, "no-openssl": Unread.no_openssl, "locked": Unread.locked}


@dataclass(frozen=True)
class Material:
    """`path`: the file, or several with commas; `keys`: public keys as DER (SubjectPublicKeyInfo), those of private keys too; `unread`: why
    some of its keys and certificates are not known (None: all are)."""

    path: str
    certificates: tuple[Certificate, ...] = ()
    keys: tuple[bytes, ...] = ()
    unread: Unread | None = None

    def __str__(self) -> str:
        return self.path

    @classmethod
    def joined(cls, parts: Sequence[Material]) -> Material:
        """Several files that count as one."""
        return cls(
            ",".join(one.path for one in parts),
            tuple(one for part in parts for one in part.certificates),
            tuple(one for part in parts for one in part.keys),
            next((part.unread for part in parts if part.unread), None),
        )

    @property
    def public_keys(self) -> frozenset[bytes]:
        """Those of its certificates too: a file of public keys may have these (client-go/util/keyutil, ParsePublicKeysPEM)."""
        return frozenset(self.keys) | {one.public_key for one in self.certificates}

    def verifies(self, other: Material) -> bool:
        """Whether a certificate here has issued the first certificate of the other file, directly or through its chain."""
        below, *chain = other.certificates or (None,)
        while below is not None:
            if any(below.der == authority.der or is_issued_by(below, authority) for authority in self.certificates):
                return True
            above = next((one for one in chain if one is not None and is_issued_by(below, one)), None)
            chain = [one for one in chain if one is not above]
            below = above
        return False


def parse_material(path: str, pem: bytes, keys: bytes = b"", unread: Unread | None = None) -> Material:
    """The content of a file, and the public keys that its node has named. Raises CertificateError."""
    return Material(path, tuple(parse_certificates(pem)), tuple(map(_public, _PUBLIC.findall(pem + b"\n" + keys))), unread)


def parse_own(path: str, content: bytes) -> Material:
    """A file that is here, with the public halves of its private keys. Raises CertificateError."""
    found = parse_material(path, content)
    private = [_public_half(one.group(0)) for one in _PRIVATE.finditer(content)]
    known = tuple(one for one in private if one is not None)
    return replace(found, keys=(*found.keys, *known), unread=None if len(known) == len(private) else Unread.locked)


def _public(block: bytes) -> bytes:
    try:
        return load_pem_public_key(block + b"\n").public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"it has a public key that cannot be read ({error})") from None


def _public_half(block: bytes) -> bytes | None:
    try:
        return load_pem_private_key(block + b"\n", None).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def parse_pems(text: str, most_bytes: int) -> dict[int, bytes]:
    """The PEM blocks of each file, by number, from the answer of pems.sh.j2. Raises ValueError if a line is none of that script's."""
    found: dict[int, bytes] = {}
    for line in filter(None, text.split("\n")):
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise ValueError("the answer about certificates is damaged")
        number, kind, rest = parts.groups()
        more = b"" if not kind else rest.encode() + b"\n" if kind == " " else _from_kubeconfig(rest)
        found[int(number)] = found.get(int(number), b"") + more
    return {number: pem[:most_bytes] for number, pem in found.items()}


def _from_kubeconfig(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        return b""
