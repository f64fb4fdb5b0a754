"""Certificate requests as a kubelet makes them, and as nobody should."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

USAGES = ("digital signature", "server auth")
NAMES = ("w1", "192.0.2.11")


@cache
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def pem(
    names: Sequence[str | x509.GeneralName] = NAMES,
    *,
    common: Sequence[str] = ("system:node:w1",),
    groups: Sequence[str] = ("system:nodes",),
    more: Sequence[x509.NameAttribute[str]] = (),
    extensions: Sequence[x509.ExtensionType] = (),
    signed_with: Any = None,
) -> bytes:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in groups]
    attributes += [x509.NameAttribute(NameOID.COMMON_NAME, one) for one in common]
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([*attributes, *more]))
    if names:
        made = made.add_extension(x509.SubjectAlternativeName([general(name) for name in names]), critical=False)
    for one in extensions:
        made = made.add_extension(one, critical=False)
    return made.sign(signed_with or key(), hashes.SHA256()).public_bytes(Encoding.PEM)


EXTENSION_REQUEST, MICROSOFT = "2a864886f70d01090e", "2b060104018237" + "02010e"


def pem_of_attributes(*attributes: tuple[str, Sequence[str]]) -> bytes:
    """A signed request of w1 whose attributes are these: an OID in hex, and the names that it asks for."""
    groups = (x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"), x509.NameAttribute(NameOID.COMMON_NAME, "system:node:w1"))
    public = key().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    parts = sorted(_attribute(bytes.fromhex(oid), names) for oid, names in attributes)
    info = _der(0x30, _der(0x02, b"\0"), x509.Name(groups).public_bytes(), public, _der(0xA0, *parts))
    algorithm = _der(0x30, _der(0x06, bytes.fromhex("2a8648ce3d040302")))
    whole = _der(0x30, info, algorithm, _der(0x03, b"\0", key().sign(info, ec.ECDSA(hashes.SHA256()))))
    return b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(whole) + b"-----END CERTIFICATE REQUEST-----\n"


def _attribute(oid: bytes, names: Sequence[str]) -> bytes:
    wanted = x509.SubjectAlternativeName([general(name) for name in names]).public_bytes()
    extension = _der(0x30, _der(0x06, bytes.fromhex("551d11")), _der(0x04, wanted))
    return _der(0x30, _der(0x06, oid), _der(0x31, _der(0x30, extension)))


def _der(tag: int, *parts: bytes) -> bytes:
    """Tag, length, value (X.690)."""
    value = b"".join(parts)
    size = len(value)
    length = [size] if size < 128 else [0x81, size] if size < 256 else [0x82, size >> 8, size & 255]
    return bytes([tag, *length]) + value


def general(name: str | x509.GeneralName) -> x509.GeneralName:
    if isinstance(name, x509.GeneralName):
        return name
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def request(
    data: bytes | None = None,
    *,
    name: str = "csr-1",
    user: str = "system:node:w1",
    groups: Sequence[str] = ("system:nodes", "system:authenticated"),
    signer: str = "kubernetes.io/kubelet-serving",
    usages: Sequence[str] = USAGES,
    created: str = "2026-03-01T12:00:00Z",
    **status: Any,
) -> dict[str, Any]:
    spec = {
        "signerName": signer,
        "username": user,
        "groups": list(groups),
        "usages": list(usages),
        "request": base64.b64encode(pem() if data is None else data).decode(),
    }
    return {"metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": created}, "spec": spec, "status": status}


def node(name: str = "w1", *addresses: tuple[str, str]) -> dict[str, Any]:
    listed = addresses or (("InternalIP", "192.0.2.11"), ("Hostname", "w1"))
    return {"metadata": {"name": name}, "status": {"addresses": [{"type": kind, "address": text} for kind, text in listed]}}
