"""What a file of certificates and keys holds: the certificates, and the public halves of the keys. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from roles.engine.certificates.x509 import Certificate, CertificateError, is_issued_by, parse_certificates


@dataclass(frozen=True)
class Material:
    """`path`: the file, or several with commas; `keys`: public keys as DER (SubjectPublicKeyInfo), those of private keys too."""

    path: str
    certificates: tuple[Certificate, ...] = ()
    keys: tuple[bytes, ...] = ()

    def __str__(self) -> str:
        return self.path

    @classmethod
    def joined(cls, parts: Sequence[Material]) -> Material:
        """Several files that count as one."""
        return cls(
            ",".join(one.path for one in parts),
            tuple(one for part in parts for one in part.certificates),
            tuple(one for part in parts for one in part.keys),
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


def parse_material(path: str, pem: bytes, keys: bytes = b"") -> Material:
    """The content of a file, and the public keys that its node has named. Raises CertificateError."""
    found = []
    for block in (pem + b"\n" + keys).split(b"-----BEGIN PUBLIC KEY-----")[1:]:
        whole = b"-----BEGIN PUBLIC KEY-----" + block.partition(b"-----END PUBLIC KEY-----")[0] + b"-----END PUBLIC KEY-----\n"
        try:
            found.append(load_pem_public_key(whole).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
        except ValueError as error:
            raise CertificateError(f"it has a public key that cannot be read ({error})") from None
    return Material(path, tuple(parse_certificates(pem)), tuple(found))
